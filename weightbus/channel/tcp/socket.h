// Non-blocking TCP sockets whose every wait can be ended.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/channel/pull_limits.h"

namespace weightbus::channel {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }
  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  void reset() noexcept;
  int release() noexcept {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

// What may end the work on a socket.
class SocketLimits {
 public:
  virtual ~SocketLimits() = default;
  virtual base::Status check() = 0;                     // asked between system calls
  virtual base::Status wait(int fd, short events) = 0;  // until the socket is ready, or the error that ends the work
};

// A sink's: the deadline and the cancellation of a pull, looked at every 10 ms.
class SinkLimits final : public SocketLimits {
 public:
  explicit SinkLimits(const PullLimits& limits) : limits_(limits) {}
  base::Status check() override { return limits_.check(); }
  base::Status wait(int fd, short events) override;

 private:
  const PullLimits& limits_;
};

// A source's: ends at once when `stop` (an eventfd) becomes readable, and when one wait lasts longer than `longest`.
class SourceLimits final : public SocketLimits {
 public:
  SourceLimits(int stop, base::Duration longest) : stop_(stop), longest_(longest) {}
  base::Status check() override;
  base::Status wait(int fd, short events) override;

 private:
  const int stop_;
  const base::Duration longest_;
};

// Sends or receives exactly `size` bytes. kUnavailable when the peer is gone.
base::Status send_all(int fd, const void* data, std::size_t size, bool more, SocketLimits& limits);
base::Status receive_all(int fd, void* data, std::size_t size, SocketLimits& limits);
// Receives between 1 and `size` bytes.
base::Result<std::size_t> receive_some(int fd, void* data, std::size_t size, SocketLimits& limits);

struct HostPort {
  std::string host;  // without brackets; empty: any address ("*")
  std::uint16_t port;
};
// "host:port", "[ipv6]:port", "*:port".
base::Result<HostPort> parse_host_port(const std::string& text);
std::string format_host_port(const HostPort& address);

// A listening socket. The host is resolved within ten seconds.
base::Result<Fd> listen_on(const HostPort& address);
// The address that a socket is bound to; an empty host when it is bound to all.
base::Result<HostPort> bound_address(int fd);
// Connects to the first address of the host that answers.
base::Result<Fd> connect_to(const HostPort& address, const PullLimits& within, SocketLimits& limits);
// TCP_NODELAY, and keep-alives that find a dead host within a minute.
void tune(int fd) noexcept;

}  // namespace weightbus::channel
