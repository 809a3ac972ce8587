#include "cli/option_checks.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "weightbus/runtime/values.h"

namespace weightbus::cli {
namespace {
constexpr std::int64_t kMillisMax = std::numeric_limits<std::uint32_t>::max();
}

std::function<std::string(const std::string&)> duration_check() {
  return [](const std::string& text) -> std::string {
    const auto parsed = runtime::parse_duration(text);
    if (!parsed) return text + " is no duration (" + parsed.error().message + "); write it as 500ms, 5s or 10m";
    if (*parsed < base::Millis(1)) return text + " is too short: at least 1ms";
    if (*parsed > base::Millis(kMillisMax)) return text + " is too long: at most 49 days";
    return {};
  };
}

std::function<std::string(const std::string&)> count_check() {
  return [](const std::string& text) -> std::string {
    return runtime::parse_count(text) ? std::string() : text + " is no whole number";
  };
}

std::uint32_t duration_ms(const std::string& text) {
  const auto parsed = runtime::parse_duration(text);
  if (!parsed) return 0;
  return static_cast<std::uint32_t>(std::min(std::chrono::duration_cast<base::Millis>(*parsed).count(), kMillisMax));
}

std::string absolute_path(const std::string& path) {
  std::error_code error;
  const auto full = std::filesystem::absolute(path, error);
  return error ? path : full.lexically_normal().string();
}

}  // namespace weightbus::cli
