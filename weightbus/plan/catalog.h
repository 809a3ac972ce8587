// Which tensors are planned, and which shards and slots belong to each: names matched, aliases resolved, dtypes and
// shapes compared. Knows nothing of boxes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/plan/plan.h"

namespace weightbus::plan {

struct ShardRef {
  std::uint32_t source;
  const model::Shard* shard;
};
struct SlotRef {
  std::uint32_t sink;
  std::uint32_t slot;  // index into the sink manifest's slots
  const model::Slot* at;
};
struct CatalogTensor {
  PlannedTensor planned;             // without its grain
  bool primary;                      // of the casts of one name, the one that the version digest is made of
  std::span<const ShardRef> shards;  // not empty boxes, by source
  std::span<const SlotRef> slots;    // not empty boxes, by sink
};

// Spans point into the catalog's own vectors; it can be moved, not copied.
struct Catalog {
  Catalog() = default;
  Catalog(Catalog&&) = default;
  Catalog& operator=(Catalog&&) = default;
  std::vector<CatalogTensor> tensors;  // by (name, cast)
  std::vector<ShardRef> shards;
  std::vector<SlotRef> slots;
};

// Rules for aliases: names that any member declares to be one tensor form a class; its canonical name is the one that
// is nobody's alias (the first by spelling, should there be several). Of several names that sources hold, the canonical
// one's content is taken, else the first by spelling.
// kInvalidArgument names the tensor and the member.
base::Result<Catalog> make_catalog(std::span<const PlanSource> sources, std::span<const PlanSink> sinks);

}  // namespace weightbus::plan
