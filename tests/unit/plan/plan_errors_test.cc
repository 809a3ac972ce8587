// What planning refuses, and that it says with whom and what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulation/simulate.h"
#include "weightbus/plan/plan.h"

namespace weightbus::plan {
namespace {

using model::Box;
using model::Cast;
using model::DType;
using testing::add_shard;
using testing::add_slot;
using ::testing::AllOf;
using testing::Fleet;
using ::testing::HasSubstr;
using testing::SinkRank;
using testing::SourceRank;

// Two trainers with half of "w" each, two engines that want all of it.
Fleet fleet() {
  Fleet fleet;
  fleet.sources = {SourceRank{"trainer-0", "a", {}, {}}, SourceRank{"trainer-1", "a", {}, {}}};
  fleet.sinks = {SinkRank{"engine-0", "b", {}, {}}, SinkRank{"engine-1", "b", {}, {}}};
  add_shard(fleet.sources[0], "w", DType::kBF16, {8, 4}, {{0, 0}, {4, 4}});
  add_shard(fleet.sources[1], "w", DType::kBF16, {8, 4}, {{4, 0}, {4, 4}});
  for (auto& sink : fleet.sinks)
    add_slot(sink, "w", DType::kBF16, {8, 4}, Box::whole({8, 4}));
  return fleet;
}

std::string refusal(const Fleet& fleet, PlanOptions options = {}) {
  const auto result = plan(fleet.plan_sources(), fleet.plan_sinks(), options);
  if (result) return "";
  EXPECT_EQ(result.error().code, base::ErrorCode::kInvalidArgument);
  return result.error().message;
}

TEST(PlanErrors, TheFleetItselfIsSound) { EXPECT_EQ(refusal(fleet()), ""); }

TEST(PlanErrors, ASlotThatNoSourceHas) {
  auto broken = fleet();
  add_slot(broken.sinks[1], "scale", DType::kF32, {}, Box{});
  EXPECT_THAT(refusal(broken), AllOf(HasSubstr("'scale'"), HasSubstr("'engine-1'"), HasSubstr("no source")));
}

TEST(PlanErrors, AnEmptySlotStillNeedsItsName) {
  auto broken = fleet();
  add_slot(broken.sinks[1], "gone", DType::kF32, {0}, Box::whole({0}));
  EXPECT_THAT(refusal(broken), HasSubstr("'gone'"));
  add_shard(broken.sources[0], "gone", DType::kF32, {0}, Box::whole({0}));
  EXPECT_EQ(refusal(broken), "");
}

TEST(PlanErrors, ASourceNameThatNobodyWantsUnlessIgnored) {
  auto broken = fleet();
  add_shard(broken.sources[1], "mtp.head.weight", DType::kBF16, {2}, Box::whole({2}));
  EXPECT_THAT(refusal(broken), AllOf(HasSubstr("'mtp.head.weight'"), HasSubstr("'trainer-1'"), HasSubstr("ignored")));
  auto by_source = broken;
  by_source.sources[1].manifest.ignored = {"mtp.*"};
  EXPECT_EQ(refusal(by_source), "");
  auto by_sink = broken;
  by_sink.sinks[0].manifest.ignored = {"*.head.*"};
  EXPECT_EQ(refusal(by_sink), "");
  broken.sinks[0].manifest.ignored = {"mtp"};
  EXPECT_NE(refusal(broken), "");
}

TEST(PlanErrors, AnIgnoredPatternDoesNotExcuseAMissingSlot) {
  auto broken = fleet();
  add_slot(broken.sinks[0], "bias", DType::kBF16, {4}, Box::whole({4}));
  broken.sinks[0].manifest.ignored = {"*"};
  EXPECT_THAT(refusal(broken), HasSubstr("'bias'"));
}

TEST(PlanErrors, DerivedAndConstantSlotsNeedNoSource) {
  auto sound = fleet();
  add_slot(sound.sinks[0], "derived", DType::kF32, {4}, Box::whole({4}));
  sound.sinks[0].manifest.slots.back().kind = model::SlotKind::kDerived;
  add_slot(sound.sinks[0], "padding", DType::kF32, {4}, Box::whole({4}));
  sound.sinks[0].manifest.slots.back().kind = model::SlotKind::kConstant;
  EXPECT_EQ(refusal(sound), "");
  // They do not make a source's tensor wanted either: nobody would write it.
  add_shard(sound.sources[0], "derived", DType::kF32, {4}, Box::whole({4}));
  EXPECT_THAT(refusal(sound), HasSubstr("'derived'"));
}

TEST(PlanErrors, AGap) {
  auto broken = fleet();
  broken.sources[1].manifest.shards[0].box = {{5, 0}, {3, 4}};
  EXPECT_THAT(refusal(broken), AllOf(HasSubstr("'w'"), HasSubstr("[4:5, 0:4]"), HasSubstr("'engine-0'")));
  broken.sources.pop_back();
  EXPECT_THAT(refusal(broken), HasSubstr("[4:8, 0:4]"));
}

TEST(PlanErrors, TheFirstGapInOrderOfNamesIsNamed) {
  auto broken = fleet();
  for (const auto* name : {"z", "b", "m"}) {
    add_shard(broken.sources[0], name, DType::kF32, {4}, {{0}, {3}});
    add_slot(broken.sinks[0], name, DType::kF32, {4}, Box::whole({4}));
  }
  EXPECT_THAT(refusal(broken), AllOf(HasSubstr("'b'"), HasSubstr("[3:4]")));
}

TEST(PlanErrors, AnotherModelsShape) {
  auto broken = fleet();
  broken.sinks[1].manifest.tensors[0].shape = {8, 5};
  EXPECT_THAT(refusal(broken), AllOf(HasSubstr("'w'"), HasSubstr("[8, 4]"), HasSubstr("[8, 5]"),
                                     HasSubstr("'engine-1'"), HasSubstr("'trainer-0'")));
}

TEST(PlanErrors, SourcesThatDisagree) {
  auto broken = fleet();
  broken.sources[1].manifest.tensors[0].dtype = DType::kF16;
  EXPECT_THAT(refusal(broken),
              AllOf(HasSubstr("'w'"), HasSubstr("F16"), HasSubstr("'trainer-1'"), HasSubstr("'trainer-0'")));
  broken = fleet();
  broken.sources[1].manifest.tensors[0].shape = {9, 4};
  EXPECT_THAT(refusal(broken), AllOf(HasSubstr("[9, 4]"), HasSubstr("[8, 4]")));
}

TEST(PlanErrors, ADtypeThatDiffersWithoutACast) {
  auto broken = fleet();
  broken.sinks[1].manifest.tensors[0].dtype = DType::kF32;
  EXPECT_THAT(refusal(broken), AllOf(HasSubstr("'w'"), HasSubstr("BF16"), HasSubstr("F32"), HasSubstr("'engine-1'"),
                                     HasSubstr("must ask for bf16_to_f32")));
  broken.sinks[1].manifest.tensors[0].dtype = DType::kI16;
  EXPECT_THAT(refusal(broken), HasSubstr("there is no such cast"));
}

TEST(PlanErrors, ACastFromAnotherDtypeThanTheSourceHas) {
  auto broken = fleet();
  auto& slot = broken.sinks[0].manifest.slots[0];
  broken.sinks[0].manifest.tensors[slot.tensor].dtype = DType::kF16;
  slot.cast = Cast::kF32ToF16;
  EXPECT_THAT(refusal(broken), AllOf(HasSubstr("f32_to_f16"), HasSubstr("must ask for bf16_to_f16")));
}

TEST(PlanErrors, BucketsOfNoUse) {
  EXPECT_THAT(refusal(fleet(), {15}), HasSubstr("15 bytes is too small"));
  EXPECT_THAT(refusal(fleet(), {0}), HasSubstr("too small"));
  EXPECT_EQ(refusal(fleet(), {16}), "");
}

TEST(PlanErrors, SoManyBucketsThatNobodyCouldListThem) {
  Fleet huge;
  huge.sources = {SourceRank{"trainer-0", "a", {}, {}}};
  huge.sinks = {SinkRank{"engine-0", "b", {}, {}}};
  const std::int64_t size = 1LL << 60;
  add_shard(huge.sources[0], "w", DType::kU8, {size}, Box::whole({size}));
  add_slot(huge.sinks[0], "w", DType::kU8, {size}, Box::whole({size}));
  EXPECT_THAT(refusal(huge), AllOf(HasSubstr("'engine-0'"), HasSubstr("raise the bucket size")));
}

TEST(PlanErrors, AMemberThatIsListedTwice) {
  auto broken = fleet();
  broken.sources[1].id = "trainer-0";
  EXPECT_THAT(refusal(broken), HasSubstr("'trainer-0' is listed twice"));
}

TEST(PlanErrors, NobodyAtAllIsAnEmptyPlan) {
  const auto empty = plan({}, {}, {});
  ASSERT_TRUE(empty);
  EXPECT_EQ((*empty)->bytes(), 0U);
  EXPECT_TRUE((*empty)->links().empty());
}

}  // namespace
}  // namespace weightbus::plan
