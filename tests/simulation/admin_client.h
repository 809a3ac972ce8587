// Command lines: requests at random, each repeated until it is answered or given up.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/simulation/world.h"

namespace weightbus::simulation {

class AdminClient {
 public:
  explicit AdminClient(World& world) : world_(world) {}
  void random_request();
  std::uint64_t push(std::uint32_t require, bool queue);  // returns the content number
  void receive(const protocol::Envelope& message);
  bool answered(std::uint64_t request) const { return answered_.contains(request); }
  // The newest push: its request, and its version once accepted.
  std::uint64_t last_request() const { return requests_; }
  std::optional<model::WeightVersion> accepted(std::uint64_t request) const;

 private:
  void request(protocol::Body body);
  void send(std::uint64_t request, protocol::Body body, int tries);

  World& world_;
  std::uint64_t requests_ = 0;
  std::uint64_t contents_ = 0;
  std::set<std::uint64_t> answered_;
  std::map<std::uint64_t, model::WeightVersion> accepted_;
  std::vector<model::WeightVersion> versions_;
};

}  // namespace weightbus::simulation
