// Control messages between processes: frames to and from named members. It knows nothing of what a frame means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"
#include "weightbus/model/ids.h"
#include "weightbus/model/roster.h"

namespace weightbus::transport {

inline constexpr std::size_t kMaxFrameBytes = 4U << 20;

// A frame that arrived. `connection` names the connection for reply(); `identity` is what authentication says of the
// sender: empty on plain loopback sockets.
struct Received {
  std::string connection;
  struct Identity {
    std::string key;         // the Z85 public key
    model::MemberId member;  // the name the allow-list binds it to ("*" for any name of its role)
    model::Role role;
  };
  std::optional<Identity> identity;
  std::string frame;
};

// One per process. send/reply/wake may be called from any thread; receive from one thread at a time.
// Frames are delivered whole or not at all, possibly late, twice never; loss shows as silence.
class Transport {
 public:
  virtual ~Transport() = default;
  // Listens. `endpoint` is "tcp://host:port" (port 0 or * picks one; the socket is held from then on) or "ipc://path".
  // Returns the endpoint as bound. Refuses a plain (keyless) socket off loopback.
  virtual base::Result<std::string> bind(const std::string& endpoint) = 0;
  // Opens (or keeps) a connection, reconnecting for ever with bounded back-off. `peer_key` is the listener's Z85 public
  // key, empty on loopback without keys. Connecting again with another endpoint replaces the old one.
  virtual base::Status connect(const std::string& connection, const std::string& endpoint,
                               const std::string& peer_key) = 0;
  virtual void disconnect(const std::string& connection) = 0;
  // Queues a frame on a connection: one made by connect(), or one that a Received named. kUnavailable when it is gone
  // or its queue is full (nothing blocks); kInvalidArgument over kMaxFrameBytes.
  virtual base::Status send(const std::string& connection, std::string_view frame) = 0;
  // The next frame, or nullopt at the timeout or after wake().
  virtual std::optional<Received> receive(base::Duration timeout) = 0;
  virtual void wake() = 0;
  // Frames and connections dropped so far, by reason, for metrics.
  struct Drops {
    std::uint64_t authentication = 0;  // handshakes refused, and frames of keys that are not allowed (any more)
    std::uint64_t oversized = 0;       // refused by send(), or received (far larger ones end the connection)
    std::uint64_t malformed = 0;       // more than one part
  };
  virtual Drops drops() const = 0;
};

}  // namespace weightbus::transport
