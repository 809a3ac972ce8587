// Who takes part: what a member says of itself in Hello and what the coordinator freezes for an update.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weightbus/model/ids.h"

namespace weightbus::model {

// The numeric values are part of the wire protocol: append only.
enum class Role : std::uint8_t { kShardAgent = 1, kEngineAgent = 2, kAdmin = 3, kCoordinator = 4 };

struct Member {
  MemberId id;
  Role role;
  ModelName model;
  HostId host;              // equal where shared memory can be shared
  std::string device_uuid;  // empty for host memory
  std::uint32_t rank = 0;   // trainer_rank of a shard agent, tp_rank of an engine agent
  std::uint32_t world = 1;  // how many ranks of that kind belong together
  std::string engine;       // engine agents: the engine's name; empty otherwise
  std::string endpoint;     // engine agents: where the ranks of the engine reach this one for driver messages
  std::string public_key;   // CURVE public key (Z85), empty on loopback without keys
  friend bool operator==(const Member&, const Member&) = default;

  bool is_driver() const noexcept { return role == Role::kEngineAgent && rank == 0; }
};

}  // namespace weightbus::model
