#include "weightbus/model/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace weightbus::model {
namespace {

using ::testing::HasSubstr;

constexpr auto kMax = std::numeric_limits<std::int64_t>::max();

Slot slot(std::uint32_t tensor, const Box& box, std::uint64_t offset, const Dims& strides) {
  return {tensor, box, {0, offset, strides}, SlotKind::kRaw, Cast::kNone, 0, ""};
}

// Two ranks' worth of ordinary things: a matrix, a scalar, an empty tensor.
SourceManifest source() {
  SourceManifest manifest;
  manifest.tensors = {{"w", DType::kBF16, {4, 8}}, {"scalar", DType::kF32, {}}, {"none", DType::kF32, {0, 8}}};
  manifest.shards = {
      {0, {{0, 0}, {2, 8}}, {0, 0, {8, 1}}}, {1, {}, {0, 32, {}}}, {2, {{0, 0}, {0, 8}}, {0, 0, {8, 1}}}};
  manifest.region_bytes = {36};
  return manifest;
}

SinkManifest sink() {
  SinkManifest manifest;
  manifest.tensors = {{"w", DType::kBF16, {4, 8}}, {"scalar", DType::kF32, {}}};
  manifest.slots = {slot(0, {{0, 0}, {4, 4}}, 0, {4, 1}), slot(1, {}, 32, {})};
  manifest.region_bytes = {36};
  return manifest;
}

template <class Manifest>
void expect_refused(const Manifest& manifest, const std::string& why) {
  const auto status = validate(manifest);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, base::ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().message, HasSubstr(why));
}

TEST(Validate, AcceptsScalarsEmptyBoxesAndEmptyManifests) {
  EXPECT_TRUE(validate(source()));
  EXPECT_TRUE(validate(sink()));
  EXPECT_TRUE(validate(SourceManifest{}));
  EXPECT_TRUE(validate(SinkManifest{}));
}

TEST(Validate, AnEmptyShardNeedsNoRegion) {
  auto manifest = source();
  manifest.shards = {{2, {{0, 0}, {0, 8}}, {9, 1000, {8, 1}}}};
  manifest.region_bytes = {};
  EXPECT_TRUE(validate(manifest));
}

TEST(Validate, RefusesNames) {
  auto manifest = source();
  manifest.tensors[1].name = "w";
  expect_refused(manifest, "'w' is listed twice");
  manifest.tensors[1].name = "";
  expect_refused(manifest, "no name");
}

TEST(Validate, RefusesShapesThatOverflow) {
  auto manifest = source();
  manifest.tensors[0].shape = {kMax, kMax};
  expect_refused(manifest, "impossible shape");
  manifest.tensors[0].shape = {kMax};  // times two bytes
  expect_refused(manifest, "impossible shape");
  manifest.tensors[0].shape = {-4, 8};
  expect_refused(manifest, "impossible shape");
}

TEST(Validate, RefusesBoxesOutsideTheTensor) {
  auto manifest = source();
  manifest.shards[0].box = {{3, 0}, {2, 8}};
  expect_refused(manifest, "'w': the shard does not lie");
  manifest.shards[0].box = {{0}, {2}};
  expect_refused(manifest, "does not lie");
  manifest.shards[0].box = {{kMax, 0}, {kMax, 8}};
  expect_refused(manifest, "does not lie");
  manifest.shards[0].tensor = 3;
  expect_refused(manifest, "tensor 3 of 3");
}

TEST(Validate, RefusesAddressesOutsideTheRegion) {
  auto manifest = source();
  manifest.shards[0].at.offset = 5;
  expect_refused(manifest, "runs past the 36 bytes of region 0");
  manifest.shards[0].at.offset = std::numeric_limits<std::uint64_t>::max();
  expect_refused(manifest, "runs past");
  manifest.shards[0].at = {0, 0, {kMax, 1}};
  expect_refused(manifest, "runs past");
  manifest.shards[0].at = {0, 0, {12, 1}};
  expect_refused(manifest, "runs past");  // the second row ends at byte 40
  manifest.shards[0].at = {1, 0, {8, 1}};
  expect_refused(manifest, "region 1 of 1");
  manifest = source();
  manifest.region_bytes[0] = std::numeric_limits<std::uint64_t>::max();
  expect_refused(manifest, "region 0 claims");
}

TEST(Validate, RefusesStrides) {
  auto manifest = source();
  manifest.shards[0].at.strides = {8};
  expect_refused(manifest, "1 strides for 2 dimensions");
  manifest.shards[0].at.strides = {8, -1};
  expect_refused(manifest, "negative stride");
  manifest.shards[0].at.strides = {0, 1};
  EXPECT_TRUE(validate(manifest)) << "reading one row as two is allowed";
}

TEST(Validate, RefusesAliasesWithoutAnEnd) {
  auto manifest = source();
  manifest.aliases = {{"a", "b"}, {"b", "w"}};
  EXPECT_TRUE(validate(manifest));
  manifest.aliases = {{"a", "b"}, {"b", "c"}, {"c", "a"}};
  expect_refused(manifest, "lead back");
  manifest.aliases = {{"a", "a"}};
  expect_refused(manifest, "lead back");
  manifest.aliases = {{"a", "b"}, {"a", "c"}};
  expect_refused(manifest, "'a' is declared an alias twice");
  manifest.aliases = {{"a", ""}};
  expect_refused(manifest, "lacks a name");
}

TEST(Validate, RefusesSlotsThatOverlap) {
  auto manifest = sink();
  manifest.slots[1].at.offset = 30;
  expect_refused(manifest, "'w' [0:4, 0:4] and 'scalar' [] overlap");
  manifest = sink();
  manifest.slots[0].at.strides = {0, 1};
  expect_refused(manifest, "elements of the slot [0:4, 0:4] overlap");
  manifest.slots[0].at.strides = {3, 1};
  expect_refused(manifest, "elements of the slot");
}

TEST(Validate, AcceptsInterleavedSlotsAndRefusesThemShifted) {
  auto manifest = sink();
  manifest.slots = {slot(0, {{0, 0}, {4, 4}}, 0, {8, 1}), slot(0, {{0, 4}, {4, 4}}, 8, {8, 1})};
  manifest.region_bytes = {64};
  EXPECT_TRUE(validate(manifest));
  manifest.slots[1].at.offset = 6;
  expect_refused(manifest, "overlap in memory");
}

TEST(Validate, RefusesKindsAndCastsThatCannotBe) {
  auto manifest = sink();
  manifest.slots[0].cast = Cast::kF32ToBF16;
  EXPECT_TRUE(validate(manifest));
  manifest.slots[0].cast = Cast::kBF16ToF32;
  expect_refused(manifest, "asks for the cast bf16_to_f32, which does not give BF16");
  manifest = sink();
  manifest.slots[0].kind = static_cast<SlotKind>(9);
  expect_refused(manifest, "unknown kind 9");
}

TEST(LayoutHash, ChangesWithEveryField) {
  const auto base = source();
  std::vector<SourceManifest> variants(10, base);
  variants[1].tensors[0].name = "v";
  variants[2].tensors[0].dtype = DType::kF16;
  variants[3].tensors[0].shape = {5, 8};
  variants[4].shards[0].box.offset[0] = 1;
  variants[5].shards[0].at.offset = 2;
  variants[6].shards[0].at.strides[0] = 9;
  variants[7].region_bytes[0] = 40;
  variants[8].aliases = {{"a", "w"}};
  variants[9].ignored = {"x*"};
  for (std::size_t i = 0; i < variants.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_NE(layout_hash(variants[i]), layout_hash(variants[j])) << i << " " << j;
  }
  std::vector<SinkManifest> sinks(6, sink());
  sinks[1].slots[0].kind = SlotKind::kDerived;
  sinks[2].slots[0].cast = Cast::kF32ToBF16;
  sinks[3].slots[0].fill = 1;
  sinks[4].slots[0].parameter = "p";
  sinks[5].slots[0].at.region = 1;
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_NE(layout_hash(sinks[i]), layout_hash(sinks[j])) << i << " " << j;
  }
  EXPECT_EQ(layout_hash(sink()), layout_hash(sink()));
  EXPECT_NE(layout_hash(SourceManifest{}), layout_hash(SinkManifest{}));
}

TEST(SpanBytes, IsTheReachOfTheLastElement) {
  EXPECT_EQ(span_bytes({{0, 0}, {2, 3}}, {10, 1}, 2), 26U);
  EXPECT_EQ(span_bytes({{0, 0}, {0, 3}}, {kMax, kMax}, 2), 0U);
  EXPECT_EQ(span_bytes(Box{}, Dims{}, 8), 8U);
  EXPECT_EQ(span_bytes({{0}, {3}}, {kMax}, 2), std::nullopt);
  EXPECT_EQ(span_bytes({{0}, {2}}, {kMax / 2}, 4), std::nullopt);
}

TEST(NameMatches, StarsTakeAnyRun) {
  EXPECT_TRUE(name_matches("*", ""));
  EXPECT_TRUE(name_matches("*", "anything"));
  EXPECT_TRUE(name_matches("model.*.weight", "model.layers.0.weight"));
  EXPECT_FALSE(name_matches("model.*.weight", "model.layers.0.bias"));
  EXPECT_TRUE(name_matches("*.weight", "a.weight.weight"));
  EXPECT_TRUE(name_matches("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(name_matches("a*b*c", "a-c-b"));
  EXPECT_FALSE(name_matches("", "a"));
  EXPECT_TRUE(name_matches("", ""));
  EXPECT_FALSE(name_matches("a", "ab"));
  EXPECT_TRUE(name_matches("a**", "a"));
}

TEST(NameMatches, ManyStarsAgainstALongNameEnds) {
  const std::string name(20000, 'a');
  std::string pattern;
  for (int i = 0; i < 50; ++i)
    pattern += "*a";
  EXPECT_FALSE(name_matches(pattern + "b", name));
  EXPECT_TRUE(name_matches(pattern, name));
}

TEST(AsSource, TurnsRawSlotsIntoShardsAndKeepsOneOfEqualBoxes) {
  auto manifest = sink();
  manifest.tensors.push_back({"derived", DType::kF32, {2}});
  manifest.slots.push_back(slot(2, {{0}, {2}}, 40, {1}));
  manifest.slots.back().kind = SlotKind::kDerived;
  manifest.slots.push_back(slot(1, {}, 36, {}));
  manifest.region_bytes = {48};
  manifest.aliases = {{"tied", "w"}};
  ASSERT_TRUE(validate(manifest));
  const auto result = as_source(manifest);
  EXPECT_TRUE(validate(result));
  ASSERT_EQ(result.tensors.size(), 2U) << "what the engine computes itself is no source of anything";
  ASSERT_EQ(result.shards.size(), 2U);
  EXPECT_EQ(result.shards[0].box, manifest.slots[0].box);
  EXPECT_EQ(result.shards[0].at, manifest.slots[0].at);
  EXPECT_EQ(result.shards[1].at.offset, 32U);
  EXPECT_EQ(result.aliases, manifest.aliases);
  EXPECT_EQ(result.region_bytes, manifest.region_bytes);
}

}  // namespace
}  // namespace weightbus::model
