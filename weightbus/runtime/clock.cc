#include "weightbus/runtime/clock.h"

#include <chrono>

namespace weightbus::runtime {

base::Instant now() noexcept { return base::Instant(std::chrono::steady_clock::now().time_since_epoch()); }

std::uint64_t unix_millis() noexcept {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

}  // namespace weightbus::runtime
