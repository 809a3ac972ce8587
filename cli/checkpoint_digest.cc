#include "cli/checkpoint_digest.h"

#include <algorithm>

#include "weightbus/plan/digest.h"

namespace weightbus::cli {
namespace {

constexpr std::uint64_t kPieceBytes = 8ULL << 20;

}  // namespace

CheckpointDigests::CheckpointDigests(const checkpoint::CheckpointFolder& folder) : folder_(folder) {
  for (const auto& alias : folder.aliases())
    aliases_.emplace(alias.name, alias.target);
}

std::optional<std::size_t> CheckpointDigests::find(std::string_view name) const {
  if (const auto index = folder_.find(name)) return index;
  const auto alias = aliases_.find(name);
  return alias == aliases_.end() ? std::nullopt : folder_.find(alias->second);
}

base::Result<plan::Digest> CheckpointDigests::of(std::size_t tensor, const model::TensorSpec& spec,
                                                 const model::Box& box) {
  const std::pair key{spec.name, box};
  if (const auto it = known_.find(key); it != known_.end()) return it->second;
  if (!model::fits(box, spec.shape)) {
    return base::fail(base::ErrorCode::kCorrupted, "{}: an engine names the box {}, which is no part of shape {}",
                      spec.name, model::to_string(box), model::to_string(spec.shape));
  }
  WB_ASSIGN(const auto digest, compute(tensor, spec, box));
  known_.emplace(key, digest);
  return digest;
}

// Reads whole rows of dimension 0, which lie together in the file, and digests the box's part of them.
base::Result<plan::Digest> CheckpointDigests::compute(std::size_t tensor, const model::TensorSpec& spec,
                                                      const model::Box& box) const {
  const auto& file = folder_.file_of(tensor);
  const auto& entry = folder_.entry_of(tensor);
  const std::uint32_t element = model::dtype_size(spec.dtype);
  const std::uint64_t seed = plan::digest_seed(spec.name, spec.shape, spec.dtype, element);
  const model::Dims strides = model::dense_strides(spec.shape);
  plan::Digest sum{};
  if (box.empty()) return sum;
  const bool scalar = spec.shape.size() == 0;
  const std::uint64_t row_bytes = (scalar ? 1 : static_cast<std::uint64_t>(strides[0])) * element;
  const std::int64_t rows = scalar ? 1 : box.extent[0];
  const std::int64_t first = scalar ? 0 : box.offset[0];
  const auto step =
      static_cast<std::int64_t>(std::max<std::uint64_t>(1, kPieceBytes / std::max<std::uint64_t>(1, row_bytes)));
  std::uint64_t inner = 0;  // from a row's beginning to the box's part of it
  for (std::size_t i = 1; i < box.offset.size(); ++i)
    inner += static_cast<std::uint64_t>(box.offset[i] * strides[i]) * element;
  std::vector<std::byte> buffer;
  for (std::int64_t row = 0; row < rows; row += step) {
    model::Box piece = box;
    const std::int64_t count = std::min(step, rows - row);
    if (!scalar) {
      piece.offset[0] = first + row;
      piece.extent[0] = count;
    }
    buffer.resize(static_cast<std::uint64_t>(count) * row_bytes);
    WB_TRY(file.read(entry, static_cast<std::uint64_t>(first + row) * row_bytes, buffer));
    const plan::Digest part =
        plan::digest_box(buffer.data() + inner, strides, element, piece, spec.shape, seed, element);
    sum = sum + part;
  }
  return sum;
}

}  // namespace weightbus::cli
