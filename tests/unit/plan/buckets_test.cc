#include "weightbus/plan/buckets.h"

#include <gtest/gtest.h>

#include <vector>

namespace weightbus::plan {
namespace {

using model::Box;

struct Part {
  std::size_t bucket;
  Box box;
  std::uint64_t bytes;
};

std::vector<Part> cut(std::uint64_t bucket_bytes, const std::vector<Box>& boxes, std::uint32_t element_bytes) {
  std::vector<Part> parts;
  std::size_t buckets = 0;
  BucketCutter cutter(
      bucket_bytes, [&] { ++buckets; },
      [&](const Box& box, std::uint64_t bytes) {
        parts.push_back({buckets, box, bytes});
      });
  for (const auto& box : boxes)
    cutter.add(box, element_bytes);
  return parts;
}

TEST(Buckets, SmallPiecesShareABucketUntilOneDoesNotFit) {
  const auto parts = cut(64, {{{0}, {16}}, {{0}, {16}}, {{0}, {8}}}, 2);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].bucket, 1U);
  EXPECT_EQ(parts[1].bucket, 1U);
  EXPECT_EQ(parts[2].bucket, 2U);
}

TEST(Buckets, ALargePieceIsSplitByRowsIntoAlignedParts) {
  // Rows of 6 bytes: 8 rows are the least multiple of 16 bytes.
  const auto parts = cut(100, {{{4, 0}, {50, 3}}}, 2);
  std::int64_t next = 4;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].box.offset[0], next);
    next += parts[i].box.extent[0];
    EXPECT_LE(parts[i].bytes, 100U);
    if (i + 1 < parts.size()) {
      EXPECT_EQ(parts[i].bytes % 16, 0U);
    }
  }
  EXPECT_EQ(next, 54);
}

TEST(Buckets, ARowLargerThanABucketIsSplitWithin) {
  const auto parts = cut(32, {{{0, 0, 0}, {2, 1, 40}}}, 2);
  std::uint64_t bytes = 0;
  for (const auto& part : parts) {
    EXPECT_LE(part.bytes, 32U);
    EXPECT_EQ(part.box.extent[0], 1);
    bytes += part.bytes;
  }
  EXPECT_EQ(bytes, 160U);
  EXPECT_EQ(parts.front().box, (Box{{0, 0, 0}, {1, 1, 16}}));
  EXPECT_EQ(parts.back().box.offset[0], 1);
}

TEST(Buckets, TheRestOfABucketIsFilledByALargePiece) {
  const auto parts = cut(64, {{{0}, {16}}, {{0}, {160}}}, 1);
  ASSERT_GE(parts.size(), 2U);
  EXPECT_EQ(parts[1].bucket, 1U);
  EXPECT_EQ(parts[1].bytes, 48U);
  std::vector<std::uint64_t> fill(10, 0);
  for (const auto& part : parts)
    fill[part.bucket] += part.bytes;
  EXPECT_EQ(fill[1], 64U);
  EXPECT_EQ(fill[2], 64U);
}

TEST(Buckets, ScalarsAndExactFits) {
  const auto parts = cut(16, {Box{}, Box{}, Box{}}, 8);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[1].bucket, 1U);
  EXPECT_EQ(parts[2].bucket, 2U);
}

}  // namespace
}  // namespace weightbus::plan
