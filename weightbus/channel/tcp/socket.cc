#include "weightbus/channel/tcp/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "weightbus/channel/tcp/resolve.h"

namespace weightbus::channel {
namespace {

using base::ErrorCode;
using base::fail;

constexpr std::size_t kSliceBytes = 1U << 20;  // between two checks of the limits
constexpr int kBacklog = 128;

int poll_millis(base::Duration wait) {
  const auto millis = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  return static_cast<int>(std::clamp<std::int64_t>(millis, 0, 1 << 30));
}

base::Status connection_lost(int code) {
  return fail(ErrorCode::kUnavailable, "the connection is gone: {}", code ? std::strerror(code) : "closed by the peer");
}

bool try_again(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

void set_option(int fd, int level, int name, int value) noexcept {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

base::Result<Fd> connect_one(const Address& address, SocketLimits& limits) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fail(ErrorCode::kUnavailable, "no socket: {}", std::strerror(errno));
  tune(fd.get());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) return fd;
  if (errno != EINPROGRESS && errno != EINTR) return fail(ErrorCode::kUnavailable, "{}", std::strerror(errno));
  WB_TRY(limits.wait(fd.get(), POLLOUT));
  int code = 0;
  socklen_t size = sizeof code;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &code, &size) != 0) code = errno;
  if (code != 0) return fail(ErrorCode::kUnavailable, "{}", std::strerror(code));
  return fd;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

void Fd::reset() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

base::Status SinkLimits::wait(int fd, short events) {
  while (true) {
    WB_TRY(limits_.check());
    pollfd item{fd, events, 0};
    const int ready = ::poll(&item, 1, poll_millis(limits_.wait(std::chrono::milliseconds(10))));
    if (ready > 0) return {};  // errors too: the next call on the socket reports them
    if (ready < 0 && errno != EINTR) return fail(ErrorCode::kInternal, "poll: {}", std::strerror(errno));
  }
}

base::Status SourceLimits::check() {
  pollfd item{stop_, POLLIN, 0};
  if (::poll(&item, 1, 0) > 0) return fail(ErrorCode::kUnavailable, "the session has ended");
  return {};
}

base::Status SourceLimits::wait(int fd, short events) {
  const PullLimits::Clock::time_point end = PullLimits::Clock::now() + longest_;
  while (true) {
    const auto left = std::chrono::duration_cast<base::Duration>(end - PullLimits::Clock::now());
    pollfd items[2] = {{fd, events, 0}, {stop_, POLLIN, 0}};
    const int ready = ::poll(items, 2, poll_millis(std::max(left, base::Duration::zero())));
    if (ready < 0 && errno != EINTR) return fail(ErrorCode::kInternal, "poll: {}", std::strerror(errno));
    if (ready > 0 && items[1].revents) return fail(ErrorCode::kUnavailable, "the session has ended");
    if (ready > 0) return {};
    if (left <= base::Duration::zero()) return fail(ErrorCode::kDeadlineExceeded, "the peer is silent");
  }
}

base::Status send_all(int fd, const void* data, std::size_t size, bool more, SocketLimits& limits) {
  const auto* bytes = static_cast<const std::byte*>(data);
  while (size > 0) {
    WB_TRY(limits.check());
    const ssize_t sent = ::send(fd, bytes, std::min(size, kSliceBytes),
                                MSG_NOSIGNAL | MSG_DONTWAIT | (more || size > kSliceBytes ? MSG_MORE : 0));
    if (sent > 0) {
      bytes += sent;
      size -= static_cast<std::size_t>(sent);
    } else if (sent < 0 && try_again(errno)) {
      WB_TRY(limits.wait(fd, POLLOUT));
    } else {
      return connection_lost(sent < 0 ? errno : 0);
    }
  }
  return {};
}

base::Result<std::size_t> receive_some(int fd, void* data, std::size_t size, SocketLimits& limits) {
  WB_TRY(limits.check());
  while (true) {
    const ssize_t received = ::recv(fd, data, std::min(size, kSliceBytes), MSG_DONTWAIT);
    if (received > 0) return static_cast<std::size_t>(received);
    if (received == 0) return fail(connection_lost(0).error());
    if (!try_again(errno)) return fail(connection_lost(errno).error());
    WB_TRY(limits.wait(fd, POLLIN));
  }
}

base::Status receive_all(int fd, void* data, std::size_t size, SocketLimits& limits) {
  auto* bytes = static_cast<std::byte*>(data);
  while (size > 0) {
    WB_ASSIGN(const std::size_t received, receive_some(fd, bytes, size, limits));
    bytes += received;
    size -= received;
  }
  return {};
}

base::Result<HostPort> parse_host_port(const std::string& text) {
  const auto colon = text.rfind(':');
  std::uint16_t port = 0;
  bool good = colon != std::string::npos && colon > 0 && text.find('\0') == std::string::npos;
  std::string host;
  if (good) {
    const auto* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
    good = parsed.ec == std::errc{} && parsed.ptr == end;
    host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    } else if (host.find_first_of(":[]") != std::string::npos) {
      good = false;
    }
  }
  if (!good) {
    return fail(ErrorCode::kInvalidArgument, "\"{}\" is not an address: write host:port, [::1]:port or *:port", text);
  }
  return HostPort{host == "*" ? "" : host, port};
}

std::string format_host_port(const HostPort& address) {
  if (address.host.empty()) return fmt::format("*:{}", address.port);
  if (address.host.find(':') != std::string::npos) return fmt::format("[{}]:{}", address.host, address.port);
  return fmt::format("{}:{}", address.host, address.port);
}

base::Result<Fd> listen_on(const HostPort& address) {
  const model::MemberId self("the name service");
  const PullLimits limits(self, std::chrono::seconds(10), nullptr);
  WB_ASSIGN(auto addresses, resolve(address.host, address.port, limits));
  // All addresses: IPv6 first, since that socket takes IPv4 too.
  std::stable_sort(addresses.begin(), addresses.end(), [](const Address& a, const Address& b) {
    return a.storage.ss_family == AF_INET6 && b.storage.ss_family != AF_INET6;
  });
  int code = 0;
  for (const auto& one : addresses) {
    Fd fd(::socket(one.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (one.storage.ss_family == AF_INET6)
      set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, address.host.empty() ? 0 : 1);
    if (fd.valid() && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&one.storage), one.size) == 0 &&
        ::listen(fd.get(), kBacklog) == 0) {
      return fd;
    }
    code = errno;
  }
  return fail(ErrorCode::kUnavailable, "cannot listen on {}: {}", format_host_port(address), std::strerror(code));
}

base::Result<HostPort> bound_address(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  char text[INET6_ADDRSTRLEN] = {};
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return fail(ErrorCode::kInternal, "getsockname: {}", std::strerror(errno));
  }
  if (storage.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(storage);
    const bool any = std::memcmp(&six.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0;
    ::inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof text);
    return HostPort{any ? "" : text, ntohs(six.sin6_port)};
  }
  const auto& four = reinterpret_cast<const sockaddr_in&>(storage);
  ::inet_ntop(AF_INET, &four.sin_addr, text, sizeof text);
  return HostPort{four.sin_addr.s_addr == htonl(INADDR_ANY) ? "" : text, ntohs(four.sin_port)};
}

base::Result<Fd> connect_to(const HostPort& address, const PullLimits& within, SocketLimits& limits) {
  WB_ASSIGN(const auto addresses, resolve(address.host, address.port, within));
  base::Error last{ErrorCode::kUnavailable, "the name has no address"};
  for (const auto& one : addresses) {
    auto fd = connect_one(one, limits);
    if (fd) return fd;
    WB_TRY(limits.check());
    last = std::move(fd).error();
  }
  return fail(last.with("cannot connect to " + format_host_port(address)));
}

void tune(int fd) noexcept {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace weightbus::channel
