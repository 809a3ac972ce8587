// Endpoints of control sockets, as configuration and LAST_ENDPOINT spell them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weightbus/base/result.h"

namespace weightbus::transport {

struct Endpoint {
  enum class Kind : std::uint8_t { kTcp, kIpc };
  Kind kind = Kind::kTcp;
  std::string host;        // tcp: without brackets; "*" is every interface
  std::uint16_t port = 0;  // tcp: 0 lets the system choose (listeners only)
  std::string path;        // ipc
  friend bool operator==(const Endpoint&, const Endpoint&) = default;

  // "tcp://10.0.0.1:7000", "tcp://[::1]:7000", "ipc:///run/weightbus.sock". Port 0 is written as "*".
  std::string to_string() const;
  // Reachable only from this machine: 127.0.0.0/8 (also as an IPv4-mapped address), ::1, localhost, ipc. Other names
  // are not looked up: a name can change its address later.
  bool is_loopback() const;
};

// "tcp://host:port" with an IPv4 address, a bracketed IPv6 address, a name or "*"; port 1..65535, "0" or "*";
// "ipc://path" with up to 107 bytes. kInvalidArgument says which part is wrong.
base::Result<Endpoint> parse_endpoint(std::string_view text);

// The endpoint to listen on, with its host name looked up: ZeroMQ binds to addresses only. "localhost" is 127.0.0.1.
// kNotFound if the name has no address. May wait for the name service.
base::Result<Endpoint> resolve_listener(const Endpoint& endpoint);

}  // namespace weightbus::transport
