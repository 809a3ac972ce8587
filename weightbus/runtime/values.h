// How durations, sizes and addresses are written in settings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"

namespace weightbus::runtime {

// "250us", "500ms", "2s", "5m", "1h"; "0" alone needs no unit. Never negative.
base::Result<base::Duration> parse_duration(std::string_view text);
std::string format_duration(base::Duration duration);  // the largest unit that is exact

// "4096", "64KiB", "512MiB", "1GiB", "2TiB", and the decimal "KB", "MB", "GB", "TB".
base::Result<std::uint64_t> parse_bytes(std::string_view text);
std::string format_bytes(std::uint64_t bytes);  // the largest binary unit that is exact

// A whole decimal number.
base::Result<std::uint64_t> parse_count(std::string_view text);

// "true", "false", "yes", "no", "on", "off", "1", "0".
base::Result<bool> parse_flag(std::string_view text);

// "host:port", "1.2.3.4:80", "[::1]:80", ":80" (every address). Port 0 to 65535, where 0 lets the system pick.
struct HostPort {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};
base::Result<HostPort> parse_host_port(std::string_view text);

// "tcp://" with a host and port ("*" for either: any), or "ipc://" with a path. Returns it unchanged.
base::Result<std::string> parse_endpoint(std::string_view text);

}  // namespace weightbus::runtime
