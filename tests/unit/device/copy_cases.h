// Buckets made by hand, and a copy that is slow and obvious, to compare the fast ones with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "weightbus/base/prng.h"
#include "weightbus/device/host/cast.h"
#include "weightbus/plan/plan.h"

namespace weightbus::testing {

// How a box lies in memory: `order` names its dimensions from the outermost to the innermost; `gap` elements follow
// each element of every dimension.
struct Layout {
  std::vector<std::size_t> order;
  std::int64_t gap = 0;
};

inline Layout row_major(std::size_t rank) {
  Layout layout;
  for (std::size_t i = 0; i < rank; ++i)
    layout.order.push_back(i);
  return layout;
}

inline model::Dims strides_of(const model::Dims& extent, const Layout& layout) {
  model::Dims strides = model::Dims::filled(extent.size(), 0);
  std::int64_t step = 1 + layout.gap;
  for (std::size_t i = extent.size(); i-- > 0;) {
    const auto dim = layout.order[i];
    strides[dim] = step;
    step = (step * std::max<std::int64_t>(extent[dim], 1)) + layout.gap;
  }
  return strides;
}

inline std::uint64_t span_of(const model::Dims& extent, const model::Dims& strides, std::uint32_t size) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < extent.size(); ++i) {
    if (extent[i] == 0) return 0;
    last += (extent[i] - 1) * strides[i];
  }
  return static_cast<std::uint64_t>(last + 1) * size;
}

inline std::pair<model::DType, model::DType> dtypes_of(model::Cast cast) {
  using model::Cast;
  using model::DType;
  switch (cast) {
    case Cast::kF32ToBF16: return {DType::kF32, DType::kBF16};
    case Cast::kF32ToF16: return {DType::kF32, DType::kF16};
    case Cast::kBF16ToF32: return {DType::kBF16, DType::kF32};
    case Cast::kF16ToF32: return {DType::kF16, DType::kF32};
    case Cast::kBF16ToF16: return {DType::kBF16, DType::kF16};
    case Cast::kF16ToBF16: return {DType::kF16, DType::kBF16};
    case Cast::kNone: break;
  }
  return {DType::kBF16, DType::kBF16};
}

// Lays fragments one after the other into two regions a side, and keeps count of how large those must be.
class PartBuilder {
 public:
  PartBuilder(std::string source, std::string sink) : source_(std::move(source)), sink_(std::move(sink)) {}

  void bucket() {
    const auto index = static_cast<std::uint32_t>(buckets.size());
    buckets.push_back({index, model::MemberId(source_), model::MemberId(sink_), 0, {}});
  }
  void fragment(const model::Dims& extent, model::DType from, model::DType to, model::Cast cast,
                const Layout& from_layout, const Layout& to_layout) {
    const auto tensor = static_cast<std::uint32_t>(tensors.size());
    tensors.push_back({"tensor" + std::to_string(tensor), from, to, cast, extent, 1});
    const model::Box box = model::Box::whole(extent);
    plan::Fragment fragment{tensor, box, {}, {}, tensor};
    fragment.from = place(from_bytes, tensor % 2, extent, from_layout, model::dtype_size(from));
    fragment.to = place(to_bytes, (tensor / 2) % 2, extent, to_layout, model::dtype_size(to));
    buckets.back().bytes += box.volume() * model::dtype_size(to);
    buckets.back().fragments.push_back(fragment);
  }
  void dense(const model::Dims& extent, model::DType dtype = model::DType::kBF16) {
    fragment(extent, dtype, dtype, model::Cast::kNone, row_major(extent.size()), row_major(extent.size()));
  }
  // Rank 0 to 4, any order of dimensions on either side, with and without gaps, sometimes empty, sometimes cast.
  void random(base::Prng& prng, std::int64_t extent_max) {
    model::Dims extent;
    const auto rank = prng.below(5);
    for (std::uint64_t i = 0; i < rank; ++i) {
      const auto size =
          prng.chance(3) ? 0 : 1 + static_cast<std::int64_t>(prng.below(static_cast<std::uint64_t>(extent_max)));
      extent.push_back(size);
    }
    const auto layout = [&] {
      Layout result = row_major(rank);
      for (std::size_t i = rank; i-- > 1 && prng.chance(50);)
        std::swap(result.order[i], result.order[prng.below(i + 1)]);
      result.gap = prng.chance(25) ? static_cast<std::int64_t>(prng.below(3)) : 0;
      return result;
    };
    const auto from = layout();
    const auto to = prng.chance(30) ? from : layout();
    if (prng.chance(40)) {
      const auto cast = static_cast<model::Cast>(1 + prng.below(6));
      const auto [source, target] = dtypes_of(cast);
      return fragment(extent, source, target, cast, from, to);
    }
    const auto dtype = static_cast<model::DType>(1 + prng.below(15));
    fragment(extent, dtype, dtype, model::Cast::kNone, from, to);
  }

  std::vector<plan::PlannedTensor> tensors;
  std::vector<plan::Bucket> buckets;
  std::vector<std::uint64_t> from_bytes{0, 0};
  std::vector<std::uint64_t> to_bytes{0, 0};

 private:
  static model::Placement place(std::vector<std::uint64_t>& bytes, std::uint32_t region, const model::Dims& extent,
                                const Layout& layout, std::uint32_t size) {
    const auto strides = strides_of(extent, layout);
    const std::uint64_t offset = bytes[region];
    bytes[region] = (offset + span_of(extent, strides, size) + 7 + 8) / 8 * 8;  // at least one byte that nobody writes
    return {region, offset, strides};
  }

  const std::string source_;
  const std::string sink_;
};

inline std::vector<std::byte> random_bytes(std::uint64_t size, std::uint64_t seed) {
  base::Prng prng(seed);
  std::vector<std::byte> bytes((size + 7) / 8 * 8);
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const auto word = prng.next();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  bytes.resize(size);
  return bytes;
}

inline void reference_element(model::Cast cast, std::uint32_t size, const std::byte* from, std::byte* to) {
  if (cast == model::Cast::kNone) {
    std::memcpy(to, from, size);
  } else {
    device::convert(cast, from, 0, to, 0, 1);
  }
}

// Element by element, by the definition of strides.
inline void reference_copy(const plan::Bucket& bucket, const std::vector<plan::PlannedTensor>& tensors,
                           const std::vector<const std::byte*>& from, const std::vector<std::byte*>& to) {
  for (const auto& fragment : bucket.fragments) {
    const auto& tensor = tensors[fragment.tensor];
    const std::uint64_t volume = fragment.box.volume();
    for (std::uint64_t element = 0; element < volume; ++element) {
      std::uint64_t rest = element;
      std::uint64_t source = fragment.from.offset;
      std::uint64_t target = fragment.to.offset;
      for (std::size_t i = fragment.box.rank(); i-- > 0;) {
        const auto extent = static_cast<std::uint64_t>(fragment.box.extent[i]);
        const auto index = rest % extent;
        rest /= extent;
        source += index * static_cast<std::uint64_t>(fragment.from.strides[i]) * model::dtype_size(tensor.source_dtype);
        target += index * static_cast<std::uint64_t>(fragment.to.strides[i]) * model::dtype_size(tensor.dtype);
      }
      reference_element(tensor.cast, model::dtype_size(tensor.dtype), from[fragment.from.region] + source,
                        to[fragment.to.region] + target);
    }
  }
}

// The sink's two regions, filled with one byte.
class SinkMemory {
 public:
  explicit SinkMemory(const std::vector<std::uint64_t>& bytes, unsigned char fill = 0xee) {
    for (const auto size : bytes)
      regions.emplace_back(size, std::byte{fill});
  }
  std::vector<std::byte*> pointers() {
    std::vector<std::byte*> result;
    for (auto& region : regions)
      result.push_back(region.data());
    return result;
  }
  void fill(unsigned char value) {
    for (auto& region : regions)
      std::fill(region.begin(), region.end(), std::byte{value});
  }
  friend bool operator==(const SinkMemory&, const SinkMemory&) = default;

  std::vector<std::vector<std::byte>> regions;
};

}  // namespace weightbus::testing
