// What `weightbus status`, `members`, `versions` and `watch` show: one report of one model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/model/ids.h"
#include "weightbus/protocol/types.h"

namespace weightbus::protocol {

struct PhaseTime {
  Phase phase;
  std::uint64_t duration_ns = 0;  // spent in it so far
  friend bool operator==(const PhaseTime&, const PhaseTime&) = default;
};

struct EngineResult {
  std::string engine;
  bool required = true;
  bool instant = false;  // its shadow held the target: no transfer
  bool committed = false;
  std::uint64_t bytes_total = 0;  // over its ranks
  std::uint64_t bytes_done = 0;
  std::uint64_t pause_ns = 0;
  std::string channels;  // "shm", or "shm,tcp"
  std::string way;       // "remap"
  std::string error;
  friend bool operator==(const EngineResult&, const EngineResult&) = default;
};

// What `weightbus plan` adds.
struct PlanLink {
  model::MemberId source;
  model::MemberId sink;
  std::string channel;
  std::uint64_t bytes = 0;
  std::uint32_t buckets = 0;
  friend bool operator==(const PlanLink&, const PlanLink&) = default;
};
struct PlanReport {
  base::Hash128 hash;
  std::uint64_t bytes = 0;
  std::uint64_t tensors = 0;
  std::uint64_t arena_bytes = 0;  // both halves, all ranks
  std::vector<PlanLink> links;
  std::vector<std::string> warnings;
  friend bool operator==(const PlanReport&, const PlanReport&) = default;
};

struct UpdateStatus {
  model::UpdateId update;
  UpdateKind kind;
  Phase phase;
  std::optional<model::WeightVersion> base;  // committed before it
  model::WeightVersion target;
  std::uint64_t started_unix_ms = 0;
  std::uint64_t step = 0;
  std::string source;  // "checkpoint /data/x", "snapshot of 3"
  std::vector<PhaseTime> phases;
  std::uint64_t bytes_total = 0;
  std::uint64_t bytes_done = 0;
  std::uint64_t digests_compared = 0;
  bool instant = false;  // no engine needed a transfer
  std::vector<EngineResult> engines;
  std::optional<base::Error> error;
  std::optional<PlanReport> plan;
  friend bool operator==(const UpdateStatus&, const UpdateStatus&) = default;
};

struct VersionStatus {
  model::WeightVersion version;
  bool committed = false;  // now
  bool available = false;  // someone holds it
  bool pinned = false;
  std::uint64_t bytes = 0;
  std::uint64_t created_unix_ms = 0;
  std::uint64_t step = 0;
  std::string source;
  std::vector<std::string> holders;  // "engine-0/tp0 live", "engine-0/tp0 shadow", "engine-0/tp0 snapshot"
  std::string rollback_cost;         // "instant", "transfer", "unavailable", "live"
  friend bool operator==(const VersionStatus&, const VersionStatus&) = default;
};

struct MemberStatus {
  model::Member member;
  bool connected = false;
  bool quarantined = false;
  std::uint64_t heartbeat_age_ms = 0;
  std::uint64_t readers = 0;
  std::optional<Tag> live;
  std::optional<Tag> shadow;
  std::string software;
  friend bool operator==(const MemberStatus&, const MemberStatus&) = default;
};

struct Event {
  std::uint64_t sequence = 0;
  std::uint64_t unix_ms = 0;
  std::string text;
  friend bool operator==(const Event&, const Event&) = default;
};

struct ModelStatus {
  model::ModelName model;
  model::Epoch epoch;
  bool needs_adopt = false;
  std::optional<model::WeightVersion> committed;
  std::optional<UpdateStatus> running;
  std::vector<UpdateStatus> recent;  // newest first, at most 32
  std::vector<VersionStatus> versions;
  std::vector<MemberStatus> members;
  std::vector<Event> events;  // the last 64
  friend bool operator==(const ModelStatus&, const ModelStatus&) = default;
};

}  // namespace weightbus::protocol
