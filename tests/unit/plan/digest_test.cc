#include "weightbus/plan/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "weightbus/base/prng.h"
#include "weightbus/plan/digest_kernel.h"
#include "weightbus/plan/digest_keys.h"

namespace weightbus::plan {
namespace {

using model::Box;
using model::Dims;
using model::DType;

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  base::Prng prng(seed);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes)
    byte = static_cast<std::byte>(prng.next());
  return bytes;
}

// The definition of digest.h, word by word.
Digest by_definition(const std::vector<std::byte>& bytes, std::uint64_t seed) {
  const auto keys = make_digest_keys();
  Digest sum;
  for (std::uint64_t i = 0; i < bytes.size(); ++i) {
    const auto word = i / 4;
    const auto value = std::to_integer<std::uint64_t>(bytes[i]) << (8 * (i % 4));
    sum.lane0 += digest_multiplier(seed, word / 1024, 0) * keys.lane0[word % 1024] * value;
    sum.lane1 += digest_multiplier(seed, word / 1024, 1) * keys.lane1[word % 1024] * value;
  }
  sum.lane0 += bytes.size() * digest_length_key(seed, 0);
  sum.lane1 += bytes.size() * digest_length_key(seed, 1);
  return sum;
}

Digest digest_whole(const std::vector<std::byte>& bytes, const Dims& shape, std::uint32_t element_bytes,
                    std::uint64_t seed) {
  return digest_box(bytes.data(), model::dense_strides(shape), element_bytes, Box::whole(shape), shape, seed, 1);
}

bool lanes_differ(const Digest& a, const Digest& b) { return a.lane0 != b.lane0 && a.lane1 != b.lane1; }

TEST(Digest, FollowsItsDefinition) {
  for (std::int64_t size : {0, 1, 2, 3, 4, 5, 63, 64, 65, 4095, 4096, 4097, 4099, 20001}) {
    const auto bytes = random_bytes(static_cast<std::size_t>(size), static_cast<std::uint64_t>(size));
    EXPECT_EQ(digest_whole(bytes, {size}, 1, 99), by_definition(bytes, 99)) << size;
  }
}

TEST(Digest, IsPinned) {
  // A change of the construction breaks agreement between members of different builds and with stored versions.
  std::vector<std::byte> bytes(6000);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  const auto digest = digest_whole(bytes, {3000}, 2, digest_seed("w", {3000}, DType::kBF16, 2));
  EXPECT_EQ(digest, (Digest{0xca31623f590a03b4, 0x0a57f5a16130f4d6}))
      << std::hex << digest.lane0 << " " << digest.lane1;
}

TEST(Digest, KeysAreOddAndDistinct) {
  const auto keys = make_digest_keys();
  for (const auto* lane : {&keys.lane0, &keys.lane1}) {
    EXPECT_TRUE(std::all_of(lane->begin(), lane->end(), [](auto key) { return key % 2 == 1; }));
    EXPECT_EQ(std::set<std::uint32_t>(lane->begin(), lane->end()).size(), lane->size());
  }
}

TEST(Digest, EveryKernelGivesTheSameSums) {
  const auto bytes = random_bytes(4096 + 8, 3);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    for (std::size_t words : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 500}) {
      for (std::size_t first : {0, 1, 5, 17, 500}) {
        const auto a = sum_words(bytes.data() + shift, first, words);
        const auto b = sum_words_portable(bytes.data() + shift, first, words);
        ASSERT_EQ(a.lane0, b.lane0);
        ASSERT_EQ(a.lane1, b.lane1);
      }
    }
  }
}

TEST(Digest, SumsAddOverEveryCutOfASmallMatrix) {
  const Dims shape{5, 6};
  for (std::uint32_t element : {1U, 2U, 4U, 8U}) {
    const auto bytes = random_bytes(30 * element, element);
    const auto whole = digest_whole(bytes, shape, element, 5);
    for (std::int64_t row = 0; row <= 5; ++row) {
      for (std::int64_t column = 0; column <= 6; ++column) {
        Digest sum;
        for (const auto& box : {Box{{0, 0}, {row, column}}, Box{{0, column}, {row, 6 - column}},
                                Box{{row, 0}, {5 - row, column}}, Box{{row, column}, {5 - row, 6 - column}}}) {
          const auto* first = bytes.data() + (box.offset[0] * 6 + box.offset[1]) * element;
          sum = sum + digest_box(first, {6, 1}, element, box, shape, 5, 1);
        }
        ASSERT_EQ(sum, whole) << row << " " << column;
      }
    }
  }
}

TEST(Digest, DoesNotDependOnStridesOrGrain) {
  const Dims shape{3, 700, 4};
  const auto dense = random_bytes(3 * 700 * 4 * 2, 1);
  const auto expected = digest_whole(dense, shape, 2, 11);
  for (std::uint32_t grain : {1U, 2U, 4U, 8U}) {
    EXPECT_EQ(digest_box(dense.data(), model::dense_strides(shape), 2, Box::whole(shape), shape, 11, grain), expected);
  }
  // Every order of the dimensions in memory, with gaps and at an odd address.
  std::vector<std::size_t> order{0, 1, 2};
  do {
    Dims strides{0, 0, 0};
    std::int64_t next = 1;
    for (auto d : order) {
      strides[d] = next;
      next = next * shape[d] + 3;
    }
    std::vector<std::byte> memory(static_cast<std::size_t>(next * 2 + 64));
    for (std::int64_t i = 0; i < 3 * 700 * 4; ++i) {
      const auto at = (i / 2800) * strides[0] + (i / 4 % 700) * strides[1] + (i % 4) * strides[2];
      std::copy_n(dense.begin() + i * 2, 2, memory.begin() + 1 + at * 2);
    }
    EXPECT_EQ(digest_box(memory.data() + 1, strides, 2, Box::whole(shape), shape, 11, 2), expected);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Digest, ScalarsAndEmptyBoxesAreOrdinary) {
  const auto bytes = random_bytes(8, 2);
  EXPECT_EQ(digest_box(bytes.data(), {}, 8, Box{}, {}, 3, 8), by_definition(bytes, 3));
  EXPECT_EQ(digest_box(nullptr, {4, 1}, 2, Box{{1, 0}, {0, 4}}, {2, 4}, 3, 8), Digest{});
  EXPECT_EQ(digest_box(bytes.data(), {1, 1}, 1, Box{{0, 0}, {4, 0}}, {4, 0}, 3, 1), Digest{});
}

TEST(Digest, FindsEveryChangedByteToEveryValue) {
  auto bytes = random_bytes(24, 8);
  const auto before = digest_whole(bytes, {3, 4}, 2, 77);
  for (auto& byte : bytes) {
    const auto original = byte;
    for (int value = 0; value < 256; ++value) {
      byte = static_cast<std::byte>(value);
      if (byte == original) continue;
      ASSERT_TRUE(lanes_differ(digest_whole(bytes, {3, 4}, 2, 77), before));
    }
    byte = original;
  }
}

TEST(Digest, FindsAFlippedBitAnywhereInSeveralBlocks) {
  auto bytes = random_bytes(3 * 4096 + 10, 8);
  const auto before = digest_whole(bytes, {static_cast<std::int64_t>(bytes.size())}, 1, 77);
  for (std::size_t i = 0; i < bytes.size(); i += 7) {
    bytes[i] ^= std::byte{0x80};
    ASSERT_TRUE(lanes_differ(digest_whole(bytes, {static_cast<std::int64_t>(bytes.size())}, 1, 77), before)) << i;
    bytes[i] ^= std::byte{0x80};
  }
}

// Swaps grains i and j and expects to see it, unless they are equal.
void expect_swaps_found(std::vector<std::byte> bytes, std::size_t grain, std::size_t step) {
  const Dims shape{static_cast<std::int64_t>(bytes.size())};
  const auto before = digest_whole(bytes, shape, 1, 21);
  for (std::size_t i = 0; i < bytes.size() / grain; i += step) {
    for (std::size_t j = i + 1; j < bytes.size() / grain; j += step) {
      const auto a = bytes.begin() + static_cast<std::ptrdiff_t>(i * grain);
      const auto b = bytes.begin() + static_cast<std::ptrdiff_t>(j * grain);
      if (std::equal(a, a + static_cast<std::ptrdiff_t>(grain), b)) continue;
      std::swap_ranges(a, a + static_cast<std::ptrdiff_t>(grain), b);
      ASSERT_TRUE(lanes_differ(digest_whole(bytes, shape, 1, 21), before)) << grain << ": " << i << " and " << j;
      std::swap_ranges(a, a + static_cast<std::ptrdiff_t>(grain), b);
    }
  }
}

TEST(Digest, FindsAnyTwoSwappedGrains) {
  for (std::size_t grain : {1, 2, 4, 8, 16})
    expect_swaps_found(random_bytes(256, grain), grain, 1);
  expect_swaps_found(random_bytes(5 * 4096, 4), 16, 37);  // and across blocks
}

TEST(Digest, FindsSwappedGrainsThatDifferInTheHighestBitOnly) {
  for (std::size_t grain : {1, 2, 4, 8, 16}) {
    std::vector<std::byte> bytes(256, std::byte{0});
    for (std::size_t i = grain - 1; i < bytes.size(); i += 2 * grain)
      bytes[i] = std::byte{0x80};
    expect_swaps_found(bytes, grain, 1);
  }
  std::vector<std::byte> blocks(8 * 4096, std::byte{0});
  for (std::size_t i = 3; i < blocks.size(); i += 8192)
    blocks[i] = std::byte{0x80};
  expect_swaps_found(blocks, 4096, 1);
}

TEST(Digest, FindsASliceShiftedByOneRow) {
  for (std::int64_t width : {1, 2, 3, 64, 1024, 2048, 4096}) {
    const Dims shape{6, width};
    const auto bytes = random_bytes(static_cast<std::size_t>(7 * width * 2), static_cast<std::uint64_t>(width));
    std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
    for (std::int64_t rows = 1; rows <= 3; ++rows) {
      for (std::int64_t at = 0; at + rows <= 6; ++at) {
        const Box box{{2, 0}, {rows, width}};
        if (2 + rows > 6) continue;
        const auto digest = digest_box(bytes.data() + at * width * 2, {width, 1}, 2, box, shape, 4, 2);
        EXPECT_TRUE(seen.emplace(digest.lane0, digest.lane1).second) << width << ": " << rows << " rows from " << at;
      }
    }
  }
}

TEST(Digest, SaysWhereTheSameBytesLie) {
  const auto bytes = random_bytes(64, 6);
  std::set<std::uint64_t> lane0;
  std::set<std::uint64_t> lane1;
  for (std::int64_t row = 0; row < 3000; ++row) {
    const auto digest = digest_box(bytes.data(), {32, 1}, 2, Box{{row, 0}, {1, 32}}, {3000, 32}, 9, 16);
    EXPECT_TRUE(lane0.insert(digest.lane0).second);
    EXPECT_TRUE(lane1.insert(digest.lane1).second);
  }
}

TEST(Digest, SeedsDifferByNameShapeAndDtypeOnly) {
  const std::set<std::uint64_t> seeds{
      digest_seed("a", {4, 8}, DType::kBF16, 2), digest_seed("b", {4, 8}, DType::kBF16, 2),
      digest_seed("a", {8, 4}, DType::kBF16, 2), digest_seed("a", {32}, DType::kBF16, 2),
      digest_seed("a", {4, 8}, DType::kF16, 2),  digest_seed("a", {4, 8}, DType::kF32, 2),
  };
  EXPECT_EQ(seeds.size(), 6U);
  for (std::uint32_t grain : {1U, 2U, 4U, 8U, 16U})
    EXPECT_TRUE(seeds.contains(digest_seed("a", {4, 8}, DType::kBF16, grain)));
}

TEST(Digest, AWrongDtypeIsFoundEvenInZeros) {
  for (const auto fill : {std::byte{0}, std::byte{0x3f}}) {
    const std::vector<std::byte> bytes(64, fill);
    std::set<std::uint64_t> lane0;
    for (auto dtype : {DType::kBF16, DType::kF16, DType::kI16, DType::kU16}) {
      lane0.insert(digest_whole(bytes, {32}, 2, digest_seed("w", {32}, dtype, 2)).lane0);
    }
    EXPECT_EQ(lane0.size(), 4U);
  }
}

TEST(Digest, ZerosOfDifferentLengthDiffer) {
  std::set<std::uint64_t> lane1;
  for (std::int64_t rows = 0; rows <= 32; ++rows) {
    const std::vector<std::byte> zeros(64, std::byte{0});
    lane1.insert(digest_box(zeros.data(), {1}, 2, Box{{0}, {rows}}, {32}, 1, 2).lane1);
  }
  EXPECT_EQ(lane1.size(), 33U);
}

}  // namespace
}  // namespace weightbus::plan
