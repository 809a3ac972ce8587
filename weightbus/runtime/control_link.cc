#include "weightbus/runtime/control_link.h"

#include <algorithm>

#include "weightbus/wire/codec.h"

namespace weightbus::runtime {
namespace {
constexpr std::size_t kPeersMax = 4096;  // connections whose incomplete messages are kept
}

void ControlLink::route(const model::MemberId& member, const std::string& connection) {
  routes_.insert_or_assign(member, connection);
}

const std::string* ControlLink::connection_of(const model::MemberId& member) const {
  const auto it = routes_.find(member);
  return it == routes_.end() ? nullptr : &it->second;
}

bool ControlLink::send(const protocol::Envelope& envelope) {
  const std::string* connection = connection_of(envelope.to);
  if (!connection) {
    ++counters_.unroutable;
    return false;
  }
  for (const auto& frame : wire::to_frames(wire::encode(envelope), ++stream_)) {
    if (auto sent = transport_.send(*connection, frame); !sent) {
      ++counters_.queue_full;
      counters_.last_error = sent.error().message;
      return false;
    }
  }
  return true;
}

ControlLink::Peer& ControlLink::peer(const std::string& connection) {
  if (peers_.size() >= kPeersMax && !peers_.contains(connection)) {
    const auto oldest = std::min_element(peers_.begin(), peers_.end(), [](const auto& a, const auto& b) {
      return a.second.last_used < b.second.last_used;
    });
    peers_.erase(oldest);
  }
  Peer& peer = peers_[connection];
  peer.last_used = ++uses_;
  return peer;
}

std::optional<Incoming> ControlLink::receive(base::Duration timeout) {
  auto received = transport_.receive(timeout);
  if (!received) return std::nullopt;
  auto message = peer(received->connection).reassembler.add(std::move(received->frame));
  if (!message) {
    ++counters_.malformed;
    counters_.last_error = message.error().message;
    return std::nullopt;
  }
  if (!*message) return std::nullopt;
  auto envelope = wire::decode(**message);
  if (!envelope) {
    ++(envelope.error().code == base::ErrorCode::kUnsupported ? counters_.unsupported : counters_.malformed);
    counters_.last_error = envelope.error().message;
    return std::nullopt;
  }
  return Incoming{std::move(*envelope), std::move(received->connection), std::move(received->identity)};
}

}  // namespace weightbus::runtime
