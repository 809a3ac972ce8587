// Control messages between transports of one process, for tests: the contract of Transport without sockets.
#pragma once

#include <memory>
#include <optional>

#include "weightbus/transport/transport.h"

namespace weightbus::transport {

// The "network" that its transports share. Thread safe; may be destroyed before the transports it made.
class LocalHub {
 public:
  explicit LocalHub(std::size_t queue_frames = 512);
  ~LocalHub();
  // What the new transport sends is received with `identity`, as if its key had been checked.
  std::unique_ptr<Transport> make(std::optional<Received::Identity> identity = std::nullopt);

 private:
  struct State;
  class Node;
  struct Link;
  std::shared_ptr<State> state_;
};

}  // namespace weightbus::transport
