// Control messages over ZeroMQ: one ROUTER for every endpoint that is bound, one DEALER for each connection.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "weightbus/transport/keys.h"
#include "weightbus/transport/transport.h"

namespace weightbus::transport {

struct ZmqOptions {
  // With keys every listener is a CURVE server that admits the keys in `allow`, and connections may name a peer key.
  // Without, sockets are plain and loopback only.
  std::optional<KeyPair> keys;
  AllowList allow;
  int queue_frames = 512;  // a connection's send queue, and its receive queue
  // How long a connection may be down without libzmq trying again before it is made anew: libzmq gives up for good on
  // a peer that does not speak its protocol, which may be a stranger on a port that is ours again later.
  base::Duration recover_after = base::Millis(2000);
};

// A Received of the listener names its connection "#" + the hexadecimal routing id; a peer that reconnects is a new
// connection. `Received::identity` is what the allow-list says of the sender's key at that moment: frames of a key that
// was removed are dropped, and nothing is sent to it. On a connection made by connect() it is there only if the list
// holds the pinned key; the pinned key itself authenticates the peer.
// What was queued for a peer that is down is sent when it comes back, except after a recovery (above).
class ZmqTransport final : public Transport {
 public:
  // kResourceExhausted when the process is out of descriptors or threads.
  static base::Result<std::unique_ptr<ZmqTransport>> create(ZmqOptions options);
  // Waits up to 1 s for queued frames to leave.
  ~ZmqTransport() override;

  base::Result<std::string> bind(const std::string& endpoint) override;
  base::Status connect(const std::string& connection, const std::string& endpoint,
                       const std::string& peer_key) override;
  void disconnect(const std::string& connection) override;
  base::Status send(const std::string& connection, std::string_view frame) override;
  std::optional<Received> receive(base::Duration timeout) override;
  void wake() override;
  Drops drops() const override;

  // Takes effect at once, for open connections too. From any thread.
  void set_allow_list(AllowList list);

 private:
  struct Connection;
  struct Impl;
  explicit ZmqTransport(ZmqOptions options);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightbus::transport
