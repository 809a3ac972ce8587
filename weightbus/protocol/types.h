// The values that messages, state machines and journal share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "weightbus/model/ids.h"
#include "weightbus/model/manifest.h"
#include "weightbus/model/roster.h"
#include "weightbus/plan/plan.h"

namespace weightbus::protocol {

inline constexpr std::uint32_t kProtocolRevision = 1;
// The coordinator's MemberId in every envelope.
inline const model::MemberId kCoordinator{"coordinator"};

// What a half holds: exchanged in only when it equals what Commit names.
struct Tag {
  model::WeightVersion version;
  model::Hash128 layout;   // of the sink manifest
  model::UpdateId update;  // that staged it
  friend bool operator==(const Tag&, const Tag&) = default;
};

// The half that one rank is to exchange in.
struct RankTag {
  model::MemberId rank;
  Tag tag;
  friend bool operator==(const RankTag&, const RankTag&) = default;
};

// One half of an arena. No tag: empty, or being written.
struct Half {
  std::optional<Tag> tag;
  bool verified = false;  // Staged was answered for it and the decision named it
  friend bool operator==(const Half&, const Half&) = default;
};

// The numeric values of the enums below are part of the wire protocol: append only.
enum class SessionRole : std::uint8_t { kSource = 1, kSink = 2 };
enum class CommitWay : std::uint8_t { kRemap = 1, kSwap = 2, kCopy = 3, kDirect = 4 };
enum class UpdateKind : std::uint8_t { kPush = 1, kRollback = 2, kCatchUp = 3 };
enum class Phase : std::uint8_t {
  kQueued = 1,
  kAnnounced = 2,
  kPlanned = 3,
  kAccepted = 4,
  kStaging = 5,
  kStaged = 6,
  kCommitting = 7,
  kCommitted = 8,
  kAborting = 9,
  kAborted = 10,
};
const char* phase_name(Phase phase) noexcept;            // "announced"
const char* update_kind_name(UpdateKind kind) noexcept;  // "push", "rollback", "catch_up"
const char* commit_way_name(CommitWay way) noexcept;     // "remap"

// Where the bytes of an update come from.
struct CheckpointSource {
  std::string directory;  // as the shard agents see it
  friend bool operator==(const CheckpointSource&, const CheckpointSource&) = default;
};
struct TrainerSource {  // the attached trainer's memory
  friend bool operator==(const TrainerSource&, const TrainerSource&) = default;
};
struct LiveSource {  // an engine agent's live half
  model::WeightVersion version;
  friend bool operator==(const LiveSource&, const LiveSource&) = default;
};
struct SnapshotSource {  // a snapshot on the agent's disk
  model::WeightVersion version;
  friend bool operator==(const SnapshotSource&, const SnapshotSource&) = default;
};
using SourceSpec = std::variant<CheckpointSource, TrainerSource, LiveSource, SnapshotSource>;

// How sinks reach a source over one channel (channel/channel.h); opaque to the protocol.
struct ChannelOffer {
  std::string channel;
  std::string descriptor;
  friend bool operator==(const ChannelOffer&, const ChannelOffer&) = default;
};

// What a sink is told of a source that it reads.
struct SourcePeer {
  model::MemberId member;
  model::HostId host;
  std::string device_uuid;
  std::vector<ChannelOffer> offers;
  friend bool operator==(const SourcePeer&, const SourcePeer&) = default;
};

// A snapshot that an agent holds.
struct HeldVersion {
  model::WeightVersion version;
  model::Hash128 layout;
  std::uint64_t bytes = 0;  // on its disk, of tensors first stored with this version
  friend bool operator==(const HeldVersion&, const HeldVersion&) = default;
};

struct StageTimes {
  std::uint64_t pull_ns = 0;
  std::uint64_t digest_ns = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const StageTimes&, const StageTimes&) = default;
};

// The element-grain digest of one live slot.
struct SlotDigest {
  model::TensorSpec tensor;
  model::Box box;
  plan::Digest digest;
  friend bool operator==(const SlotDigest&, const SlotDigest&) = default;
};
struct EngineDigests {
  model::MemberId member;
  std::string engine;
  std::optional<Tag> live;
  std::vector<SlotDigest> slots;
  friend bool operator==(const EngineDigests&, const EngineDigests&) = default;
};

}  // namespace weightbus::protocol
