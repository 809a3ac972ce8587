// The oracle of the planning tests: members with real bytes, copies made as a plan says, and direct slicing to compare
// with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weightbus/model/manifest.h"
#include "weightbus/plan/digest.h"
#include "weightbus/plan/plan.h"

namespace weightbus::testing {

template <class Manifest>
struct Rank {
  std::string id;
  std::string host;
  Manifest manifest;
  std::vector<std::vector<std::byte>> regions;
};
using SourceRank = Rank<model::SourceManifest>;
using SinkRank = Rank<model::SinkManifest>;

struct Fleet {
  std::vector<SourceRank> sources;
  std::vector<SinkRank> sinks;
  std::map<std::string, std::string> content;  // aliases whose content is that of another name
  std::vector<plan::PlanSource> plan_sources() const;
  std::vector<plan::PlanSink> plan_sinks() const;
};

// Adds a tensor to a manifest unless it is there; returns its index.
std::uint32_t tensor_index(std::vector<model::TensorSpec>& tensors, const std::string& name, model::DType dtype,
                           const model::Dims& shape);
// Adds a dense shard (or slot) in a region of its own. `transposed` reverses the order of the dimensions in memory;
// `pad` leaves so many elements unused after each innermost row.
void add_shard(SourceRank& rank, const std::string& name, model::DType dtype, const model::Dims& shape,
               const model::Box& box, bool transposed = false, std::int64_t pad = 0);
void add_slot(SinkRank& rank, const std::string& name, model::DType dtype, const model::Dims& shape,
              const model::Box& box, model::Cast cast = model::Cast::kNone, bool transposed = false,
              std::int64_t pad = 0);

// Gives every element of the sources a value that depends on its tensor and index, and the sinks' memory 0xee.
void fill(Fleet& fleet);

// Fills, plans, checks the parts of both ends against each other, copies, and compares memory and digests with direct
// slicing; then damages a byte and expects it to be found. Returns "" or what is wrong first.
// Of casts it knows bf16_to_f32 and f32_to_bf16 (values are chosen so that both are exact).
std::string check_plan(Fleet& fleet, std::uint64_t bucket_bytes);

}  // namespace weightbus::testing
