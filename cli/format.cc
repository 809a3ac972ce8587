#include "cli/format.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ctime>

namespace weightbus::cli {
namespace {

// Three digits, which is what a measurement is good for.
std::string three_digits(double value) {
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  if (value >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string local_time(std::uint64_t unix_milliseconds, const char* format) {
  const auto seconds = static_cast<std::time_t>(unix_milliseconds / 1000);
  std::tm parts{};
  if (::localtime_r(&seconds, &parts) == nullptr) return "?";
  std::array<char, 64> text{};
  return std::string(text.data(), std::strftime(text.data(), text.size(), format, &parts));
}

}  // namespace

std::string format_size(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB", "PB", "EB"}) {
    value /= 1000;
    unit = next;
    if (value < 999.5) break;
  }
  return three_digits(value) + " " + unit;
}

std::string format_rate(double bytes_per_second) {
  if (!(bytes_per_second > 0) || !std::isfinite(bytes_per_second)) return "-";
  if (bytes_per_second >= 1e8) return three_digits(bytes_per_second / 1e9) + " GB/s";
  return format_size(static_cast<std::uint64_t>(bytes_per_second)) + "/s";
}

std::string format_nanos(std::uint64_t nanoseconds) {
  if (nanoseconds == 0) return "0 us";
  const auto value = static_cast<double>(nanoseconds);
  if (value < 1e6) return three_digits(value / 1e3) + " us";
  if (value < 1e9) return three_digits(value / 1e6) + " ms";
  if (value < 120e9) return three_digits(value / 1e9) + " s";
  const std::uint64_t seconds = nanoseconds / 1'000'000'000;
  return fmt::format("{} min {} s", seconds / 60, seconds % 60);
}

std::string format_left(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 360'000) return "?";
  const auto whole = static_cast<std::uint64_t>(std::ceil(seconds));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string format_age(std::uint64_t milliseconds) {
  const std::uint64_t seconds = milliseconds / 1000;
  if (seconds < 10) return fmt::format("{}.{} s", seconds, milliseconds / 100 % 10);
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  if (seconds < 172'800) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86'400);
}

std::string format_time(std::uint64_t unix_milliseconds) {
  return unix_milliseconds == 0 ? "-" : local_time(unix_milliseconds, "%Y-%m-%d %H:%M:%S");
}
std::string format_clock(std::uint64_t unix_milliseconds) { return local_time(unix_milliseconds, "%H:%M:%S"); }

double rate_of(std::uint64_t bytes, std::uint64_t nanoseconds) noexcept {
  return nanoseconds == 0 ? 0 : static_cast<double>(bytes) * 1e9 / static_cast<double>(nanoseconds);
}

}  // namespace weightbus::cli
