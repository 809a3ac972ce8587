// Envelopes over a Transport: encoding, chunks, and which connection leads to which member.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "weightbus/protocol/messages.h"
#include "weightbus/transport/transport.h"
#include "weightbus/wire/chunks.h"

namespace weightbus::runtime {

struct Incoming {
  protocol::Envelope envelope;
  std::string connection;
  std::optional<transport::Received::Identity> identity;
};

// Used by the loop's thread only. `transport` is borrowed.
class ControlLink {
 public:
  explicit ControlLink(transport::Transport& transport) : transport_(transport) {}

  // Messages to `member` go over `connection` from now on.
  void route(const model::MemberId& member, const std::string& connection);
  // The connection that messages to `member` take, if any.
  const std::string* connection_of(const model::MemberId& member) const;
  // False (and counted) when there is no way to that member now; the state machines repeat what matters.
  bool send(const protocol::Envelope& envelope);

  // The next message, or nullopt at the timeout, after wake(), or when a frame was dropped or is not the last of its
  // message. Malformed frames are counted and dropped.
  std::optional<Incoming> receive(base::Duration timeout);

  struct Counters {
    std::uint64_t malformed = 0;
    std::uint64_t unsupported = 0;
    std::uint64_t unroutable = 0;
    std::uint64_t queue_full = 0;
    std::string last_error;
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Peer {
    wire::Reassembler reassembler;
    std::uint64_t last_used = 0;
  };
  Peer& peer(const std::string& connection);

  transport::Transport& transport_;
  std::map<model::MemberId, std::string> routes_;
  std::map<std::string, Peer> peers_;
  std::uint64_t uses_ = 0;
  std::uint64_t stream_ = 0;
  Counters counters_;
};

}  // namespace weightbus::runtime
