// A slot's bytes as a dense run, piece by piece, whatever strides it lies with in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "weightbus/base/result.h"
#include "weightbus/device/device.h"
#include "weightbus/model/manifest.h"
#include "weightbus/plan/plan.h"

namespace weightbus::checkpoint {

// A part of a slot's box made of whole rows of its outermost dimension: `bytes` from `offset` of the dense run.
struct SlotPiece {
  model::Box box;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Calls `use` for each piece in order, each of about `piece_bytes` (one row at least), until it fails. The slot must
// have passed validate() and not be empty.
base::Status for_each_piece(const model::Slot& slot, std::uint32_t element_bytes, std::uint64_t piece_bytes,
                            const std::function<base::Status(const SlotPiece&)>& use);

// Whether the slot's bytes lie back to back in row-major order.
bool is_dense(const model::Slot& slot) noexcept;

// The piece's first byte in the slot's region.
std::uint64_t piece_offset(const model::Slot& slot, const SlotPiece& piece, std::uint32_t element_bytes) noexcept;

// Copies a piece out of the region into `dense`, and back.
void gather(const model::Slot& slot, const SlotPiece& piece, std::uint32_t element_bytes, const std::byte* region,
            std::byte* dense) noexcept;
void scatter(const model::Slot& slot, const SlotPiece& piece, std::uint32_t element_bytes, const std::byte* dense,
             std::byte* region) noexcept;

// Digests pieces of one slot at element grain; the sum over all pieces is the slot's digest. Borrows both.
class SlotDigester {
 public:
  SlotDigester(const model::TensorSpec& spec, const model::Slot& slot) noexcept;
  // A piece as it lies in the slot's region, and one that was packed.
  plan::Digest in_region(const SlotPiece& piece, const std::byte* region) const noexcept;
  plan::Digest packed(const SlotPiece& piece, const std::byte* dense) const noexcept;
  const model::TensorSpec& spec() const noexcept { return spec_; }
  std::uint32_t element_bytes() const noexcept { return element_; }

 private:
  const model::TensorSpec& spec_;
  const model::Slot& slot_;
  std::uint32_t element_;
  std::uint64_t seed_;
};

// Large enough for the disk, small enough to be cancelled promptly.
inline constexpr std::uint64_t kPieceBytes = 4ULL << 20;

// kAborted when cancelled; `what` is "the load".
base::Status check_cancelled(const device::Control& control, const char* what, model::WeightVersion version);
// kInvalidArgument when not each region of the manifest was given.
base::Status check_region_count(const model::SinkManifest& manifest, std::size_t count);

}  // namespace weightbus::checkpoint
