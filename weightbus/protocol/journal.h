// What the coordinator journals. Replaying all records in order gives its durable state (protocol/coordinator_state.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "weightbus/model/ids.h"
#include "weightbus/protocol/status.h"
#include "weightbus/protocol/types.h"

namespace weightbus::protocol {

// Numbers up to these may have been used: after a restart, counting goes on above them. Written ahead in blocks, so
// that only the decision waits for the disk.
struct NumbersReserved {
  model::ModelName model;
  model::WeightVersion versions_to;
  model::UpdateId updates_to;
  friend bool operator==(const NumbersReserved&, const NumbersReserved&) = default;
};

// One engine that a decision commits.
struct DecidedEngine {
  model::EngineName engine;
  std::vector<RankTag> ranks;  // the driver first
  friend bool operator==(const DecidedEngine&, const DecidedEngine&) = default;
};

// The commit point: every required engine has staged and verified. One for each update id, ever.
struct Decided {
  model::ModelName model;
  model::UpdateId update;
  UpdateKind kind;
  std::optional<model::WeightVersion> base;
  model::WeightVersion target;
  std::vector<DecidedEngine> engines;
  // A push: the version's second digest, by tensor name, and its size. Empty otherwise.
  std::vector<std::pair<std::string, plan::Digest>> digests;
  std::uint64_t bytes = 0;
  std::uint64_t step = 0;
  std::uint64_t unix_ms = 0;
  std::string source;
  friend bool operator==(const Decided&, const Decided&) = default;
};

// The end of an update, committed or aborted, as history shows it.
struct Ended {
  model::ModelName model;
  UpdateStatus status;
  friend bool operator==(const Ended&, const Ended&) = default;
};

struct Pinned {
  model::ModelName model;
  model::WeightVersion version;
  bool pinned = false;
  friend bool operator==(const Pinned&, const Pinned&) = default;
};

// Members of another journal were taken over; numbers go on above these.
struct Adopted {
  model::ModelName model;
  model::WeightVersion versions_to;
  model::UpdateId updates_to;
  std::uint64_t epoch = 0;
  friend bool operator==(const Adopted&, const Adopted&) = default;
};

// Members of this name are refused until they are started anew.
struct Evicted {
  model::ModelName model;
  model::MemberId member;
  model::BootId boot;
  friend bool operator==(const Evicted&, const Evicted&) = default;
};

using JournalRecord = std::variant<NumbersReserved, Decided, Ended, Pinned, Adopted, Evicted>;

// Written into every record; a journal with a newer one is refused, not guessed at.
inline constexpr std::uint32_t kJournalRevision = 1;

}  // namespace weightbus::protocol
