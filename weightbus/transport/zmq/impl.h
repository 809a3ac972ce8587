// The state behind ZmqTransport. Internal to transport/zmq: sockets.cc makes sockets, receiving.cc reads them, and
// zmq_transport.cc holds the calls that change them.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "weightbus/transport/zmq/socket.h"
#include "weightbus/transport/zmq/zap.h"
#include "weightbus/transport/zmq/zmq_transport.h"

namespace weightbus::transport {

using SteadyClock = std::chrono::steady_clock;

// A socket with the monitor that tells what becomes of its connections.
struct ZmqTransport::Connection {
  Connection() = default;
  ~Connection() { close(); }
  Connection(Connection&&) = default;
  Connection& operator=(Connection&& other) noexcept {
    close();
    endpoint = std::move(other.endpoint);
    peer_key = std::move(other.peer_key);
    socket = std::move(other.socket);
    monitor = std::move(other.monitor);
    rebuild_at = other.rebuild_at;
    return *this;
  }
  void close() noexcept {
    // Before the reader of its events goes: libzmq's I/O thread waits for ever to hand an event to nobody.
    if (socket) zmq_socket_monitor(socket.handle(), nullptr, 0);
    socket.close();
    monitor.close();
  }

  std::string endpoint;
  std::string peer_key;
  ZmqSocket socket;
  ZmqSocket monitor;
  // When to make the connection anew, unless libzmq is seen to try again before.
  std::optional<SteadyClock::time_point> rebuild_at;
};

// Every socket is used under `mutex` only; receive() waits outside it, on the descriptors that libzmq signals.
struct ZmqTransport::Impl {
  explicit Impl(ZmqOptions given)
      : options(std::move(given)), access(options.keys.has_value(), std::move(options.allow)) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  base::Status open_listener();
  base::Result<Connection> open_dealer(const std::string& endpoint, const std::string& peer_key);
  bool open_monitor(Connection& connection);
  base::Status send_to_peer(const std::string& name, const std::string& routing_id, std::string_view frame);
  std::optional<Received> take_next();
  std::optional<Received> take_from_listener();
  std::optional<Received> take_from_dealer(const std::string& name, Connection& connection);
  bool is_whole_frame(ZmqSocket& socket, const ZmqMessage& body);
  void read_monitor(Connection& connection, bool is_listener);
  void recover_connections(SteadyClock::time_point now);
  std::optional<Received::Identity> identify(const std::string& key) const;
  std::vector<pollfd> descriptors(SteadyClock::time_point& until);
  void poke() const;
  // After any other use of a socket: libzmq may have consumed the signal that receive() waits for.
  void poke_if_readable(const Connection& connection) const {
    if ((connection.socket.get(ZMQ_EVENTS) & ZMQ_POLLIN) != 0) poke();
  }

  ZmqOptions options;
  Access access;
  void* context = nullptr;
  int wake_fd = -1;
  std::atomic<bool> woken{false};
  std::atomic<std::uint64_t> handshake_failures{0};
  std::atomic<std::uint64_t> refused_frames{0};
  std::atomic<std::uint64_t> oversized{0};
  std::atomic<std::uint64_t> malformed{0};

  mutable std::mutex mutex;
  std::unique_ptr<ZapHandler> zap;
  Connection listener;
  std::map<std::string, Connection> dealers;
  std::unordered_map<std::string, std::string> peer_keys;  // by routing id, of peers that have sent something
  std::string last_served;                                 // takes turns: the dealer after this one is next
  std::uint64_t monitors_made = 0;
};

}  // namespace weightbus::transport
