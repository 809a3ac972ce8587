// A model of a few hundred bytes: its contents, how trainers and engines cut it, and real copies of real bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "weightbus/model/manifest.h"
#include "weightbus/plan/plan.h"

namespace weightbus::simulation {

using Bytes = std::vector<std::byte>;

// Copies `extent` elements of `element` bytes between two strided places (strides in elements).
void copy_box(const std::byte* from, const model::Dims& from_strides, std::byte* to, const model::Dims& to_strides,
              const model::Dims& extent, std::size_t element);

class ToyModel {
 public:
  // Rank `rank` of `world` trainer ranks: rows, unevenly; what is not split lies on rank 0.
  static model::SourceManifest source_manifest(std::uint32_t rank, std::uint32_t world);
  // Rank `rank` of an engine of `world`: rows, columns, a fused parameter, replicated tensors.
  static model::SinkManifest sink_manifest(std::uint32_t rank, std::uint32_t world);

  // What a rank holds of content number `content`. The reference lasts as long as the model.
  const Bytes& source_bytes(std::uint64_t content, std::uint32_t rank, std::uint32_t world);
  const Bytes& sink_bytes(std::uint64_t content, std::uint32_t rank, std::uint32_t world);

  // Digests as an agent takes them: of a source's units, and of a sink's slots.
  static std::vector<plan::Digest> unit_digests(const plan::SourcePart& part, const std::byte* region);
  static std::vector<plan::Digest> slot_digests(const plan::SinkPart& part, const model::SinkManifest& manifest,
                                                const std::byte* region);

 private:
  using Key = std::pair<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>>;
  std::map<Key, Bytes> sources_;
  std::map<Key, Bytes> sinks_;
};

}  // namespace weightbus::simulation
