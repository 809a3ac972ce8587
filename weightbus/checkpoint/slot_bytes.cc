#include "weightbus/checkpoint/slot_bytes.h"

#include <algorithm>
#include <cstring>

#include "weightbus/plan/digest.h"

namespace weightbus::checkpoint {
namespace {

// Calls use(memory offset, dense offset, bytes) for each contiguous run of the piece.
template <class Use>
void for_each_run(const model::Slot& slot, const SlotPiece& piece, std::uint32_t element_bytes,
                  const Use& use) noexcept {
  const auto& extent = piece.box.extent;
  const auto& strides = slot.at.strides;
  // Inner dimensions that lie densely make one run.
  std::size_t outer = extent.size();
  std::int64_t run = 1;
  while (outer > 0 && (strides[outer - 1] == run || extent[outer - 1] == 1))
    run *= extent[--outer];
  const auto run_bytes = static_cast<std::uint64_t>(run) * element_bytes;
  const auto begin = piece_offset(slot, piece, element_bytes);
  auto index = model::Dims::filled(outer, 0);
  std::uint64_t dense = 0;
  while (true) {
    std::uint64_t at = begin;
    for (std::size_t d = 0; d < outer; ++d)
      at += static_cast<std::uint64_t>(index[d] * strides[d]) * element_bytes;
    use(at, dense, run_bytes);
    dense += run_bytes;
    std::size_t d = outer;
    while (d > 0 && ++index[d - 1] == extent[d - 1])
      index[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace

base::Status for_each_piece(const model::Slot& slot, std::uint32_t element_bytes, std::uint64_t piece_bytes,
                            const std::function<base::Status(const SlotPiece&)>& use) {
  std::size_t dim = 0;
  while (dim < slot.box.rank() && slot.box.extent[dim] == 1)
    ++dim;
  const auto total = slot.box.volume() * element_bytes;
  if (dim == slot.box.rank()) return use({slot.box, 0, total});
  const auto rows = static_cast<std::uint64_t>(slot.box.extent[dim]);
  const auto row_bytes = total / rows;
  const auto step = std::max<std::uint64_t>(1, piece_bytes / row_bytes);
  for (std::uint64_t row = 0; row < rows; row += step) {
    const auto count = std::min(step, rows - row);
    SlotPiece piece{slot.box, row * row_bytes, count * row_bytes};
    piece.box.offset[dim] += static_cast<std::int64_t>(row);
    piece.box.extent[dim] = static_cast<std::int64_t>(count);
    WB_TRY(use(piece));
  }
  return {};
}

bool is_dense(const model::Slot& slot) noexcept {
  std::int64_t run = 1;
  for (std::size_t d = slot.box.rank(); d-- > 0;) {
    if (slot.box.extent[d] != 1 && slot.at.strides[d] != run) return false;
    run *= slot.box.extent[d];
  }
  return true;
}

std::uint64_t piece_offset(const model::Slot& slot, const SlotPiece& piece, std::uint32_t element_bytes) noexcept {
  std::uint64_t elements = 0;
  for (std::size_t d = 0; d < slot.box.rank(); ++d) {
    elements += static_cast<std::uint64_t>((piece.box.offset[d] - slot.box.offset[d]) * slot.at.strides[d]);
  }
  return slot.at.offset + elements * element_bytes;
}

void gather(const model::Slot& slot, const SlotPiece& piece, std::uint32_t element_bytes, const std::byte* region,
            std::byte* dense) noexcept {
  for_each_run(slot, piece, element_bytes, [&](std::uint64_t at, std::uint64_t to, std::uint64_t bytes) {
    std::memcpy(dense + to, region + at, bytes);
  });
}

void scatter(const model::Slot& slot, const SlotPiece& piece, std::uint32_t element_bytes, const std::byte* dense,
             std::byte* region) noexcept {
  for_each_run(slot, piece, element_bytes, [&](std::uint64_t at, std::uint64_t from, std::uint64_t bytes) {
    std::memcpy(region + at, dense + from, bytes);
  });
}

SlotDigester::SlotDigester(const model::TensorSpec& spec, const model::Slot& slot) noexcept
    : spec_(spec),
      slot_(slot),
      element_(model::dtype_size(spec.dtype)),
      seed_(plan::digest_seed(spec.name, spec.shape, spec.dtype, element_)) {}

plan::Digest SlotDigester::in_region(const SlotPiece& piece, const std::byte* region) const noexcept {
  return plan::digest_box(region + piece_offset(slot_, piece, element_), slot_.at.strides, element_, piece.box,
                          spec_.shape, seed_, element_);
}

plan::Digest SlotDigester::packed(const SlotPiece& piece, const std::byte* dense) const noexcept {
  return plan::digest_box(dense, model::dense_strides(piece.box.extent), element_, piece.box, spec_.shape, seed_,
                          element_);
}

base::Status check_cancelled(const device::Control& control, const char* what, model::WeightVersion version) {
  if (!control.cancelled.load(std::memory_order_relaxed)) return {};
  return base::fail(base::ErrorCode::kAborted, "{} of version {} was cancelled", what, version.value());
}

base::Status check_region_count(const model::SinkManifest& manifest, std::size_t count) {
  if (manifest.region_bytes.size() == count) return {};
  return base::fail(base::ErrorCode::kInvalidArgument, "{} regions were given for a manifest of {}", count,
                    manifest.region_bytes.size());
}

}  // namespace weightbus::checkpoint
