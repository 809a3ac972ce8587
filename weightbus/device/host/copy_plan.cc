#include "weightbus/device/host/copy_plan.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>

#include "weightbus/base/assert.h"
#include "weightbus/base/checked_math.h"
#include "weightbus/device/host/cast.h"
#include "weightbus/device/host/stream_copy.h"

namespace weightbus::device {
namespace {

using base::checked_add;
using base::checked_mul;
using base::ErrorCode;
using base::fail;

// Strides in bytes; nullopt on a negative one, a wrong rank or overflow.
std::optional<model::Dims> byte_strides(const model::Dims& strides, std::size_t rank, std::uint32_t size) {
  if (strides.size() != rank) return std::nullopt;
  model::Dims bytes;
  for (const auto stride : strides) {
    const auto wide = checked_mul<std::int64_t>(stride, size);
    if (stride < 0 || !wide) return std::nullopt;
    bytes.push_back(*wide);
  }
  return bytes;
}

// Bytes from the first to one past the last element; nullopt on overflow. No extent is 0.
std::optional<std::uint64_t> span_of(const CopyOp& op, const std::array<std::int64_t, model::kMaxDims>& strides,
                                     std::uint32_t size) {
  std::uint64_t span = size;
  for (std::size_t i = 0; i < op.rank; ++i) {
    const auto step = checked_mul<std::uint64_t>(static_cast<std::uint64_t>(op.extent[i] - 1),
                                                 static_cast<std::uint64_t>(strides[i]));
    const auto sum = step ? checked_add<std::uint64_t>(span, *step) : std::nullopt;
    if (!sum) return std::nullopt;
    span = *sum;
  }
  return span;
}

// Joins the dimensions from the outermost in: one of extent 1 vanishes, and a pair that both sides lay out as one
// longer dimension becomes that.
void join_dims(CopyOp& op, const model::Dims& extent, const model::Dims& from, const model::Dims& to) {
  op.rank = 0;
  for (std::size_t i = 0; i < extent.size(); ++i) {
    if (extent[i] == 1) continue;
    if (op.rank > 0) {
      const std::size_t outer = op.rank - 1;
      std::int64_t from_whole = 0;
      std::int64_t to_whole = 0;
      if (!__builtin_mul_overflow(from[i], extent[i], &from_whole) && op.from_stride[outer] == from_whole &&
          !__builtin_mul_overflow(to[i], extent[i], &to_whole) && op.to_stride[outer] == to_whole) {
        op.extent[outer] *= extent[i];
        op.from_stride[outer] = from[i];
        op.to_stride[outer] = to[i];
        continue;
      }
    }
    op.extent[op.rank] = extent[i];
    op.from_stride[op.rank] = from[i];
    op.to_stride[op.rank] = to[i];
    ++op.rank;
  }
  if (op.rank == 0) {
    op.rank = 1;
    op.extent[0] = 1;
    op.from_stride[0] = op.from_size;
    op.to_stride[0] = op.to_size;
  }
}

// `payload` is where the fragment begins. nullopt: it is inconsistent.
std::optional<CopyOp> make_op(const plan::Fragment& fragment, const plan::PlannedTensor& tensor, CopyKind kind,
                              std::uint64_t payload) {
  CopyOp op{};
  const auto& extent = fragment.box.extent;
  const auto elements = model::checked_volume(extent);
  if (!elements || fragment.box.offset.size() != extent.size()) return std::nullopt;
  const bool pack = kind == CopyKind::kPack;
  const bool unpack = kind == CopyKind::kUnpack;
  op.payload = payload;
  op.elements = *elements;
  op.to_size = model::dtype_size(tensor.dtype);
  op.from_size = unpack ? op.to_size : model::dtype_size(tensor.source_dtype);
  op.cast = unpack ? model::Cast::kNone : tensor.cast;
  if (model::find_cast(tensor.source_dtype, tensor.dtype) != tensor.cast) return std::nullopt;
  if (!checked_mul<std::uint64_t>(op.elements, 8)) return std::nullopt;
  if (op.elements == 0) return op;
  op.from_region = unpack ? 0 : fragment.from.region;
  op.to_region = pack ? 0 : fragment.to.region;
  op.from_offset = unpack ? payload : fragment.from.offset;
  op.to_offset = pack ? payload : fragment.to.offset;
  const auto dense = model::dense_strides(extent);
  const auto from = byte_strides(unpack ? dense : fragment.from.strides, extent.size(), op.from_size);
  const auto to = byte_strides(pack ? dense : fragment.to.strides, extent.size(), op.to_size);
  if (!from || !to) return std::nullopt;
  join_dims(op, extent, *from, *to);
  const auto from_span = span_of(op, op.from_stride, op.from_size);
  const auto to_span = span_of(op, op.to_stride, op.to_size);
  if (!from_span || !checked_add(op.from_offset, *from_span)) return std::nullopt;
  if (!to_span || !checked_add(op.to_offset, *to_span)) return std::nullopt;
  op.from_span = *from_span;
  op.to_span = *to_span;
  return op;
}

constexpr std::size_t kStreamRunBytes = 1024;

template <class Word>
void copy_strided(const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride,
                  std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto step = static_cast<std::int64_t>(i);
    std::memcpy(to + step * to_stride, from + step * from_stride, sizeof(Word));
  }
}

// `count` elements along the innermost dimension.
void copy_row(const CopyOp& op, const std::byte* from, std::byte* to, std::uint64_t count, bool stream) noexcept {
  const auto from_stride = op.from_stride[op.rank - 1];
  const auto to_stride = op.to_stride[op.rank - 1];
  if (op.cast != model::Cast::kNone) return convert(op.cast, from, from_stride, to, to_stride, count);
  if ((from_stride == op.from_size && to_stride == op.to_size) || count == 1) {
    const std::size_t bytes = count * op.to_size;
    if (stream && bytes >= kStreamRunBytes) return stream_copy(to, from, bytes);
    std::memcpy(to, from, bytes);
    return;
  }
  switch (op.to_size) {
    case 1: return copy_strided<std::uint8_t>(from, from_stride, to, to_stride, count);
    case 2: return copy_strided<std::uint16_t>(from, from_stride, to, to_stride, count);
    case 4: return copy_strided<std::uint32_t>(from, from_stride, to, to_stride, count);
    case 8: return copy_strided<std::uint64_t>(from, from_stride, to, to_stride, count);
    default: WB_ASSERT(false, "elements are 1, 2, 4 or 8 bytes");
  }
}

// Elements [first, last) in row-major order. Addresses are computed as integers, since a biased base may lie outside of
// its buffer before the offset is added.
void copy_elements(const CopyOp& op, std::uintptr_t from, std::uintptr_t to, std::uint64_t first, std::uint64_t last,
                   bool stream) noexcept {
  const std::size_t inner = op.rank - 1;
  const auto row = static_cast<std::uint64_t>(op.extent[inner]);
  std::array<std::int64_t, model::kMaxDims> index{};
  std::uint64_t rest = first;
  for (std::size_t i = op.rank; i-- > 0;) {
    index[i] = static_cast<std::int64_t>(rest % static_cast<std::uint64_t>(op.extent[i]));
    rest /= static_cast<std::uint64_t>(op.extent[i]);
  }
  for (std::uint64_t at = first; at < last;) {
    const std::uint64_t count = std::min(row - static_cast<std::uint64_t>(index[inner]), last - at);
    std::uintptr_t source = from;
    std::uintptr_t target = to;
    for (std::size_t i = 0; i < op.rank; ++i) {
      source += static_cast<std::uintptr_t>(index[i] * op.from_stride[i]);
      target += static_cast<std::uintptr_t>(index[i] * op.to_stride[i]);
    }
    copy_row(op, reinterpret_cast<const std::byte*>(source), reinterpret_cast<std::byte*>(target), count, stream);
    at += count;
    index[inner] = 0;
    for (std::size_t i = inner; i-- > 0;) {
      if (++index[i] < op.extent[i]) break;
      index[i] = 0;
    }
  }
}

std::uint64_t first_element_at(const CopyOp& op, std::uint64_t position) noexcept {
  if (position <= op.payload) return 0;
  return std::min(op.elements, (position - op.payload + op.to_size - 1) / op.to_size);
}

}  // namespace

base::Result<std::vector<CopyOp>> make_copy_ops(const plan::Bucket& bucket,
                                                std::span<const plan::PlannedTensor> tensors, CopyKind kind) {
  std::vector<CopyOp> ops;
  ops.reserve(bucket.fragments.size());
  std::uint64_t payload = 0;
  for (const auto& fragment : bucket.fragments) {
    if (fragment.tensor >= tensors.size()) {
      return fail(ErrorCode::kInvalidArgument, "bucket {} from {} to {} names tensor {} of {}", bucket.index,
                  bucket.source.value(), bucket.sink.value(), fragment.tensor, tensors.size());
    }
    const auto& tensor = tensors[fragment.tensor];
    const auto op = make_op(fragment, tensor, kind, payload);
    const auto end = op ? checked_add(payload, op->bytes()) : std::nullopt;
    if (!end) {
      return fail(ErrorCode::kInvalidArgument,
                  "bucket {} from {} to {}: fragment {} of tensor {} has strides, sizes or a cast that do not fit it",
                  bucket.index, bucket.source.value(), bucket.sink.value(), model::to_string(fragment.box),
                  tensor.name);
    }
    if (op->elements > 0) ops.push_back(*op);
    payload = *end;
  }
  if (payload != bucket.bytes) {
    return fail(ErrorCode::kInvalidArgument, "bucket {} from {} to {} says {} bytes, its fragments hold {}",
                bucket.index, bucket.source.value(), bucket.sink.value(), bucket.bytes, payload);
  }
  return ops;
}

base::Status check_sources(std::span<const CopyOp> ops, std::span<const std::uint64_t> region_bytes) {
  for (const auto& op : ops) {
    const std::uint64_t end = op.from_offset + op.from_span;  // checked where it was made
    if (op.from_region >= region_bytes.size()) {
      return fail(ErrorCode::kInvalidArgument, "a fragment reads region {}, but the source has {}", op.from_region,
                  region_bytes.size());
    }
    if (end > region_bytes[op.from_region]) {
      return fail(ErrorCode::kInvalidArgument, "a fragment reads up to byte {} of region {}, which has {}", end,
                  op.from_region, region_bytes[op.from_region]);
    }
  }
  return {};
}

base::Status check_region_count(std::span<const CopyOp> ops, std::size_t from_count, std::size_t to_count) {
  for (const auto& op : ops) {
    if (op.from_region >= from_count || op.to_region >= to_count) {
      return fail(ErrorCode::kInvalidArgument, "a fragment goes from region {} of {} to region {} of {}",
                  op.from_region, from_count, op.to_region, to_count);
    }
  }
  return {};
}

std::size_t find_op(std::span<const CopyOp> ops, std::uint64_t position) noexcept {
  const auto next = std::upper_bound(ops.begin(), ops.end(), position,
                                     [](std::uint64_t at, const CopyOp& op) { return at < op.payload; });
  if (next == ops.begin()) return 0;
  const auto index = static_cast<std::size_t>(next - ops.begin()) - 1;
  return position < ops[index].payload + ops[index].bytes() ? index : index + 1;
}

void copy_piece(std::span<const CopyOp> ops, FromSide from, ToSide to, std::uint64_t begin,
                std::uint64_t end) noexcept {
  for (std::size_t i = find_op(ops, begin); i < ops.size() && ops[i].payload < end; ++i) {
    const auto& op = ops[i];
    const auto first = first_element_at(op, begin);
    const auto last = first_element_at(op, end);
    if (first >= last) continue;
    const auto source = reinterpret_cast<std::uintptr_t>(from.regions[op.from_region]) + op.from_offset - from.bias;
    const auto target = reinterpret_cast<std::uintptr_t>(to.regions[op.to_region]) + op.to_offset - to.bias;
    copy_elements(op, source, target, first, last, to.stream);
  }
}

bool copy_all(std::span<const CopyOp> ops, FromSide from, ToSide to, unsigned threads,
              const std::function<bool(std::uint64_t)>& proceed) {
  if (ops.empty()) return true;
  const std::uint64_t total = ops.back().payload + ops.back().bytes();
  to.stream = total >= kStreamBytes;
  const std::uint64_t pieces = (total + kCopyPieceBytes - 1) / kCopyPieceBytes;
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stopped{false};
  const auto work = [&] {
    while (!stopped.load(std::memory_order_relaxed)) {
      const std::uint64_t piece = next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= pieces) return;
      const std::uint64_t begin = piece * kCopyPieceBytes;
      const std::uint64_t end = std::min(total, begin + kCopyPieceBytes);
      copy_piece(ops, from, to, begin, end);
      if (!proceed(end - begin) && piece + 1 < pieces) stopped.store(true, std::memory_order_relaxed);
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < threads && i < pieces; ++i) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // fewer threads do the same work
    }
  }
  work();
  for (auto& helper : helpers)
    helper.join();
  return !stopped.load();
}

}  // namespace weightbus::device
