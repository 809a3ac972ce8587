#include "weightbus/transport/endpoint.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <memory>

namespace weightbus::transport {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr std::string_view kTcpPrefix = "tcp://";
constexpr std::string_view kIpcPrefix = "ipc://";
constexpr std::size_t kIpcPathMax = sizeof(sockaddr_un{}.sun_path) - 1;
constexpr std::size_t kHostMax = 253;  // the longest DNS name

bool is_ipv6(const std::string& host) {
  in6_addr address{};
  // A scope ("fe80::1%eth0") is no part of what inet_pton reads.
  return inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &address) == 1;
}

bool is_ipv4(const std::string& host) {
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

bool is_name(std::string_view host) {
  return std::all_of(host.begin(), host.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_'; });
}

Result<std::uint16_t> parse_port(std::string_view text, std::string_view whole) {
  if (text == "*") return std::uint16_t{0};
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    return fail(ErrorCode::kInvalidArgument, "endpoint '{}': '{}' is no port; give 0 to 65535 or *", whole, text);
  }
  return port;
}

Result<Endpoint> parse_tcp(std::string_view rest, std::string_view whole) {
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, "endpoint '{}' has no port; write tcp://host:port", whole);
  }
  std::string_view host = rest.substr(0, colon);
  Endpoint endpoint;
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (!is_ipv6(std::string(host))) {
      return fail(ErrorCode::kInvalidArgument, "endpoint '{}': '{}' is no IPv6 address", whole, host);
    }
  } else if (host.find(':') != std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, "endpoint '{}': put an IPv6 address in brackets, as in tcp://[::1]:7000",
                whole);
  } else if (host.empty() || host.size() > kHostMax || (host != "*" && !is_name(host))) {
    return fail(ErrorCode::kInvalidArgument, "endpoint '{}': '{}' is neither an address nor a host name", whole, host);
  }
  WB_ASSIGN(endpoint.port, parse_port(rest.substr(colon + 1), whole));
  endpoint.host = std::string(host);
  return endpoint;
}

}  // namespace

std::string Endpoint::to_string() const {
  if (kind == Kind::kIpc) return fmt::format("{}{}", kIpcPrefix, path);
  const std::string port_text = port == 0 ? "*" : fmt::to_string(port);
  if (host.find(':') != std::string::npos) return fmt::format("{}[{}]:{}", kTcpPrefix, host, port_text);
  return fmt::format("{}{}:{}", kTcpPrefix, host, port_text);
}

bool Endpoint::is_loopback() const {
  if (kind == Kind::kIpc || host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return v6.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6);
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  if (text.starts_with(kTcpPrefix)) return parse_tcp(text.substr(kTcpPrefix.size()), text);
  if (!text.starts_with(kIpcPrefix)) {
    return fail(ErrorCode::kInvalidArgument, "endpoint '{}' starts with neither tcp:// nor ipc://", text);
  }
  Endpoint endpoint;
  endpoint.kind = Endpoint::Kind::kIpc;
  endpoint.path = std::string(text.substr(kIpcPrefix.size()));
  const bool has_nul = endpoint.path.find('\0') != std::string::npos;
  if (endpoint.path.empty() || endpoint.path == "*" || endpoint.path.size() > kIpcPathMax || has_nul) {
    return fail(ErrorCode::kInvalidArgument, "endpoint '{}': give a path of 1 to {} bytes", text, kIpcPathMax);
  }
  return endpoint;
}

Result<Endpoint> resolve_listener(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::kIpc || endpoint.host == "*") return endpoint;
  if (is_ipv4(endpoint.host) || is_ipv6(endpoint.host)) return endpoint;
  Endpoint resolved = endpoint;
  if (endpoint.host == "localhost") {
    resolved.host = "127.0.0.1";
    return resolved;
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &list); error != 0) {
    return fail(ErrorCode::kNotFound, "cannot listen on {}: the name '{}' has no address here ({})",
                endpoint.to_string(), endpoint.host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(list, &freeaddrinfo);
  std::array<char, NI_MAXHOST> host{};
  if (const int error =
          getnameinfo(list->ai_addr, list->ai_addrlen, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
      error != 0) {
    return fail(ErrorCode::kNotFound, "cannot listen on {}: {}", endpoint.to_string(), gai_strerror(error));
  }
  resolved.host = host.data();
  return resolved;
}

}  // namespace weightbus::transport
