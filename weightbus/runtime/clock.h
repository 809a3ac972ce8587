// The only place that reads a clock; everything PURE is handed an Instant.
#pragma once

#include <cstdint>

#include "weightbus/base/time.h"

namespace weightbus::runtime {

base::Instant now() noexcept;          // monotonic
std::uint64_t unix_millis() noexcept;  // wall time, for people only

}  // namespace weightbus::runtime
