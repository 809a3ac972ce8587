// Every small way to split a tensor on both sides, against direct slicing.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "simulation/simulate.h"

namespace weightbus::testing {
namespace {

using model::Box;
using model::Dims;
using model::DType;

// Sizes of consecutive parts.
using Split = std::vector<std::int64_t>;

// All ways to give `rows` to `ranks` in order, empty ranks included.
void compositions(std::int64_t rows, std::size_t ranks, Split& prefix, std::vector<Split>& out) {
  if (prefix.size() + 1 == ranks) {
    prefix.push_back(rows);
    out.push_back(prefix);
    prefix.pop_back();
    return;
  }
  for (std::int64_t first = 0; first <= rows; ++first) {
    prefix.push_back(first);
    compositions(rows - first, ranks, prefix, out);
    prefix.pop_back();
  }
}

// The ways that frameworks split: chunks of the ceiling (FSDP; the last ranks may be empty), as even as possible, all
// to the last, and one row each with the rest to the first.
std::vector<Split> usual_splits(std::int64_t rows, std::int64_t ranks) {
  std::vector<Split> splits(4);
  const auto chunk = (rows + ranks - 1) / ranks;
  for (std::int64_t r = 0; r < ranks; ++r) {
    splits[0].push_back(std::max<std::int64_t>(0, std::min(chunk, rows - r * chunk)));
    splits[1].push_back(rows / ranks + (r < rows % ranks ? 1 : 0));
    splits[2].push_back(r + 1 == ranks ? rows : 0);
  }
  std::int64_t left = rows;
  splits[3].assign(static_cast<std::size_t>(ranks), 0);
  for (auto r = ranks - 1; r > 0 && left > 0; --r, --left)
    splits[3][static_cast<std::size_t>(r)] = 1;
  splits[3][0] = left;
  return splits;
}

// The box of part `part` of a split along dimension `dim`.
Box part_box(const Dims& shape, std::size_t dim, const Split& split, std::size_t part) {
  Box box = Box::whole(shape);
  for (std::size_t i = 0; i < part; ++i)
    box.offset[dim] += split[i];
  box.extent[dim] = split[part];
  return box;
}

Fleet make_fleet(const Dims& shape, std::size_t source_dim, const Split& sources, std::size_t sink_dim,
                 const Split& sinks) {
  Fleet fleet;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    auto& rank = fleet.sources.emplace_back(SourceRank{"s" + std::to_string(i), "h", {}, {}});
    add_shard(rank, "w", DType::kU16, shape, part_box(shape, source_dim, sources, i));
  }
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    auto& rank = fleet.sinks.emplace_back(SinkRank{"e" + std::to_string(i), "h", {}, {}});
    add_slot(rank, "w", DType::kU16, shape, part_box(shape, sink_dim, sinks, i));
  }
  return fleet;
}

TEST(Splits, EveryCompositionOfSixRowsOverFourByFourRanks) {
  for (std::int64_t rows = 0; rows <= 6; ++rows) {
    std::vector<Split> splits;
    for (std::size_t ranks = 1; ranks <= 4; ++ranks) {
      Split prefix;
      compositions(rows, ranks, prefix, splits);
    }
    for (std::size_t a = 0; a < splits.size(); ++a) {
      for (std::size_t b = 0; b < splits.size(); ++b) {
        auto fleet = make_fleet({rows}, 0, splits[a], 0, splits[b]);
        ASSERT_EQ(check_plan(fleet, 1 << 20), "") << rows << " rows, splits " << a << " and " << b;
      }
    }
  }
}

class SplitsOfRows : public ::testing::TestWithParam<int> {};

TEST_P(SplitsOfRows, UsualSplitsOverUpToEightByEightRanks) {
  const std::int64_t rows = GetParam();
  for (std::int64_t a = 1; a <= 8; ++a) {
    for (std::int64_t b = 1; b <= 8; ++b) {
      for (const auto& sources : usual_splits(rows, a)) {
        for (const auto& sinks : usual_splits(rows, b)) {
          auto along = make_fleet({rows, 2}, 0, sources, 0, sinks);
          ASSERT_EQ(check_plan(along, 1 << 20), "") << a << " x " << b;
        }
      }
    }
  }
}

TEST_P(SplitsOfRows, RowsToColumnsInSmallBuckets) {
  const std::int64_t rows = GetParam();
  for (std::int64_t a = 1; a <= 8; ++a) {
    for (std::int64_t b = 1; b <= 8; b += 2) {
      auto across = make_fleet({rows, 8}, 0, usual_splits(rows, a)[0], 1, usual_splits(8, b)[1]);
      ASSERT_EQ(check_plan(across, 32), "") << a << " x " << b;
      auto back = make_fleet({8, rows}, 1, usual_splits(rows, a)[1], 0, usual_splits(8, b)[0]);
      ASSERT_EQ(check_plan(back, 48), "") << a << " x " << b;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(UpTo24, SplitsOfRows, ::testing::Range(0, 25));

}  // namespace
}  // namespace weightbus::testing
