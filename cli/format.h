// How numbers are written for people.
#pragma once

#include <cstdint>
#include <string>

namespace weightbus::cli {

std::string format_size(std::uint64_t bytes);               // "1.19 GB": decimal, as GB/s are
std::string format_rate(double bytes_per_second);           // "3.42 GB/s"
std::string format_nanos(std::uint64_t nanoseconds);        // "812 us", "4.21 ms", "12.3 s", "3 min 20 s"
std::string format_left(double seconds);                    // "0:07", "12:30", "1:02:03"
std::string format_age(std::uint64_t milliseconds);         // "0.4 s", "12 s", "5 min", "3 h", "2 d"
std::string format_time(std::uint64_t unix_milliseconds);   // "2026-03-01 12:00:05", local time
std::string format_clock(std::uint64_t unix_milliseconds);  // "12:00:05"
// Bytes a second; 0 when no time has passed.
double rate_of(std::uint64_t bytes, std::uint64_t nanoseconds) noexcept;

}  // namespace weightbus::cli
