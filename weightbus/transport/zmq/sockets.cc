#include <unistd.h>

#include "weightbus/transport/zmq/impl.h"

namespace weightbus::transport {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::Status;

namespace {

constexpr int kHeartbeatIntervalMs = 1000;
constexpr int kHeartbeatTimeoutMs = 3000;
// Also how often a member whose key is not allowed (yet) tries again: libzmq leaves it waiting until then.
constexpr int kHandshakeTimeoutMs = 5000;
constexpr int kConnectTimeoutMs = 3000;
constexpr int kLingerMs = 1000;
constexpr int kReconnectMinMs = 50;
constexpr int kReconnectMaxMs = 2000;
// libzmq's limit counts the envelope that CURVE puts around a frame (33 bytes); frames are measured again when
// received.
constexpr std::size_t kCurveOverheadBytes = 64;
// ZMQ_ZAP_ENFORCE_DOMAIN: zmq.h shows it to users of its draft interface only, and the library knows it always.
constexpr int kZapEnforceDomain = 93;
constexpr int kMonitoredEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CONNECT_DELAYED | ZMQ_EVENT_CONNECT_RETRIED |
                                 ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;

void set_common_options(ZmqSocket& socket, int queue_frames) {
  socket.set(ZMQ_HEARTBEAT_IVL, kHeartbeatIntervalMs);
  socket.set(ZMQ_HEARTBEAT_TTL, kHeartbeatTimeoutMs);
  socket.set(ZMQ_HEARTBEAT_TIMEOUT, kHeartbeatTimeoutMs);
  socket.set(ZMQ_HANDSHAKE_IVL, kHandshakeTimeoutMs);
  socket.set(ZMQ_CONNECT_TIMEOUT, kConnectTimeoutMs);
  socket.set(ZMQ_RECONNECT_IVL, kReconnectMinMs);
  socket.set(ZMQ_RECONNECT_IVL_MAX, kReconnectMaxMs);
  socket.set(ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(kMaxFrameBytes + kCurveOverheadBytes));
  socket.set(ZMQ_LINGER, kLingerMs);
  socket.set(ZMQ_SNDHWM, queue_frames);
  socket.set(ZMQ_RCVHWM, queue_frames);
  socket.set(ZMQ_IPV6, 1);
}

}  // namespace

ZmqTransport::Impl::~Impl() {
  listener.close();
  dealers.clear();
  zap.reset();  // after the sockets that ask it
  if (context != nullptr) {
    while (zmq_ctx_term(context) != 0 && zmq_errno() == EINTR) {
    }
  }
  if (wake_fd >= 0) ::close(wake_fd);
}

bool ZmqTransport::Impl::open_monitor(Connection& connection) {
  const auto address = fmt::format("inproc://monitor-{}", ++monitors_made);
  if (zmq_socket_monitor(connection.socket.handle(), address.c_str(), kMonitoredEvents) != 0) return false;
  connection.monitor = ZmqSocket(context, ZMQ_PAIR);
  if (!connection.monitor) return false;
  connection.monitor.set(ZMQ_LINGER, 0);
  // Unbounded, since libzmq's I/O thread would wait for room. Events are few, and receive() reads them all.
  connection.monitor.set(ZMQ_RCVHWM, 0);
  return zmq_connect(connection.monitor.handle(), address.c_str()) == 0;
}

Status ZmqTransport::Impl::open_listener() {
  if (listener.socket) return {};
  if (!zap) zap = std::make_unique<ZapHandler>(context, access);
  Connection fresh;
  fresh.socket = ZmqSocket(context, ZMQ_ROUTER);
  if (!fresh.socket) {
    return fail(ErrorCode::kResourceExhausted, "cannot make a listening socket: {}", zmq_strerror(zmq_errno()));
  }
  set_common_options(fresh.socket, options.queue_frames);
  fresh.socket.set(ZMQ_ROUTER_MANDATORY, 1);
  // A domain on plain sockets too: libzmq then refuses the old protocol revisions, which have no handshake and would
  // take random bytes for frames.
  fresh.socket.set(ZMQ_ZAP_DOMAIN, std::string(kZapDomain));
  fresh.socket.set(kZapEnforceDomain, 1);
  if (options.keys) {
    fresh.socket.set(ZMQ_CURVE_SERVER, 1);
    fresh.socket.set(ZMQ_CURVE_SECRETKEY, options.keys->secret_key);
  }
  if (!open_monitor(fresh)) {
    return fail(ErrorCode::kResourceExhausted, "cannot watch a listening socket: {}", zmq_strerror(zmq_errno()));
  }
  listener = std::move(fresh);
  return {};
}

Result<ZmqTransport::Connection> ZmqTransport::Impl::open_dealer(const std::string& endpoint,
                                                                 const std::string& peer_key) {
  Connection fresh;
  fresh.endpoint = endpoint;
  fresh.peer_key = peer_key;
  fresh.socket = ZmqSocket(context, ZMQ_DEALER);
  if (!fresh.socket) {
    return fail(ErrorCode::kResourceExhausted, "cannot make a socket for {}: {}", endpoint, zmq_strerror(zmq_errno()));
  }
  set_common_options(fresh.socket, options.queue_frames);
  if (!peer_key.empty()) {
    fresh.socket.set(ZMQ_CURVE_SERVERKEY, peer_key);
    fresh.socket.set(ZMQ_CURVE_PUBLICKEY, options.keys->public_key);
    fresh.socket.set(ZMQ_CURVE_SECRETKEY, options.keys->secret_key);
  }
  if (!open_monitor(fresh)) {
    return fail(ErrorCode::kResourceExhausted, "cannot watch {}: {}", endpoint, zmq_strerror(zmq_errno()));
  }
  if (zmq_connect(fresh.socket.handle(), endpoint.c_str()) != 0) {
    return fail(ErrorCode::kInvalidArgument, "cannot connect to {}: {}", endpoint, zmq_strerror(zmq_errno()));
  }
  return fresh;
}

void ZmqTransport::Impl::recover_connections(SteadyClock::time_point now) {
  for (auto& [name, connection] : dealers) {
    if (!connection.rebuild_at || *connection.rebuild_at > now) continue;
    auto fresh = open_dealer(connection.endpoint, connection.peer_key);
    if (fresh) {
      connection = std::move(*fresh);
    } else {
      connection.rebuild_at = now + options.recover_after;  // out of sockets: again later
    }
  }
}

}  // namespace weightbus::transport
