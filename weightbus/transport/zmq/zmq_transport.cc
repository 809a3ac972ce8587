#include "weightbus/transport/zmq/zmq_transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "weightbus/transport/endpoint.h"
#include "weightbus/transport/zmq/socket.h"
#include "weightbus/transport/zmq/zap.h"

namespace weightbus::transport {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::Status;
using SteadyClock = std::chrono::steady_clock;

namespace {

constexpr int kHeartbeatIntervalMs = 1000;
constexpr int kHeartbeatTimeoutMs = 3000;
constexpr int kHandshakeTimeoutMs = 10000;
constexpr int kConnectTimeoutMs = 3000;
constexpr int kLingerMs = 1000;
constexpr int kReconnectMinMs = 50;
constexpr int kReconnectMaxMs = 2000;
// libzmq's limit counts the envelope that CURVE puts around a frame (33 bytes); frames are measured again when
// received.
constexpr std::size_t kCurveOverheadBytes = 64;
// ZMQ_ZAP_ENFORCE_DOMAIN: zmq.h shows it to users of its draft interface only, and the library knows it always.
constexpr int kZapEnforceDomain = 93;
constexpr std::size_t kKnownPeersMax = 65536;
constexpr base::Duration kWaitMax = std::chrono::hours(1);
constexpr int kMonitoredEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CONNECT_DELAYED | ZMQ_EVENT_CONNECT_RETRIED |
                                 ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "#";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15U];
  }
  return text;
}

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

// A socket with the monitor that tells what becomes of its connections.
struct ZmqTransport::Connection {
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

  Status open_listener();
  Result<Connection> open_dealer(const std::string& endpoint, const std::string& peer_key);
  bool open_monitor(Connection& connection);
  Status send_to_peer(const std::string& name, const std::string& routing_id, std::string_view frame);
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

ZmqTransport::Impl::~Impl() {
  listener.socket.close();
  listener.monitor.close();
  dealers.clear();
  zap.reset();  // after the sockets that ask it
  if (context != nullptr) {
    while (zmq_ctx_term(context) != 0 && zmq_errno() == EINTR) {
    }
  }
  if (wake_fd >= 0) ::close(wake_fd);
}

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

bool ZmqTransport::Impl::open_monitor(Connection& connection) {
  const auto address = fmt::format("inproc://monitor-{}", ++monitors_made);
  if (zmq_socket_monitor(connection.socket.handle(), address.c_str(), kMonitoredEvents) != 0) return false;
  connection.monitor = ZmqSocket(context, ZMQ_PAIR);
  if (!connection.monitor) return false;
  connection.monitor.set(ZMQ_LINGER, 0);
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

std::optional<Received::Identity> ZmqTransport::Impl::identify(const std::string& key) const {
  const auto list = access.list();
  const auto* entry = list->find(key);
  if (entry == nullptr) return std::nullopt;
  return Received::Identity{entry->key, entry->member, entry->role};
}

bool ZmqTransport::Impl::is_whole_frame(ZmqSocket& socket, const ZmqMessage& body) {
  if (body.more()) {
    drain_parts(socket, true);
    malformed.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  if (body.size() <= kMaxFrameBytes) return true;
  oversized.fetch_add(1, std::memory_order_relaxed);
  return false;
}

std::optional<Received> ZmqTransport::Impl::take_from_listener() {
  while (listener.socket) {
    ZmqMessage routing_id;
    ZmqMessage body;
    if (!routing_id.receive(listener.socket)) return std::nullopt;
    if (!routing_id.more() || !body.receive(listener.socket)) continue;
    if (!is_whole_frame(listener.socket, body)) continue;
    Received received;
    auto id = routing_id.text();
    if (options.keys) {
      auto key = body.user_id();
      received.identity = identify(key);
      if (!received.identity) {
        refused_frames.fetch_add(1, std::memory_order_relaxed);
        continue;
      }
      // Forgotten peers are only mute until their next frame.
      if (peer_keys.size() >= kKnownPeersMax) peer_keys.clear();
      peer_keys.insert_or_assign(id, std::move(key));
    }
    received.connection = to_hex(id);
    received.frame = body.text();
    return received;
  }
  return std::nullopt;
}

std::optional<Received> ZmqTransport::Impl::take_from_dealer(const std::string& name, Connection& connection) {
  while (true) {
    ZmqMessage body;
    if (!body.receive(connection.socket)) return std::nullopt;
    if (!is_whole_frame(connection.socket, body)) continue;
    return Received{name, connection.peer_key.empty() ? std::nullopt : identify(connection.peer_key), body.text()};
  }
}

// Monitors first: they are few and small. Then one frame, taking turns between the listener and the dealers.
std::optional<Received> ZmqTransport::Impl::take_next() {
  if (listener.monitor) read_monitor(listener, true);
  for (auto& [name, connection] : dealers)
    read_monitor(connection, false);
  recover_connections(SteadyClock::now());

  auto next = dealers.upper_bound(last_served);
  for (std::size_t turn = 0; turn <= dealers.size(); ++turn) {
    if (next == dealers.end()) {
      next = dealers.begin();
      last_served.clear();
      if (auto received = take_from_listener()) return received;
      continue;
    }
    last_served = next->first;
    if (auto received = take_from_dealer(next->first, next->second)) return received;
    ++next;
  }
  return std::nullopt;
}

void ZmqTransport::Impl::read_monitor(Connection& connection, bool is_listener) {
  while (true) {
    ZmqMessage header;
    if (!header.receive(connection.monitor)) return;
    drain_parts(connection.monitor, header.more());
    const auto bytes = header.text();
    std::uint16_t event = 0;
    if (bytes.size() < sizeof event) continue;
    std::memcpy(&event, bytes.data(), sizeof event);
    if (is_listener) {
      // Keys that are not allowed are counted by the ZAP handler; this is everything that did not get so far.
      if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) handshake_failures.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    const bool lost = event == ZMQ_EVENT_DISCONNECTED || event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL ||
                      event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH || event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
    if (lost) {
      connection.rebuild_at = SteadyClock::now() + options.recover_after;
    } else {
      connection.rebuild_at.reset();
    }
  }
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

std::vector<pollfd> ZmqTransport::Impl::descriptors(SteadyClock::time_point& until) {
  std::vector<pollfd> result{{wake_fd, POLLIN, 0}};
  const auto add = [&](const Connection& connection) {
    result.push_back({connection.socket.get(ZMQ_FD), POLLIN, 0});
    result.push_back({connection.monitor.get(ZMQ_FD), POLLIN, 0});
    if (connection.rebuild_at) until = std::min(until, *connection.rebuild_at);
  };
  if (listener.socket) add(listener);
  for (const auto& [name, connection] : dealers)
    add(connection);
  return result;
}

std::optional<Received> ZmqTransport::receive(base::Duration timeout) {
  const auto deadline = SteadyClock::now() + std::clamp<base::Duration>(timeout, base::Duration::zero(), kWaitMax);
  while (true) {
    if (impl_->woken.exchange(false)) return std::nullopt;
    auto until = deadline;
    std::vector<pollfd> watched;
    {
      const std::lock_guard lock(impl_->mutex);
      if (auto received = impl_->take_next()) return received;
      watched = impl_->descriptors(until);
    }
    const auto now = SteadyClock::now();
    if (now >= deadline) return std::nullopt;
    const auto wait = std::chrono::nanoseconds(std::max(until - now, SteadyClock::duration::zero()));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
    const timespec limit{seconds.count(), (wait - seconds).count()};
    if (::ppoll(watched.data(), watched.size(), &limit, nullptr) > 0 && watched[0].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(impl_->wake_fd, &count, sizeof count);
    }
  }
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
