#include "tests/simulation/toy_model.h"

#include <cstring>

#include "weightbus/base/prng.h"
#include "weightbus/plan/digest.h"

namespace weightbus::simulation {
namespace {

using model::Box;
using model::Dims;
using model::DType;

const std::vector<model::TensorSpec>& specs() {
  static const std::vector<model::TensorSpec> all = {
      {"embed", DType::kBF16, {10, 4}}, {"q", DType::kF32, {4, 6}}, {"k", DType::kF32, {2, 6}},
      {"down", DType::kBF16, {6, 8}},   {"norm", DType::kF32, {6}}, {"scale", DType::kF32, {}},
  };
  return all;
}

// Part `rank` of `world` of `box` along dimension `d`; the first parts are the smaller ones.
Box cut(const Dims& shape, std::size_t d, std::uint32_t rank, std::uint32_t world) {
  Box box = Box::whole(shape);
  const std::int64_t begin = shape[d] * rank / world;
  box.offset[d] = begin;
  box.extent[d] = shape[d] * (rank + 1) / world - begin;
  return box;
}

// Which dimension an engine splits: embed, q and k by rows, down by columns, the others not at all.
std::optional<std::size_t> engine_split(std::uint32_t tensor) {
  if (tensor <= 2) return 0;
  if (tensor == 3) return 1;
  return std::nullopt;
}

Bytes fill(std::uint64_t content, const std::vector<std::pair<std::uint32_t, std::pair<Box, model::Placement>>>& pieces,
           std::uint64_t bytes) {
  Bytes region(bytes);
  for (const auto& [tensor, piece] : pieces) {
    const auto& spec = specs()[tensor];
    const auto size = model::dtype_size(spec.dtype);
    const Dims strides = model::dense_strides(spec.shape);
    Bytes whole((Box::whole(spec.shape).volume() * size + 7) / 8 * 8);
    for (std::size_t at = 0; at < whole.size(); at += 8) {
      const std::uint64_t word = base::splitmix64(content * 1'000'003 + tensor * 4'099 + at);
      std::memcpy(whole.data() + at, &word, 8);
    }
    std::int64_t first = 0;
    for (std::size_t d = 0; d < spec.shape.size(); ++d)
      first += piece.first.offset[d] * strides[d];
    copy_box(whole.data() + first * size, strides, region.data() + piece.second.offset, piece.second.strides,
             piece.first.extent, size);
  }
  return region;
}

}  // namespace

void copy_box(const std::byte* from, const Dims& from_strides, std::byte* to, const Dims& to_strides,
              const Dims& extent, std::size_t element) {
  std::array<std::int64_t, model::kMaxDims> at{};
  for (auto count : extent) {
    if (count == 0) return;
  }
  for (;;) {
    std::int64_t source = 0;
    std::int64_t target = 0;
    for (std::size_t d = 0; d < extent.size(); ++d) {
      source += at[d] * from_strides[d];
      target += at[d] * to_strides[d];
    }
    std::memcpy(to + target * static_cast<std::int64_t>(element), from + source * static_cast<std::int64_t>(element),
                element);
    std::size_t d = extent.size();
    while (d > 0 && ++at[d - 1] == extent[d - 1])
      at[--d] = 0;
    if (d == 0) return;
  }
}

model::SourceManifest ToyModel::source_manifest(std::uint32_t rank, std::uint32_t world) {
  model::SourceManifest manifest;
  manifest.tensors = specs();
  std::uint64_t offset = 0;
  for (std::uint32_t t = 0; t < specs().size(); ++t) {
    const auto& spec = specs()[t];
    if (t >= 4 && rank > 0) continue;
    const Box box = t < 4 ? cut(spec.shape, 0, rank, world) : Box::whole(spec.shape);
    manifest.shards.push_back({t, box, {0, offset, model::dense_strides(box.extent)}});
    offset += box.volume() * model::dtype_size(spec.dtype);
  }
  manifest.region_bytes = {offset};
  return manifest;
}

model::SinkManifest ToyModel::sink_manifest(std::uint32_t rank, std::uint32_t world) {
  model::SinkManifest manifest;
  manifest.tensors = specs();
  std::uint64_t offset = 0;
  for (std::uint32_t t = 0; t < specs().size(); ++t) {
    const auto& spec = specs()[t];
    const auto split = engine_split(t);
    const Box box = split ? cut(spec.shape, *split, rank, world) : Box::whole(spec.shape);
    model::Slot slot;
    slot.tensor = t;
    slot.box = box;
    slot.at = {0, offset, model::dense_strides(box.extent)};
    slot.parameter = t == 1 || t == 2 ? "qk" : spec.name;
    manifest.slots.push_back(std::move(slot));
    offset += box.volume() * model::dtype_size(spec.dtype);
  }
  manifest.region_bytes = {offset};
  return manifest;
}

const Bytes& ToyModel::source_bytes(std::uint64_t content, std::uint32_t rank, std::uint32_t world) {
  auto [it, is_new] = sources_.try_emplace({content, {rank, world}});
  if (is_new) {
    const auto manifest = source_manifest(rank, world);
    std::vector<std::pair<std::uint32_t, std::pair<Box, model::Placement>>> pieces;
    for (const auto& shard : manifest.shards)
      pieces.push_back({shard.tensor, {shard.box, shard.at}});
    it->second = fill(content, pieces, manifest.region_bytes[0]);
  }
  return it->second;
}

const Bytes& ToyModel::sink_bytes(std::uint64_t content, std::uint32_t rank, std::uint32_t world) {
  auto [it, is_new] = sinks_.try_emplace({content, {rank, world}});
  if (is_new) {
    const auto manifest = sink_manifest(rank, world);
    std::vector<std::pair<std::uint32_t, std::pair<Box, model::Placement>>> pieces;
    for (const auto& slot : manifest.slots)
      pieces.push_back({slot.tensor, {slot.box, slot.at}});
    it->second = fill(content, pieces, manifest.region_bytes[0]);
  }
  return it->second;
}

namespace {
plan::Digest digest(const plan::PlannedTensor& tensor, const std::byte* data, const Dims& strides, const Box& box) {
  const auto seed = plan::digest_seed(tensor.name, tensor.shape, tensor.dtype, tensor.grain_bytes);
  return plan::digest_box(data, strides, model::dtype_size(tensor.dtype), box, tensor.shape, seed, tensor.grain_bytes);
}
}  // namespace

std::vector<plan::Digest> ToyModel::unit_digests(const plan::SourcePart& part, const std::byte* region) {
  std::vector<plan::Digest> digests;
  for (const auto& unit : part.units) {
    digests.push_back(digest(part.tensors[unit.tensor], region + unit.from.offset, unit.from.strides, unit.box));
  }
  return digests;
}

std::vector<plan::Digest> ToyModel::slot_digests(const plan::SinkPart& part, const model::SinkManifest& manifest,
                                                 const std::byte* region) {
  std::vector<plan::Digest> digests;
  for (const auto& entry : part.slots) {
    const auto& slot = manifest.slots[entry.slot];
    digests.push_back(digest(part.tensors[entry.tensor], region + slot.at.offset, slot.at.strides, slot.box));
  }
  return digests;
}

}  // namespace weightbus::simulation
