#include "weightbus/transport/zmq/zmq_transport.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "weightbus/transport/endpoint.h"
#include "weightbus/transport/zmq/impl.h"

namespace weightbus::transport {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::Status;

namespace {

// The reverse of what receive() calls the connections of the listener.
std::optional<std::string> from_hex(std::string_view text) {
  if (text.size() % 2 != 1 || text.front() != '#') return std::nullopt;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string bytes;
  for (std::size_t i = 1; i < text.size(); i += 2) {
    const auto high = kDigits.find(text[i]);
    const auto low = kDigits.find(text[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

}  // namespace

ZmqTransport::ZmqTransport(ZmqOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
ZmqTransport::~ZmqTransport() = default;

Result<std::unique_ptr<ZmqTransport>> ZmqTransport::create(ZmqOptions options) {
  WB_ASSERT(options.queue_frames > 0, "0 would make libzmq's queues unbounded");
  if (options.keys && (!is_key(options.keys->public_key) || !is_key(options.keys->secret_key))) {
    return fail(ErrorCode::kInvalidArgument, "the transport's keys are no Z85 keys of 40 characters");
  }
  auto transport = std::unique_ptr<ZmqTransport>(new ZmqTransport(std::move(options)));
  auto& impl = *transport->impl_;
  impl.context = zmq_ctx_new();
  impl.wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (impl.context == nullptr || impl.wake_fd < 0) {
    return fail(ErrorCode::kResourceExhausted, "cannot set up control messages: {}", std::strerror(errno));
  }
  return transport;
}

Result<std::string> ZmqTransport::bind(const std::string& endpoint) {
  WB_ASSIGN(const auto parsed, parse_endpoint(endpoint));
  WB_ASSIGN(const auto resolved, resolve_listener(parsed));
  if (!impl_->options.keys && !resolved.is_loopback()) {
    return fail(ErrorCode::kPermissionDenied,
                "will not listen on {} without keys: plain sockets are for loopback only; make keys with "
                "'weightbus keys new'",
                endpoint);
  }
  const std::lock_guard lock(impl_->mutex);
  WB_TRY(impl_->open_listener());
  auto& socket = impl_->listener.socket;
  if (zmq_bind(socket.handle(), resolved.to_string().c_str()) != 0) {
    const int error = zmq_errno();
    const auto code = error == EADDRINUSE ? ErrorCode::kConflict
                      : error == EACCES   ? ErrorCode::kPermissionDenied
                                          : ErrorCode::kInvalidArgument;
    return fail(code, "cannot listen on {}: {}", endpoint, zmq_strerror(error));
  }
  std::array<char, 512> bound{};
  std::size_t size = bound.size();
  WB_ASSERT(zmq_getsockopt(socket.handle(), ZMQ_LAST_ENDPOINT, bound.data(), &size) == 0, "the socket is bound");
  impl_->poke();  // a receive() that waits now does not watch this socket yet
  return std::string(bound.data());
}

Status ZmqTransport::connect(const std::string& connection, const std::string& endpoint, const std::string& peer_key) {
  if (connection.empty() || connection.front() == '#') {
    return fail(ErrorCode::kInvalidArgument, "'{}' is no name for a connection", connection);
  }
  WB_ASSIGN(auto parsed, parse_endpoint(endpoint));
  if (parsed.kind == Endpoint::Kind::kTcp && (parsed.port == 0 || parsed.host == "*")) {
    return fail(ErrorCode::kInvalidArgument, "cannot connect to {}: give a host and a port", endpoint);
  }
  if (parsed.host == "localhost") parsed.host = "127.0.0.1";  // as the listener reads it
  if (peer_key.empty() && !parsed.is_loopback()) {
    return fail(ErrorCode::kPermissionDenied,
                "will not connect to {} without its public key: plain sockets are for "
                "loopback only",
                endpoint);
  }
  if (!peer_key.empty() && !impl_->options.keys) {
    return fail(ErrorCode::kInvalidArgument, "cannot connect to {} by its key without a key pair of our own", endpoint);
  }
  if (!peer_key.empty() && !is_key(peer_key)) {
    return fail(ErrorCode::kInvalidArgument, "the public key of {} is not a Z85 key of 40 characters", endpoint);
  }
  const auto target = parsed.to_string();
  const std::lock_guard lock(impl_->mutex);
  const auto existing = impl_->dealers.find(connection);
  if (existing != impl_->dealers.end() && existing->second.endpoint == target &&
      existing->second.peer_key == peer_key) {
    return {};
  }
  WB_ASSIGN(auto fresh, impl_->open_dealer(target, peer_key));
  impl_->dealers.insert_or_assign(connection, std::move(fresh));
  impl_->poke();
  return {};
}

void ZmqTransport::disconnect(const std::string& connection) {
  const std::lock_guard lock(impl_->mutex);
  impl_->dealers.erase(connection);
  impl_->poke();  // a receive() that waits now watches a descriptor that is gone
}

Status ZmqTransport::Impl::send_to_peer(const std::string& name, const std::string& routing_id,
                                        std::string_view frame) {
  if (!listener.socket) return fail(ErrorCode::kUnavailable, "there is no connection {}", name);
  if (options.keys) {
    const auto key = peer_keys.find(routing_id);
    if (key == peer_keys.end() || access.list()->find(key->second) == nullptr) {
      return fail(ErrorCode::kUnavailable, "there is no connection {} with an allowed key", name);
    }
  }
  if (zmq_send(listener.socket.handle(), routing_id.data(), routing_id.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
    const int error = zmq_errno();
    if (error == EHOSTUNREACH) peer_keys.erase(routing_id);
    return fail(ErrorCode::kUnavailable, "cannot send on {}: {}", name,
                error == EAGAIN ? "its queue is full" : "the peer is gone");
  }
  // The peer was checked with the routing id; the body of a message that has begun is always taken.
  if (zmq_send(listener.socket.handle(), frame.data(), frame.size(), ZMQ_DONTWAIT) < 0) {
    return fail(ErrorCode::kUnavailable, "cannot send on {}: {}", name, zmq_strerror(zmq_errno()));
  }
  return {};
}

Status ZmqTransport::send(const std::string& connection, std::string_view frame) {
  if (frame.size() > kMaxFrameBytes) {
    impl_->oversized.fetch_add(1, std::memory_order_relaxed);
    return fail(ErrorCode::kInvalidArgument, "a frame of {} bytes for {} is over the limit of {}", frame.size(),
                connection, kMaxFrameBytes);
  }
  const std::lock_guard lock(impl_->mutex);
  if (const auto routing_id = from_hex(connection)) {
    auto sent = impl_->send_to_peer(connection, *routing_id, frame);
    if (impl_->listener.socket) impl_->poke_if_readable(impl_->listener);
    return sent;
  }
  const auto dealer = impl_->dealers.find(connection);
  if (dealer == impl_->dealers.end()) {
    return fail(ErrorCode::kUnavailable, "there is no connection '{}'", connection);
  }
  const bool sent = zmq_send(dealer->second.socket.handle(), frame.data(), frame.size(), ZMQ_DONTWAIT) >= 0;
  const int error = sent ? 0 : zmq_errno();
  impl_->poke_if_readable(dealer->second);
  if (!sent) {
    return fail(ErrorCode::kUnavailable, "cannot send to {} at {}: {}", connection, dealer->second.endpoint,
                error == EAGAIN ? "its queue is full" : zmq_strerror(error));
  }
  return {};
}

void ZmqTransport::Impl::poke() const {
  const std::uint64_t one = 1;
  // Fails only when the counter is at its limit, and then the descriptor is readable anyway.
  [[maybe_unused]] const auto wrote = ::write(wake_fd, &one, sizeof one);
}

void ZmqTransport::wake() {
  impl_->woken.store(true);
  impl_->poke();
}

Transport::Drops ZmqTransport::drops() const {
  const std::lock_guard lock(impl_->mutex);
  Drops drops;
  drops.authentication = impl_->refused_frames.load(std::memory_order_relaxed) +
                         impl_->handshake_failures.load(std::memory_order_relaxed) +
                         (impl_->zap ? impl_->zap->refused() : 0);
  drops.oversized = impl_->oversized.load(std::memory_order_relaxed);
  drops.malformed = impl_->malformed.load(std::memory_order_relaxed);
  return drops;
}

void ZmqTransport::set_allow_list(AllowList list) { impl_->access.set_list(std::move(list)); }

}  // namespace weightbus::transport
