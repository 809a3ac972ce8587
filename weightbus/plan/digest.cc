#include "weightbus/plan/digest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "weightbus/base/assert.h"
#include "weightbus/base/hash.h"
#include "weightbus/model/hashing.h"
#include "weightbus/plan/digest_kernel.h"
#include "weightbus/plan/digest_keys.h"

namespace weightbus::plan {
namespace {

// Adds runs of bytes at their positions in the tensor.
class Accumulator {
 public:
  explicit Accumulator(std::uint64_t seed) noexcept : seed_(seed) {}

  void add(const std::byte* data, std::uint64_t position, std::uint64_t bytes) noexcept {
    bytes_ += bytes;
    while (bytes > 0) {
      const auto in_block = position % kDigestBlockBytes;
      const auto part = std::min<std::uint64_t>(bytes, kDigestBlockBytes - in_block);
      add_in_block(data, position / kDigestBlockBytes, in_block, part);
      data += part;
      position += part;
      bytes -= part;
    }
  }

  Digest finish() const noexcept {
    return {sum_.lane0 + bytes_ * digest_length_key(seed_, 0), sum_.lane1 + bytes_ * digest_length_key(seed_, 1)};
  }

 private:
  void add_in_block(const std::byte* data, std::uint64_t block, std::uint64_t begin, std::uint64_t bytes) noexcept {
    BlockSums sums;
    const auto head = std::min<std::uint64_t>((kDigestWordBytes - begin % kDigestWordBytes) % kDigestWordBytes, bytes);
    if (head > 0) add_partial(sums, data, begin, head);
    const auto words = (bytes - head) / kDigestWordBytes;
    if (words > 0) {
      const auto whole = sum_words(data + head, (begin + head) / kDigestWordBytes, words);
      sums.lane0 += whole.lane0;
      sums.lane1 += whole.lane1;
    }
    const auto done = head + words * kDigestWordBytes;
    if (done < bytes) add_partial(sums, data + done, begin + done, bytes - done);
    if (block != block_ || !have_block_) {
      block_ = block;
      have_block_ = true;
      multiplier_ = {digest_multiplier(seed_, block, 0), digest_multiplier(seed_, block, 1)};
    }
    sum_.lane0 += sums.lane0 * multiplier_.lane0;
    sum_.lane1 += sums.lane1 * multiplier_.lane1;
  }

  // Bytes of one word, which stay where they are in it: the missing ones count as zero.
  static void add_partial(BlockSums& sums, const std::byte* data, std::uint64_t begin, std::uint64_t bytes) noexcept {
    std::array<std::byte, kDigestWordBytes> padded{};
    std::memcpy(padded.data() + begin % kDigestWordBytes, data, bytes);
    std::uint32_t word;
    std::memcpy(&word, padded.data(), kDigestWordBytes);
    const auto keys = word_keys(begin / kDigestWordBytes);
    sums.lane0 += word * keys.lane0;
    sums.lane1 += word * keys.lane1;
  }

  std::uint64_t seed_;
  std::uint64_t bytes_ = 0;
  Digest sum_;
  std::uint64_t block_ = 0;
  bool have_block_ = false;
  BlockSums multiplier_;
};

// Gathers a row whose elements are apart, then adds it in pieces.
void add_gathered(Accumulator& sum, const std::byte* data, std::int64_t stride_bytes, std::int64_t count,
                  std::uint32_t element_bytes, std::uint64_t position) noexcept {
  std::array<std::byte, kDigestBlockBytes> buffer;
  const auto fit = static_cast<std::int64_t>(buffer.size() / element_bytes);
  while (count > 0) {
    const auto part = std::min(count, fit);
    for (std::int64_t i = 0; i < part; ++i) {
      std::memcpy(buffer.data() + i * element_bytes, data + i * stride_bytes, element_bytes);
    }
    sum.add(buffer.data(), position, static_cast<std::uint64_t>(part) * element_bytes);
    data += part * stride_bytes;
    position += static_cast<std::uint64_t>(part) * element_bytes;
    count -= part;
  }
}

// Rows that lie apart defeat the hardware's prefetching, and there is too much work in one for the next row's loads to
// start by themselves.
void prefetch(const std::byte* row, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kLine = 64;
  constexpr std::uint64_t kMost = 2048;
  for (std::uint64_t i = 0; i < std::min(bytes, kMost); i += kLine)
    __builtin_prefetch(row + i);
}

// How many trailing dimensions form one run, in memory and in the tensor; 0 when even the innermost one is strided.
std::size_t run_dimensions(const model::Dims& strides, const model::Box& box, const model::Dims& shape) noexcept {
  std::size_t merged = 0;
  std::int64_t dense = 1;
  for (std::size_t i = box.rank(); i-- > 0;) {
    if (box.extent[i] != 1 && strides[i] != dense) break;
    ++merged;
    if (box.extent[i] != shape[i]) break;  // the next row begins elsewhere in the tensor
    dense *= shape[i];
  }
  return merged;
}

}  // namespace

std::uint64_t digest_seed(std::string_view name, const model::Dims& shape, model::DType dtype,
                          std::uint32_t grain_bytes) noexcept {
  WB_ASSERT(std::has_single_bit(grain_bytes) && grain_bytes <= 16, "grains have 1, 2, 4, 8 or 16 bytes");
  base::Hasher hasher;
  hasher.add("weightbus digest 1");
  hasher.add(name);
  model::add(hasher, shape);
  hasher.add(dtype);
  return hasher.finish().low;
}

Digest digest_box(const std::byte* data, const model::Dims& strides, std::uint32_t element_bytes, const model::Box& box,
                  const model::Dims& shape, std::uint64_t seed, std::uint32_t grain_bytes) noexcept {
  WB_ASSERT(strides.size() == box.rank() && shape.size() == box.rank(), "one stride and one extent a dimension");
  WB_ASSERT(std::has_single_bit(grain_bytes) && grain_bytes <= 16, "grains have 1, 2, 4, 8 or 16 bytes");
  Accumulator sum(seed);
  if (box.empty()) return sum.finish();

  const auto merged = run_dimensions(strides, box, shape);
  const bool gather = merged == 0 && box.rank() > 0;
  const std::size_t outer = box.rank() - (gather ? 1 : merged);
  std::int64_t run = 1;
  for (std::size_t i = outer; i < box.rank(); ++i)
    run *= box.extent[i];
  const auto pitch = model::dense_strides(shape);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < box.rank(); ++i)
    first += box.offset[i] * pitch[i];

  auto index = model::Dims::filled(outer, 0);
  std::int64_t memory = 0;   // elements from `data`
  std::int64_t row = first;  // elements from the tensor's beginning
  while (true) {
    const auto* at = data + memory * element_bytes;
    const auto position = static_cast<std::uint64_t>(row) * element_bytes;
    if (gather) {
      add_gathered(sum, at, strides[outer] * element_bytes, run, element_bytes, position);
    } else {
      const auto bytes = static_cast<std::uint64_t>(run) * element_bytes;
      if (outer > 0 && index[outer - 1] + 2 < box.extent[outer - 1]) {
        prefetch(at + 2 * strides[outer - 1] * element_bytes, bytes);
      }
      sum.add(at, position, bytes);
    }
    std::size_t i = outer;
    while (i > 0) {
      --i;
      memory += strides[i];
      row += pitch[i];
      if (++index[i] < box.extent[i]) break;
      memory -= strides[i] * box.extent[i];
      row -= pitch[i] * box.extent[i];
      index[i] = 0;
      if (i == 0) return sum.finish();
    }
    if (outer == 0) return sum.finish();
  }
}

}  // namespace weightbus::plan
