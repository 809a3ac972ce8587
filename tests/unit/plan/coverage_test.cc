#include "weightbus/plan/coverage.h"

#include <gtest/gtest.h>

#include <map>

#include "weightbus/base/prng.h"
#include "weightbus/plan/box_index.h"

namespace weightbus::plan {
namespace {

using model::Box;
using model::Dims;

Box random_box(base::Prng& prng, std::int64_t size, std::size_t rank) {
  Box box;
  for (std::size_t d = 0; d < rank; ++d) {
    const auto begin = static_cast<std::int64_t>(prng.below(static_cast<std::uint64_t>(size)));
    box.offset.push_back(begin);
    box.extent.push_back(1 + static_cast<std::int64_t>(prng.below(static_cast<std::uint64_t>(size - begin))));
  }
  return box;
}

std::uint64_t total(const std::vector<Box>& boxes) {
  std::uint64_t sum = 0;
  for (const auto& box : boxes)
    sum += box.volume();
  return sum;
}

TEST(Subtract, LeavesDisjointBoxesAroundTheHole) {
  const Box whole{{0, 0}, {4, 4}};
  const auto rest = subtract(whole, {{1, 1}, {2, 2}});
  EXPECT_EQ(rest.size(), 4U);
  EXPECT_EQ(total(rest), 12U);
  EXPECT_TRUE(BoxIndex(rest).disjoint());
  EXPECT_TRUE(subtract(whole, whole).empty());
  EXPECT_TRUE(subtract(Box{}, Box{}).empty());
}

TEST(Cover, AcceptsDisjointPartsThatAddUp) {
  std::vector<Covering> parts{{0, {{0}, {3}}}, {1, {{3}, {5}}}};
  EXPECT_EQ(cover({{0}, {8}}, parts, true), std::nullopt);
  EXPECT_EQ(parts.size(), 2U);
}

TEST(Cover, NamesTheFirstGap) {
  std::vector<Covering> parts{{0, {{0, 0}, {3, 4}}}, {1, {{5, 0}, {1, 4}}}};
  EXPECT_EQ(cover({{0, 0}, {8, 4}}, parts, true), (Box{{3, 0}, {2, 4}}));
  std::vector<Covering> none;
  EXPECT_EQ(cover({{2}, {2}}, none, true), (Box{{2}, {2}}));
  EXPECT_EQ(cover(Box{}, none, true), Box{});
}

TEST(Cover, OverlappingShardsGiveEachElementOnceTheLargerFirst) {
  std::vector<Covering> parts{{0, {{0}, {3}}}, {1, {{2}, {6}}}, {2, {{4}, {2}}}};
  EXPECT_EQ(cover({{0}, {8}}, parts, false), std::nullopt);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].box, (Box{{0}, {2}}));
  EXPECT_EQ(parts[1].box, (Box{{2}, {6}}));
}

TEST(Cover, RandomOverlapsAreCoveredExactlyOrTheGapIsReal) {
  base::Prng prng(3);
  int gaps = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto slot = random_box(prng, 6, 2);
    std::vector<Covering> parts;
    for (std::uint32_t i = 0; i < 6; ++i) {
      if (const auto common = intersect(slot, random_box(prng, 6, 2))) parts.push_back({i, *common});
    }
    const auto given = parts;
    const auto gap = cover(slot, parts, false);
    if (gap) {
      ++gaps;
      ASSERT_TRUE(contains(slot, *gap));
      for (const auto& part : given)
        ASSERT_EQ(intersect(part.box, *gap), std::nullopt);
      continue;
    }
    std::vector<Box> boxes;
    for (const auto& part : parts)
      boxes.push_back(part.box);
    ASSERT_TRUE(BoxIndex(boxes).disjoint());
    ASSERT_EQ(total(boxes), slot.volume());
  }
  EXPECT_GT(gaps, 100);
  EXPECT_LT(gaps, 2900);
}

TEST(Refine, EveryBoxIsAUnionOfDisjointCells) {
  base::Prng prng(4);
  for (int round = 0; round < 500; ++round) {
    std::vector<Box> boxes;
    for (int i = 0; i < 6; ++i)
      boxes.push_back(random_box(prng, 8, 1 + static_cast<std::size_t>(round % 3)));
    std::sort(boxes.begin(), boxes.end());
    boxes.erase(std::unique(boxes.begin(), boxes.end()), boxes.end());
    const auto refined = refine(boxes);
    ASSERT_TRUE(BoxIndex(refined.cells).disjoint());
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      std::uint64_t volume = 0;
      for (const auto cell : refined.members[i]) {
        ASSERT_TRUE(contains(boxes[i], refined.cells[cell]));
        volume += refined.cells[cell].volume();
      }
      ASSERT_EQ(volume, boxes[i].volume());
    }
  }
}

TEST(BoxIndex, FindsExactlyTheBoxesThatMeet) {
  base::Prng prng(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<Box> boxes;
    for (int i = 0; i < 20; ++i)
      boxes.push_back(random_box(prng, 12, 2));
    const BoxIndex index(boxes);
    bool disjoint = true;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j)
        disjoint &= !intersect(boxes[i], boxes[j]);
    }
    ASSERT_EQ(index.disjoint(), disjoint);
    const auto query = random_box(prng, 12, 2);
    std::vector<std::uint32_t> expected;
    for (std::uint32_t i = 0; i < boxes.size(); ++i) {
      if (intersect(boxes[i], query)) expected.push_back(i);
    }
    ASSERT_EQ(index.meeting(query), expected);
  }
}

TEST(BoxIndex, AGridIsDisjoint) {
  std::vector<Box> grid;
  for (std::int64_t row = 0; row < 16; ++row) {
    for (std::int64_t column = 0; column < 16; ++column)
      grid.push_back({{row * 2, column * 3}, {2, 3}});
  }
  EXPECT_TRUE(BoxIndex(grid).disjoint());
  EXPECT_EQ(BoxIndex(grid).meeting({{1, 2}, {2, 2}}).size(), 4U);
  grid.push_back({{31, 47}, {1, 1}});
  EXPECT_FALSE(BoxIndex(grid).disjoint());
}

}  // namespace
}  // namespace weightbus::plan
