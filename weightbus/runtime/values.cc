#include "weightbus/runtime/values.h"

#include <array>
#include <charconv>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "weightbus/base/checked_math.h"

namespace weightbus::runtime {
namespace {

using base::ErrorCode;
using base::fail;

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

// Ascending.
constexpr std::array<Unit, 6> kDurations{{{"ns", 1},
                                          {"us", 1'000},
                                          {"ms", 1'000'000},
                                          {"s", 1'000'000'000},
                                          {"m", 60'000'000'000},
                                          {"h", 3'600'000'000'000}}};
constexpr std::array<Unit, 5> kBinary{
    {{"", 1}, {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}, {"TiB", 1ULL << 40}}};
constexpr std::array<Unit, 5> kDecimal{
    {{"B", 1}, {"KB", 1'000}, {"MB", 1'000'000}, {"GB", 1'000'000'000}, {"TB", 1'000'000'000'000}}};

// Digits, and what follows them.
std::optional<std::pair<std::uint64_t, std::string_view>> split(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return std::pair{number, text.substr(static_cast<std::size_t>(end - text.data()))};
}

template <class Units>
std::optional<std::uint64_t> scaled(std::uint64_t number, std::string_view unit, const Units& units) {
  for (const auto& candidate : units)
    if (candidate.name == unit) return base::checked_mul(number, candidate.factor);
  return std::nullopt;
}

template <class Units>
std::string in_largest_unit(std::uint64_t value, const Units& units) {
  const Unit* best = &units.front();
  for (const auto& unit : units)
    if (value != 0 && value % unit.factor == 0) best = &unit;
  return std::to_string(value / best->factor) + std::string(best->name);
}

}  // namespace

base::Result<base::Duration> parse_duration(std::string_view text) {
  if (text == "0") return base::Duration::zero();
  const auto parts = split(text);
  const auto nanos = parts ? scaled(parts->first, parts->second, kDurations) : std::nullopt;
  if (!nanos || *nanos > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return fail(ErrorCode::kInvalidArgument, "\"{}\" is not a duration: write a whole number and us, ms, s, m or h",
                text);
  return base::Duration(static_cast<std::int64_t>(*nanos));
}

std::string format_duration(base::Duration duration) {
  if (duration == base::Duration::zero()) return "0";
  return in_largest_unit(static_cast<std::uint64_t>(duration.count()), kDurations);
}

base::Result<std::uint64_t> parse_bytes(std::string_view text) {
  const auto parts = split(text);
  auto bytes = parts ? scaled(parts->first, parts->second, kBinary) : std::nullopt;
  if (parts && !bytes) bytes = scaled(parts->first, parts->second, kDecimal);
  if (!bytes)
    return fail(ErrorCode::kInvalidArgument,
                "\"{}\" is not a size: write a whole number of bytes, or with KiB, MiB, GiB, TiB, KB, MB, GB or TB",
                text);
  return *bytes;
}

std::string format_bytes(std::uint64_t bytes) { return in_largest_unit(bytes, kBinary); }

base::Result<std::uint64_t> parse_count(std::string_view text) {
  const auto parts = split(text);
  if (!parts || !parts->second.empty()) return fail(ErrorCode::kInvalidArgument, "\"{}\" is not a whole number", text);
  return parts->first;
}

base::Result<bool> parse_flag(std::string_view text) {
  for (const auto word : {"true", "yes", "on", "1"})
    if (text == word) return true;
  for (const auto word : {"false", "no", "off", "0"})
    if (text == word) return false;
  return fail(ErrorCode::kInvalidArgument, "\"{}\" is neither true nor false", text);
}

base::Result<HostPort> parse_host_port(std::string_view text) {
  const auto wrong = [&] {
    return fail(ErrorCode::kInvalidArgument, "\"{}\" is not an address: write host:port, or [::1]:port for IPv6", text);
  };
  HostPort result;
  std::string_view rest = text;
  if (!rest.empty() && rest.front() == '[') {
    const auto close = rest.find(']');
    if (close == std::string_view::npos || close == 1) return wrong();
    result.host = rest.substr(1, close - 1);
    if (result.host.find(':') == std::string::npos || result.host.find_first_of(" \t/@[") != std::string::npos)
      return wrong();
    rest.remove_prefix(close + 1);
    if (rest.empty() || rest.front() != ':') return wrong();
  } else {
    const auto colon = rest.find(':');
    // A second colon is an IPv6 address without brackets, whose port could not be told.
    if (colon == std::string_view::npos || rest.find(':', colon + 1) != std::string_view::npos) return wrong();
    result.host = rest.substr(0, colon);
    if (result.host.find_first_of(" \t/@[]") != std::string::npos) return wrong();
    rest.remove_prefix(colon);
  }
  const auto port = parse_count(rest.substr(1));
  if (!port || *port > 65535) return wrong();
  result.port = static_cast<std::uint16_t>(*port);
  return result;
}

base::Result<std::string> parse_endpoint(std::string_view text) {
  constexpr std::string_view kTcp = "tcp://";
  constexpr std::string_view kIpc = "ipc://";
  if (text.starts_with(kIpc) && text.size() > kIpc.size()) return std::string(text);
  if (text.starts_with(kTcp)) {
    std::string address(text.substr(kTcp.size()));
    if (address.ends_with(":*")) address.back() = '0';
    const auto parsed = parse_host_port(address);
    if (parsed && !parsed->host.empty()) return std::string(text);
  }
  return fail(ErrorCode::kInvalidArgument,
              "\"{}\" is not an endpoint: write tcp://host:port, tcp://[::1]:port or ipc://path", text);
}

}  // namespace weightbus::runtime
