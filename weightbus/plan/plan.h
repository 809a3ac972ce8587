// The reshard plan: which byte of which source goes where, computed once and replayed for every update.
//
// plan() is a pure function of the manifests. It is stored per class of ranks with equal boxes (one set of fragments
// for all sinks that need the same box from the same distinct shards), so that its size follows the layout and not
// ranks squared; source_part() and sink_part() expand one member's share with addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weightbus/base/hash.h"
#include "weightbus/base/result.h"
#include "weightbus/model/ids.h"
#include "weightbus/model/manifest.h"

namespace weightbus::plan {

inline constexpr std::uint64_t kDefaultBucketBytes = 512ULL << 20;

struct PlanOptions {
  std::uint64_t bucket_bytes = kDefaultBucketBytes;  // largest payload of a bucket; a larger fragment is split
};

// One rank on either side. `manifest` is borrowed for the duration of plan() and must have passed validate().
struct PlanSource {
  model::MemberId id;
  model::HostId host;
  std::string device_uuid;
  const model::SourceManifest* manifest;
};
struct PlanSink {
  model::MemberId id;
  model::HostId host;
  std::string device_uuid;
  const model::SinkManifest* manifest;
};

// A tensor as it travels: one for each (name, cast) that is planned.
struct PlannedTensor {
  std::string name;  // canonical: the alias target for tied tensors
  model::DType source_dtype;
  model::DType dtype;  // after the cast
  model::Cast cast = model::Cast::kNone;
  model::Dims shape;
  std::uint32_t grain_bytes;  // digest grain, 1..16, divides every box boundary of this tensor (after the cast)
  friend bool operator==(const PlannedTensor&, const PlannedTensor&) = default;
};

// A planned copy: the intersection of a shard and a slot, both addresses resolved. Strides of both placements have the
// tensor's rank; `from` is addressed in source_dtype elements, `to` in dtype elements.
struct Fragment {
  std::uint32_t tensor;  // index into the part's `tensors`
  model::Box box;
  model::Placement from;
  model::Placement to;
  std::uint32_t slot;  // index into the sink manifest's `slots`
  friend bool operator==(const Fragment&, const Fragment&) = default;
};

// The unit of sending, acknowledging and retrying: fragments of one (source, sink) pair, in an order both ends know.
struct Bucket {
  std::uint32_t index;  // counts 0, 1, ... within its (source, sink) pair
  model::MemberId source;
  model::MemberId sink;
  std::uint64_t bytes;  // payload after casts; the fragments packed densely, row-major, back to back
  std::vector<Fragment> fragments;
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

// A box whose digest its source reports. Units are shared by all sinks that receive the same box from that source.
struct DigestUnit {
  std::uint32_t tensor;  // index into the part's `tensors`
  model::Box box;
  model::Placement from;
  bool primary;  // exactly one primary unit covers each planned element of (name, no cast or else first cast)
  friend bool operator==(const DigestUnit&, const DigestUnit&) = default;
};

// What one source member is told. Its digests are reported in the order of `units`.
struct SourcePart {
  base::Hash128 plan_hash;
  std::vector<PlannedTensor> tensors;
  std::vector<DigestUnit> units;
  std::vector<Bucket> buckets;  // by sink, then index
  base::Hash128 hash() const;
  friend bool operator==(const SourcePart&, const SourcePart&) = default;
};

// What one sink member is told. Its digests are reported in the order of `slots`.
struct SinkSlot {
  std::uint32_t slot;    // index into the sink manifest's `slots`; only raw slots that are not empty appear
  std::uint32_t tensor;  // index into the part's `tensors`
  friend bool operator==(const SinkSlot&, const SinkSlot&) = default;
};
struct SinkPart {
  base::Hash128 plan_hash;
  std::vector<PlannedTensor> tensors;
  std::vector<SinkSlot> slots;
  std::vector<Bucket> buckets;  // by source, then index
  std::uint64_t bytes = 0;      // sum over buckets
  base::Hash128 hash() const;
  friend bool operator==(const SinkPart&, const SinkPart&) = default;
};

// A digest (plan/digest.h): sums add over any partition of a box.
struct Digest {
  std::uint64_t lane0 = 0;
  std::uint64_t lane1 = 0;
  friend Digest operator+(Digest a, Digest b) noexcept { return {a.lane0 + b.lane0, a.lane1 + b.lane1}; }
  friend bool operator==(const Digest&, const Digest&) = default;
};

// A slot whose content is not what its sources sent.
struct Mismatch {
  model::MemberId sink;
  std::string tensor;
  model::Box box;
};

// One row of `weightbus plan`: bytes that go from one member to another.
struct Link {
  std::uint32_t source;
  std::uint32_t sink;
  std::uint64_t bytes;
  std::uint32_t buckets;
};

// The plan. Immutable after plan(); all members may be called from any thread.
class ReshardPlan {
 public:
  virtual ~ReshardPlan() = default;
  virtual base::Hash128 hash() const = 0;
  virtual std::uint64_t bytes() const = 0;  // that move, over all sinks
  virtual std::uint64_t bucket_bytes() const = 0;
  virtual std::size_t source_count() const = 0;
  virtual std::size_t sink_count() const = 0;
  virtual SourcePart source_part(std::size_t source) const = 0;
  virtual SinkPart sink_part(std::size_t sink) const = 0;
  virtual std::vector<Link> links() const = 0;
  // Compares every raw slot of the given sink with the sum of the digests of the units planned into it.
  // `unit_digests[s]` belongs to source s, in the order of source_part(s).units; `slot_digests` in the order of
  // sink_part(sink).slots. kInvalidArgument when a vector has the wrong length.
  virtual base::Result<std::vector<Mismatch>> compare(const std::vector<std::vector<Digest>>& unit_digests,
                                                      std::size_t sink, std::span<const Digest> slot_digests) const = 0;
  // Per tensor name, the sum over its primary units of element-grain digests (given as above): the version's second
  // digest, equal for equal content however it was cut. Sorted by name.
  virtual base::Result<std::vector<std::pair<std::string, Digest>>> version_digest(
      const std::vector<std::vector<Digest>>& element_digests) const = 0;
};

// Plans. Errors (kInvalidArgument) name the first tensor or member that is wrong: a name that matches nothing on either
// side and is not ignored, a differing dtype without a cast, a differing shape, a slot not covered, shards that
// disagree.
base::Result<std::shared_ptr<const ReshardPlan>> plan(std::span<const PlanSource> sources,
                                                      std::span<const PlanSink> sinks, const PlanOptions& options);

}  // namespace weightbus::plan
