#include "weightbus/checkpoint/shard_loader.h"

#include <algorithm>

#include "weightbus/base/assert.h"
#include "weightbus/base/checked_math.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;

// Small enough to be cancelled promptly and to move a progress bar.
constexpr std::uint64_t kReadBytes = 8ULL << 20;

// Where the rows of a shard lie in their tensor, in bytes.
struct ByteRange {
  std::uint64_t begin;
  std::uint64_t bytes;
};

base::Result<ByteRange> row_range(const model::TensorSpec& spec, const model::Shard& shard,
                                  std::uint64_t region_bytes) {
  const auto reject = [&spec](const char* why) {
    return base::fail(ErrorCode::kInvalidArgument, "shard of {}: {}", spec.name, why);
  };
  if (!model::fits(shard.box, spec.shape)) return reject("its box is not inside the tensor");
  const auto volume = model::checked_volume(shard.box.extent);
  const auto bytes = tensor_bytes({spec.name, spec.dtype, shard.box.extent});
  if (!volume || !bytes || !tensor_bytes(spec)) return reject("its size overflows");
  if (*volume == 0) return ByteRange{0, 0};
  for (std::size_t i = 1; i < spec.shape.size(); ++i) {
    if (shard.box.extent[i] != spec.shape[i]) return reject("it is not made of whole rows");
  }
  if (shard.at.region != 0 || shard.at.strides != model::dense_strides(shard.box.extent)) {
    return reject("it does not lie densely in region 0");
  }
  const auto end = base::checked_add(shard.at.offset, *bytes);
  if (!end || *end > region_bytes) return reject("it does not lie inside its region");
  if (spec.shape.size() == 0) return ByteRange{0, *bytes};
  const auto row_bytes = *bytes / static_cast<std::uint64_t>(shard.box.extent[0]);
  return ByteRange{row_bytes * static_cast<std::uint64_t>(shard.box.offset[0]), *bytes};
}

base::Status read_range(const SafetensorsFile& file, const TensorEntry& entry, ByteRange range, std::byte* to,
                        device::Control& control) {
  for (std::uint64_t done = 0; done < range.bytes;) {
    if (control.cancelled.load(std::memory_order_relaxed)) {
      return base::fail(ErrorCode::kAborted, "reading {} was cancelled", file.path());
    }
    const auto step = std::min(range.bytes - done, kReadBytes);
    WB_TRY(file.read(entry, range.begin + done, {to + done, step}));
    done += step;
    control.bytes_done.fetch_add(step, std::memory_order_relaxed);
  }
  return {};
}

}  // namespace

std::optional<model::Box> row_shard(const model::TensorSpec& spec, model::TrainerRank rank, std::uint32_t world) {
  WB_ASSERT(rank.value() < world, "a rank is below its world");
  auto box = model::Box::whole(spec.shape);
  if (spec.shape.size() == 0) return rank.value() == 0 ? std::optional(box) : std::nullopt;
  const std::uint64_t rows = static_cast<std::uint64_t>(spec.shape[0]);
  const std::uint64_t chunk = rows / world + (rows % world != 0 ? 1 : 0);
  // chunk <= rows, and past the last chunk there is nothing: no product below can overflow.
  const std::uint64_t chunks = chunk == 0 ? 0 : rows / chunk + (rows % chunk != 0 ? 1 : 0);
  const std::uint64_t begin = rank.value() < chunks ? rank.value() * chunk : rows;
  box.offset[0] = static_cast<std::int64_t>(begin);
  box.extent[0] = static_cast<std::int64_t>(std::min(chunk, rows - begin));
  return box;
}

base::Result<model::SourceManifest> plan_rows(const CheckpointFolder& folder, model::TrainerRank rank,
                                              std::uint32_t world) {
  if (rank.value() >= world) {
    return base::fail(ErrorCode::kInvalidArgument, "trainer_rank {} of {} ranks does not exist: they count from 0",
                      rank.value(), world);
  }
  model::SourceManifest manifest;
  manifest.tensors = folder.tensors();
  manifest.aliases = folder.aliases();
  std::uint64_t end = 0;
  for (std::uint32_t index = 0; index < manifest.tensors.size(); ++index) {
    const auto& spec = manifest.tensors[index];
    const auto box = row_shard(spec, rank, world);
    if (!box) continue;
    manifest.shards.push_back({index, *box, {0, end, model::dense_strides(box->extent)}});
    // The folder is open, so that its sizes have been checked, and 64 more bytes a tensor cannot make them overflow.
    end = *base::checked_round_up<std::uint64_t>(end + box->volume() * model::dtype_size(spec.dtype), kShardAlignment);
  }
  manifest.region_bytes = {std::max(end, kShardAlignment)};
  return manifest;
}

base::Status load_rows(const CheckpointFolder& folder, const model::SourceManifest& manifest, std::byte* region,
                       device::Control& control) {
  if (manifest.region_bytes.size() != 1) {
    return base::fail(ErrorCode::kInvalidArgument, "a checkpoint is read into one region, not {}",
                      manifest.region_bytes.size());
  }
  for (const auto& shard : manifest.shards) {
    if (shard.tensor >= manifest.tensors.size()) {
      return base::fail(ErrorCode::kInvalidArgument, "a shard names tensor {} of {}", shard.tensor,
                        manifest.tensors.size());
    }
    const auto& spec = manifest.tensors[shard.tensor];
    const auto tensor = folder.find(spec.name);
    if (!tensor) return base::fail(ErrorCode::kInvalidArgument, "{} holds no tensor {}", folder.directory(), spec.name);
    const auto& entry = folder.entry_of(*tensor);
    if (entry.spec != spec) {
      return base::fail(ErrorCode::kInvalidArgument, "tensor {} is {} {} in {}, but {} {} was planned", spec.name,
                        model::dtype_name(entry.spec.dtype), model::to_string(entry.spec.shape),
                        folder.file_of(*tensor).path(), model::dtype_name(spec.dtype), model::to_string(spec.shape));
    }
    WB_ASSIGN(const auto range, row_range(spec, shard, manifest.region_bytes[0]));
    WB_TRY(read_range(folder.file_of(*tensor), entry, range, region + shard.at.offset, control));
  }
  return folder.check_unmodified();
}

}  // namespace weightbus::checkpoint
