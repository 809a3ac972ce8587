#include "weightbus/model/box.h"

#include <gtest/gtest.h>

#include <limits>

namespace weightbus::model {
namespace {

constexpr auto kMax = std::numeric_limits<std::int64_t>::max();

TEST(Box, IntersectionIsTheCommonPart) {
  EXPECT_EQ(intersect({{0, 2}, {4, 4}}, {{3, 0}, {4, 3}}), (Box{{3, 2}, {1, 1}}));
  EXPECT_EQ(intersect({{0}, {4}}, {{4}, {4}}), std::nullopt);
  EXPECT_EQ(intersect({{0}, {4}}, {{2}, {0}}), std::nullopt) << "an empty box meets nothing";
  EXPECT_EQ(intersect(Box{}, Box{}), Box{}) << "two scalars are the same element";
}

TEST(Box, ContainsAnyEmptyBoxOfItsRank) {
  const Box outer{{2, 2}, {4, 4}};
  EXPECT_TRUE(contains(outer, {{2, 3}, {4, 3}}));
  EXPECT_FALSE(contains(outer, {{1, 3}, {4, 3}}));
  EXPECT_FALSE(contains(outer, {{3, 3}, {4, 3}}));
  EXPECT_TRUE(contains(outer, {{100, 0}, {0, 5}}));
  EXPECT_FALSE(contains(outer, {{2}, {1}}));
}

TEST(Box, FitsRefusesWhatIsNegativeTooLongOrOfAnotherRank) {
  EXPECT_TRUE(fits({{0, 0}, {3, 4}}, {3, 4}));
  EXPECT_TRUE(fits({{3, 0}, {0, 4}}, {3, 4}));
  EXPECT_FALSE(fits({{-1, 0}, {1, 1}}, {3, 4}));
  EXPECT_FALSE(fits({{0, 0}, {-1, 1}}, {3, 4}));
  EXPECT_FALSE(fits({{1, 0}, {3, 1}}, {3, 4}));
  EXPECT_FALSE(fits({{0}, {3}}, {3, 4}));
  EXPECT_FALSE(fits({{kMax}, {kMax}}, {3}));
  EXPECT_TRUE(fits(Box{}, Dims{}));
}

TEST(Box, VolumeReportsOverflow) {
  EXPECT_EQ(checked_volume({3, 4}), 12U);
  EXPECT_EQ(checked_volume({}), 1U);
  EXPECT_EQ(checked_volume({kMax, kMax, 0}), 0U);
  EXPECT_EQ(checked_volume({kMax, 3}), std::nullopt);
  EXPECT_EQ(checked_volume({3, -1}), std::nullopt);
}

TEST(Box, DenseStridesAreRowMajor) {
  EXPECT_EQ(dense_strides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(dense_strides({}), Dims{});
  EXPECT_EQ(dense_strides({5, 0, 4}), (Dims{4, 4, 1})) << "strides of an empty tensor are harmless";
}

TEST(Box, PrintsAsRanges) {
  EXPECT_EQ(to_string(Box{{0, 4}, {2, 4}}), "[0:2, 4:8]");
  EXPECT_EQ(to_string(Dims{2, 3}), "[2, 3]");
}

}  // namespace
}  // namespace weightbus::model
