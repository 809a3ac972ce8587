// Time as the state machines are handed it.
#pragma once

#include <cstdint>

#include "weightbus/base/time.h"

namespace weightbus::protocol {

struct Now {
  base::Instant mono;         // for every deadline
  std::uint64_t unix_ms = 0;  // for people only
};

inline base::Duration from_ms(std::uint32_t ms) noexcept { return base::Millis(ms); }
inline std::uint32_t to_ms(base::Duration d) noexcept {
  const auto ms = std::chrono::duration_cast<base::Millis>(d).count();
  return ms < 0 ? 0 : static_cast<std::uint32_t>(ms);
}

}  // namespace weightbus::protocol
