// A bucket's fragments as memory operations: dimensions that lie contiguously on both sides are joined, so that what
// remains is runs of bytes, and strided or converted elements where it cannot be otherwise.
//
// Positions are counted in the payload (the packed bucket, after casts). Work can be cut anywhere in it: an element
// belongs to the piece in which its first byte lies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/model/box.h"
#include "weightbus/model/dtype.h"
#include "weightbus/plan/plan.h"

namespace weightbus::device {

struct CopyOp {
  std::uint64_t payload;  // where it begins in the payload
  std::uint64_t elements;
  std::uint64_t from_offset;  // bytes into the region
  std::uint64_t to_offset;
  std::uint64_t from_span;  // bytes from the first to one past the last that it touches
  std::uint64_t to_span;
  std::uint32_t from_region;
  std::uint32_t to_region;
  std::uint32_t from_size;  // bytes of an element
  std::uint32_t to_size;
  std::size_t rank;  // of the joined dimensions; at least 1
  std::array<std::int64_t, model::kMaxDims> extent;
  std::array<std::int64_t, model::kMaxDims> from_stride;  // in bytes
  std::array<std::int64_t, model::kMaxDims> to_stride;
  model::Cast cast;

  std::uint64_t bytes() const noexcept { return elements * to_size; }  // of payload
  // One run of bytes on both sides, nothing converted.
  bool is_run() const noexcept {
    return cast == model::Cast::kNone && rank == 1 &&
           (extent[0] <= 1 || (from_stride[0] == from_size && to_stride[0] == to_size));
  }
};

// What lies on each side: both placements, or the packed bucket (region 0, from offset 0) instead of one of them.
enum class CopyKind { kDirect, kPack, kUnpack };

// The operations of a bucket in payload order, without empty ones. kInvalidArgument when the bucket is not consistent:
// an index out of range, a negative stride, sizes that overflow or do not add up to bucket.bytes. The sizes of regions
// are not known here; see check_regions.
base::Result<std::vector<CopyOp>> make_copy_ops(const plan::Bucket& bucket,
                                                std::span<const plan::PlannedTensor> tensors, CopyKind kind);

// Whether every byte that the operations read (write) lies in a region of these sizes. kInvalidArgument otherwise.
base::Status check_sources(std::span<const CopyOp> ops, std::span<const std::uint64_t> region_bytes);
base::Status check_region_count(std::span<const CopyOp> ops, std::size_t from_count, std::size_t to_count);

// One side of a copy: a pointer a region. `bias` is subtracted from every offset: the packed side of a piece that
// begins at payload position p is a buffer with bias p.
struct FromSide {
  std::span<const std::byte* const> regions;
  std::uint64_t bias = 0;
};
struct ToSide {
  std::span<std::byte* const> regions;
  std::uint64_t bias = 0;
  bool stream = false;  // write past the caches
};

// Index of the operation that holds payload position `position`; ops.size() past the end.
std::size_t find_op(std::span<const CopyOp> ops, std::uint64_t position) noexcept;

// Carries out the part [begin, end) of the payload.
void copy_piece(std::span<const CopyOp> ops, FromSide from, ToSide to, std::uint64_t begin, std::uint64_t end) noexcept;

inline constexpr std::uint64_t kCopyPieceBytes = 2U << 20;
// From this size on a copy writes past the caches: by the time anyone reads it, its beginning would have left them.
inline constexpr std::uint64_t kStreamBytes = 8U << 20;

// Carries out everything, piece by piece, on `threads` threads (this one among them). After each piece proceed(bytes)
// is called, from any of them; once it returns false no further piece begins. Returns whether all was done; when it
// returns, nothing is written any more.
bool copy_all(std::span<const CopyOp> ops, FromSide from, ToSide to, unsigned threads,
              const std::function<bool(std::uint64_t bytes)>& proceed);

}  // namespace weightbus::device
