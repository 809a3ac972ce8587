#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "weightbus/base/checked_math.h"
#include "weightbus/base/hash.h"
#include "weightbus/base/result.h"
#include "weightbus/base/tagged.h"

namespace weightbus::base {
namespace {

TEST(CheckedMath, ReportsOverflowInsteadOfWrapping) {
  EXPECT_EQ(checked_add<std::uint64_t>(1, 2), 3U);
  EXPECT_EQ(checked_add<std::uint64_t>(std::numeric_limits<std::uint64_t>::max(), 1), std::nullopt);
  EXPECT_EQ(checked_mul<std::int64_t>(std::numeric_limits<std::int64_t>::max(), 2), std::nullopt);
  EXPECT_EQ(checked_round_up<std::uint64_t>(13, 8), 16U);
  EXPECT_EQ(checked_round_up<std::uint64_t>(std::numeric_limits<std::uint64_t>::max() - 2, 8), std::nullopt);
}

TEST(CheckedMath, CastRefusesWhatDoesNotFit) {
  EXPECT_EQ((checked_cast<std::uint32_t>(std::int64_t{-1})), std::nullopt);
  EXPECT_EQ((checked_cast<std::int32_t>(std::uint64_t{1} << 31)), std::nullopt);
  EXPECT_EQ((checked_cast<std::uint8_t>(255)), std::uint8_t{255});
}

TEST(Hash128, RoundTripsThroughText) {
  const Hash128 hash = hash128("weights", 7);
  EXPECT_EQ(Hash128::parse(hash.to_string()), hash);
  EXPECT_EQ(Hash128::parse("short"), std::nullopt);
  EXPECT_EQ(Hash128::parse(std::string(32, 'g')), std::nullopt);
}

TEST(Hasher, SeparatesStringsByTheirLength) {
  Hasher first;
  first.add("ab");
  first.add("c");
  Hasher second;
  second.add("a");
  second.add("bc");
  EXPECT_NE(first.finish(), second.finish());
}

TEST(Tagged, ZeroIsAnOrdinaryValue) {
  using Rank = Tagged<struct RankTag, std::uint32_t>;
  std::optional<Rank> none;
  EXPECT_NE(none, Rank{0});
  EXPECT_LT(Rank{0}, Rank{1});
}

Result<int> half_of(int value) {
  if (value % 2 != 0) return fail(ErrorCode::kInvalidArgument, "{} is odd", value);
  return value / 2;
}
Result<int> quarter_of(int value) {
  WB_ASSIGN(const int half, half_of(value));
  return half_of(half);
}

TEST(Result, AssignReturnsTheFirstError) {
  EXPECT_EQ(quarter_of(8), 2);
  EXPECT_EQ(quarter_of(6).error().message, "3 is odd");
}

}  // namespace
}  // namespace weightbus::base
