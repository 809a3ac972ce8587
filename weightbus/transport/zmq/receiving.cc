#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "weightbus/transport/zmq/impl.h"

namespace weightbus::transport {

namespace {

constexpr std::size_t kKnownPeersMax = 65536;
constexpr base::Duration kWaitMax = std::chrono::hours(1);

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

}  // namespace

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

}  // namespace weightbus::transport
