// Monotonic time as a value. PURE code is handed an Instant; only runtime/clock.h reads a clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace weightbus::base {

using Duration = std::chrono::nanoseconds;
using Millis = std::chrono::milliseconds;

// A point on one process's monotonic clock. Instants of different processes are not comparable: deadlines travel as
// durations.
struct MonotonicClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<MonotonicClock>;
  static constexpr bool is_steady = true;
};
using Instant = MonotonicClock::time_point;

inline double to_seconds(Duration d) noexcept { return std::chrono::duration<double>(d).count(); }
inline double to_millis(Duration d) noexcept { return std::chrono::duration<double, std::milli>(d).count(); }

}  // namespace weightbus::base
