// The analytic overlap check against listing every byte.
#include "weightbus/model/memory_overlap.h"

#include <gtest/gtest.h>

#include <set>

#include "weightbus/base/prng.h"

namespace weightbus::model {
namespace {

// All bytes of a box; nullopt when an address repeats.
std::optional<std::set<std::int64_t>> list_bytes(const Box& box, std::uint64_t offset, const Dims& strides,
                                                 std::uint32_t element_bytes) {
  std::vector<std::int64_t> elements{0};
  for (std::size_t d = 0; d < box.rank(); ++d) {
    std::vector<std::int64_t> next;
    for (auto at : elements) {
      for (std::int64_t i = 0; i < box.extent[d]; ++i)
        next.push_back(at + i * strides[d]);
    }
    elements = next;
  }
  std::set<std::int64_t> bytes;
  bool repeats = false;
  for (auto at : elements) {
    for (std::uint32_t i = 0; i < element_bytes; ++i) {
      repeats |= !bytes.insert(static_cast<std::int64_t>(offset) + at * element_bytes + i).second;
    }
  }
  if (repeats) return std::nullopt;
  return bytes;
}

struct Case {
  Box box;
  std::uint64_t offset;
  Dims strides;
  std::uint32_t element_bytes;
};

Case random_case(base::Prng& prng) {
  Case c{{}, prng.below(40), {}, 1U << prng.below(3)};
  const auto rank = prng.below(4);
  for (std::uint64_t d = 0; d < rank; ++d) {
    c.box.offset.push_back(0);
    c.box.extent.push_back(static_cast<std::int64_t>(1 + prng.below(4)));
    c.strides.push_back(static_cast<std::int64_t>(prng.below(14)));
  }
  return c;
}

TEST(MemoryOverlap, AgreesWithListingEveryByte) {
  base::Prng prng(7);
  int met = 0;
  int apart = 0;
  for (int i = 0; i < 200000; ++i) {
    const auto a = random_case(prng);
    const auto b = random_case(prng);
    const auto a_bytes = list_bytes(a.box, a.offset, a.strides, a.element_bytes);
    const auto b_bytes = list_bytes(b.box, b.offset, b.strides, b.element_bytes);
    const auto a_print = footprint(a.box, a.offset, a.strides, a.element_bytes);
    const auto b_print = footprint(b.box, b.offset, b.strides, b.element_bytes);
    if (!a_bytes) {
      EXPECT_TRUE(self_overlaps(a_print));
    }
    if (self_overlaps(a_print) || self_overlaps(b_print)) continue;
    bool expected = false;
    for (auto byte : *a_bytes)
      expected |= b_bytes->contains(byte);
    ASSERT_EQ(overlap(a_print, b_print), expected)
        << to_string(a.box) << to_string(a.strides) << " at " << a.offset << " x" << a.element_bytes << " and "
        << to_string(b.box) << to_string(b.strides) << " at " << b.offset << " x" << b.element_bytes;
    ++(expected ? met : apart);
  }
  EXPECT_GT(met, 1000);
  EXPECT_GT(apart, 1000);
}

TEST(MemoryOverlap, ColumnSlicesOfOneLargeMatrixInterleave) {
  const Box half{{0, 0}, {1 << 30, 512}};
  const auto left = footprint(half, 0, {1024, 1}, 2);
  const auto right = footprint(half, 1024, {1024, 1}, 2);
  const auto shifted = footprint(half, 1022, {1024, 1}, 2);
  EXPECT_FALSE(overlap(left, right));
  EXPECT_TRUE(overlap(left, shifted));
}

TEST(MemoryOverlap, UnrelatedStridesOfHugeBoxesAreRefusedRatherThanSearchedForEver) {
  const auto a = footprint({{0, 0}, {1 << 20, 1}}, 0, {1 << 21, 1}, 1);
  const auto b = footprint({{0, 0}, {1 << 20, 1}}, 1, {(1 << 21) + 2, 1}, 1);
  EXPECT_TRUE(overlap(a, b));
}

}  // namespace
}  // namespace weightbus::model
