// The checkpoint as a weight source: each trainer rank holds rows of every tensor, as FSDP2 would cut them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "weightbus/base/result.h"
#include "weightbus/checkpoint/checkpoint_folder.h"
#include "weightbus/device/device.h"
#include "weightbus/model/manifest.h"

namespace weightbus::checkpoint {

// Every shard begins at a multiple of this in its region.
inline constexpr std::uint64_t kShardAlignment = 64;

// The rows of dimension 0 that a rank holds: ceil(rows / world) each, so that the last ranks may hold fewer or none (an
// empty box). A tensor without dimensions belongs to rank 0; nullopt on the others. rank < world.
std::optional<model::Box> row_shard(const model::TensorSpec& spec, model::TrainerRank rank, std::uint32_t world);

// All tensors of the folder and this rank's rows, in one region, each shard aligned. The region is never empty, so that
// it can be allocated. kInvalidArgument when rank is not below world.
base::Result<model::SourceManifest> plan_rows(const CheckpointFolder& folder, model::TrainerRank rank,
                                              std::uint32_t world);

// Reads every shard of the manifest (of plan_rows, or any other whose shards are whole dense rows in region 0) into
// `region`, which has region_bytes[0] bytes. Adds to control.bytes_done; kAborted when cancelled. kInvalidArgument when
// the folder's tensors are not those of the manifest, kCorrupted when a file became shorter, kConflict when one was
// written to meanwhile. Nothing outside the shards' bytes is written; after an error their content is undefined.
base::Status load_rows(const CheckpointFolder& folder, const model::SourceManifest& manifest, std::byte* region,
                       device::Control& control);

}  // namespace weightbus::checkpoint
