// Field cases that planning or the digest must find before, or without, an engine's memory being touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulation/simulate.h"
#include "weightbus/base/prng.h"
#include "weightbus/plan/digest.h"
#include "weightbus/plan/plan.h"

namespace weightbus::field {
namespace {

using base::ErrorCode;
using model::Box;
using model::Cast;
using model::Dims;
using model::DType;
using testing::add_shard;
using testing::add_slot;
using ::testing::AllOf;
using testing::check_plan;
using testing::Fleet;
using ::testing::HasSubstr;
using testing::SinkRank;
using testing::SourceRank;

Fleet fleet(std::size_t trainers, std::size_t ranks) {
  Fleet fleet;
  for (std::size_t i = 0; i < trainers; ++i)
    fleet.sources.push_back(SourceRank{"trainer-" + std::to_string(i), "a", {}, {}});
  for (std::size_t i = 0; i < ranks; ++i)
    fleet.sinks.push_back(SinkRank{"engine-0/" + std::to_string(i), "b", {}, {}});
  return fleet;
}
// The error of planning, or "" if it plans.
std::string refusal(const Fleet& fleet) {
  const auto planned = plan::plan(fleet.plan_sources(), fleet.plan_sinks(), {});
  if (planned) return "";
  EXPECT_EQ(planned.error().code, ErrorCode::kInvalidArgument);
  return planned.error().message;
}

// The engine answered success while it had loaded uninitialised memory. A digest is of content: memory that was never
// written, be it zero, a fill byte or the version before, has another one than what was sent.
TEST(Field, F03_MemoryThatWasNotWrittenHasAnotherDigest) {
  const Dims shape{64, 32};
  const auto strides = model::dense_strides(shape);
  const auto seed = plan::digest_seed("w", shape, DType::kBF16, 2);
  const auto digest = [&](const std::vector<std::byte>& bytes) {
    return plan::digest_box(bytes.data(), strides, 2, Box::whole(shape), shape, seed, 2);
  };
  std::vector<std::byte> sent(64 * 32 * 2);
  for (std::size_t i = 0; i < sent.size(); ++i)
    sent[i] = static_cast<std::byte>(base::splitmix64(i) & 0xff);
  auto before = sent;
  before[77] ^= std::byte{1};  // one bit of the version before
  for (const auto& found :
       {std::vector<std::byte>(sent.size()), std::vector<std::byte>(sent.size(), std::byte{0xee}), before}) {
    EXPECT_NE(digest(found).lane0, digest(sent).lane0);
    EXPECT_NE(digest(found).lane1, digest(sent).lane1);
  }
  // Zeros are content like any other: a tensor of them is not nothing.
  EXPECT_NE(digest(std::vector<std::byte>(sent.size())), plan::Digest{});
}

// On a device that it did not support, an update was a successful no-op. What is not implemented must be an error.
TEST(Field, F06_AConversionThatDoesNotExistIsAnErrorNotACopy) {
  auto broken = fleet(1, 1);
  add_shard(broken.sources[0], "w", DType::kF8E4M3, {8}, Box::whole({8}));
  add_slot(broken.sinks[0], "w", DType::kBF16, {8}, Box::whole({8}));
  EXPECT_THAT(refusal(broken), AllOf(HasSubstr("'w'"), HasSubstr("no such cast")));
}

// Transposed or sliced tensors arrived shuffled. Strides are part of the address: on both sides, every element arrives
// where it belongs; what strides cannot say is refused by name.
TEST(Field, F09_TransposedAndSlicedTensorsArriveInOrder) {
  for (const bool source_transposed : {false, true}) {
    for (const bool sink_transposed : {false, true}) {
      for (const std::int64_t pad : {0, 3}) {
        auto strided = fleet(2, 2);
        for (std::int64_t i = 0; i < 2; ++i) {
          const auto at = static_cast<std::size_t>(i);
          add_shard(strided.sources[at], "w", DType::kBF16, {10, 7}, {{5 * i, 0}, {5, 7}}, source_transposed, pad);
          add_slot(strided.sinks[at], "w", DType::kBF16, {10, 7}, {{0, 4 * i}, {10, i == 0 ? 4 : 3}}, Cast::kNone,
                   sink_transposed, pad);
        }
        EXPECT_EQ(check_plan(strided, 48), "") << source_transposed << sink_transposed << pad;
      }
    }
  }
}

TEST(Field, F09_StridesThatCannotBeFollowedAreRefusedByName) {
  auto broken = fleet(1, 1);
  add_shard(broken.sources[0], "flipped", DType::kBF16, {4, 4}, Box::whole({4, 4}));
  broken.sources[0].manifest.shards[0].at.strides = {-4, 1};
  const auto status = model::validate(broken.sources[0].manifest);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("flipped"));
  // A slot whose rows lie over each other would be written twice.
  add_slot(broken.sinks[0], "expanded", DType::kBF16, {4, 4}, Box::whole({4, 4}));
  broken.sinks[0].manifest.slots[0].at.strides = {0, 1};
  const auto overlap = model::validate(broken.sinks[0].manifest);
  ASSERT_FALSE(overlap);
  EXPECT_THAT(overlap.error().message, HasSubstr("expanded"));
}

// A tensor larger than the bucket size failed, or made one giant bucket. It is split over buckets.
TEST(Field, F10_ATensorLargerThanABucketIsSplitOverBuckets) {
  auto large = fleet(1, 2);
  add_shard(large.sources[0], "embed", DType::kBF16, {100, 24}, Box::whole({100, 24}));
  add_shard(large.sources[0], "one_row", DType::kF32, {1, 999}, Box::whole({1, 999}));
  for (auto& sink : large.sinks) {
    add_slot(sink, "embed", DType::kBF16, {100, 24}, {{10, 0}, {80, 24}});
    add_slot(sink, "one_row", DType::kF32, {1, 999}, Box::whole({1, 999}));
  }
  constexpr std::uint64_t kBucketBytes = 512;
  EXPECT_EQ(check_plan(large, kBucketBytes), "");
  const auto planned = plan::plan(large.plan_sources(), large.plan_sinks(), {kBucketBytes});
  ASSERT_TRUE(planned);
  const auto part = (*planned)->sink_part(0);
  EXPECT_GE(part.buckets.size(), 80U * 24 * 2 / kBucketBytes);
  for (const auto& bucket : part.buckets)
    EXPECT_LE(bucket.bytes, kBucketBytes);
}

// Ranks held different numbers of dtypes, or no tensor at all, and the gather of metadata broke.
TEST(Field, F11_RanksOfDifferentDtypesAndARankOfNothingPlanTogether) {
  auto mixed = fleet(4, 2);
  add_shard(mixed.sources[0], "w", DType::kBF16, {8, 4}, {{0, 0}, {8, 4}});
  add_shard(mixed.sources[0], "scale", DType::kF32, {8}, Box::whole({8}));
  add_shard(mixed.sources[0], "table", DType::kI64, {5}, Box::whole({5}));
  add_shard(mixed.sources[1], "q", DType::kF8E4M3, {6, 4}, {{0, 0}, {1, 4}});
  add_shard(mixed.sources[2], "q", DType::kF8E4M3, {6, 4}, {{1, 0}, {5, 4}});
  // trainer-3 holds nothing.
  for (auto& sink : mixed.sinks) {
    add_slot(sink, "w", DType::kBF16, {8, 4}, Box::whole({8, 4}));
    add_slot(sink, "scale", DType::kF32, {8}, Box::whole({8}));
    add_slot(sink, "table", DType::kI64, {5}, Box::whole({5}));
  }
  add_slot(mixed.sinks[1], "q", DType::kF8E4M3, {6, 4}, Box::whole({6, 4}));
  EXPECT_EQ(check_plan(mixed, 1 << 20), "");
  const auto planned = plan::plan(mixed.plan_sources(), mixed.plan_sinks(), {});
  ASSERT_TRUE(planned);
  EXPECT_TRUE((*planned)->source_part(3).buckets.empty());
}

// FP8 tensors were sent without their scales, or with scales of another layout. Coverage names every slot that is not
// written, before anything moves.
TEST(Field, F14_ScalesThatAreMissingOrLaidOutOtherwiseAreNamed) {
  const auto quantised = [](const Dims& scale_shape, const Box& scale_box) {
    auto result = fleet(1, 1);
    add_shard(result.sources[0], "mlp.down_proj.weight", DType::kF8E4M3, {256, 128}, Box::whole({256, 128}));
    if (scale_shape.size() > 0)
      add_shard(result.sources[0], "mlp.down_proj.weight_scale_inv", DType::kF32, scale_shape, scale_box);
    add_slot(result.sinks[0], "mlp.down_proj.weight", DType::kF8E4M3, {256, 128}, Box::whole({256, 128}));
    add_slot(result.sinks[0], "mlp.down_proj.weight_scale_inv", DType::kF32, {2, 1}, Box::whole({2, 1}));
    return result;
  };
  EXPECT_EQ(refusal(quantised({2, 1}, Box::whole({2, 1}))), "");
  EXPECT_THAT(refusal(quantised({}, {})), AllOf(HasSubstr("'mlp.down_proj.weight_scale_inv'"), HasSubstr("no source")));
  EXPECT_THAT(refusal(quantised({256, 1}, Box::whole({256, 1}))),
              AllOf(HasSubstr("'mlp.down_proj.weight_scale_inv'"), HasSubstr("[256, 1]"), HasSubstr("[2, 1]")));
  EXPECT_THAT(refusal(quantised({2, 1}, {{0, 0}, {1, 1}})),
              AllOf(HasSubstr("'mlp.down_proj.weight_scale_inv'"), HasSubstr("[1:2, 0:1]")));
}

// A tied lm_head kept its old values. Both names hold the new bytes, and they travel once where they share memory.
TEST(Field, F15_BothNamesOfATiedTensorHoldTheNewBytes) {
  auto tied = fleet(1, 2);
  add_shard(tied.sources[0], "model.embed_tokens.weight", DType::kBF16, {16, 4}, Box::whole({16, 4}));
  // One engine rank shares the memory of both names; the other has a copy under each.
  add_slot(tied.sinks[0], "model.embed_tokens.weight", DType::kBF16, {16, 4}, Box::whole({16, 4}));
  add_slot(tied.sinks[1], "model.embed_tokens.weight", DType::kBF16, {16, 4}, Box::whole({16, 4}));
  add_slot(tied.sinks[1], "lm_head.weight", DType::kBF16, {16, 4}, Box::whole({16, 4}));
  for (auto& sink : tied.sinks)
    sink.manifest.aliases = {{"lm_head.weight", "model.embed_tokens.weight"}};
  tied.content = {{"lm_head.weight", "model.embed_tokens.weight"}};
  EXPECT_EQ(check_plan(tied, 1 << 20), "");
  const auto planned = plan::plan(tied.plan_sources(), tied.plan_sinks(), {});
  ASSERT_TRUE(planned);
  EXPECT_EQ((*planned)->sink_part(0).bytes, 128U);
  EXPECT_EQ((*planned)->source_part(0).units.size(), 1U) << "one content, digested once";
  // Undeclared, the second name is a slot that nobody writes.
  tied.sinks[1].manifest.aliases.clear();
  tied.sinks[0].manifest.aliases.clear();
  EXPECT_THAT(refusal(tied), HasSubstr("'lm_head.weight'"));
}

// One of 113 tensors was loaded, the rest skipped by name, and success returned.
TEST(Field, F16_ANameThatMatchesNothingIsAnErrorOnEitherSide) {
  auto renamed = fleet(1, 1);
  for (int i = 0; i < 113; ++i) {
    const auto name = "layers." + std::to_string(i) + ".weight";
    add_shard(renamed.sources[0], name, DType::kBF16, {4}, Box::whole({4}));
    add_slot(renamed.sinks[0], i == 0 ? name : "model." + name, DType::kBF16, {4}, Box::whole({4}));
  }
  EXPECT_THAT(refusal(renamed), AllOf(HasSubstr("layers.1"), HasSubstr("no source")));
  // Ignoring what the trainer has does not excuse what the engine lacks.
  renamed.sinks[0].manifest.ignored = {"*"};
  EXPECT_THAT(refusal(renamed), HasSubstr("model.layers."));
  // The other way about: the engine is complete, and the trainer sends something that nobody wants.
  auto extra = fleet(1, 1);
  add_shard(extra.sources[0], "w", DType::kBF16, {4}, Box::whole({4}));
  add_shard(extra.sources[0], "mtp.weight", DType::kBF16, {4}, Box::whole({4}));
  add_slot(extra.sinks[0], "w", DType::kBF16, {4}, Box::whole({4}));
  EXPECT_THAT(refusal(extra), AllOf(HasSubstr("'mtp.weight'"), HasSubstr("ignored")));
  extra.sources[0].manifest.ignored = {"mtp.*"};
  EXPECT_EQ(refusal(extra), "");
}

// A model of another size was pushed and corrupted the engine.
TEST(Field, F19_AnotherModelsShapeIsRefusedByName) {
  auto other = fleet(1, 1);
  add_shard(other.sources[0], "model.embed_tokens.weight", DType::kBF16, {32, 8}, Box::whole({32, 8}));
  add_slot(other.sinks[0], "model.embed_tokens.weight", DType::kBF16, {32, 4}, Box::whole({32, 4}));
  EXPECT_THAT(refusal(other), AllOf(HasSubstr("'model.embed_tokens.weight'"), HasSubstr("[32, 8]"),
                                    HasSubstr("[32, 4]"), HasSubstr("'trainer-0'"), HasSubstr("'engine-0/0'")));
}

// Zero-size and 0-dimensional tensors broke packing. Both are ordinary.
TEST(Field, F22_EmptyAndScalarTensorsAreOrdinary) {
  auto odd = fleet(2, 2);
  for (auto& source : odd.sources)
    add_shard(source, "scalar", DType::kF32, {}, Box{});
  add_shard(odd.sources[0], "nothing", DType::kBF16, {0, 16}, Box::whole({0, 16}));
  add_shard(odd.sources[0], "w", DType::kBF16, {3, 2}, Box::whole({3, 2}));
  add_shard(odd.sources[1], "w", DType::kBF16, {3, 2}, {{3, 0}, {0, 2}});
  for (auto& sink : odd.sinks) {
    add_slot(sink, "scalar", DType::kF32, {}, Box{});
    add_slot(sink, "nothing", DType::kBF16, {0, 16}, Box::whole({0, 16}));
    add_slot(sink, "w", DType::kBF16, {3, 2}, Box::whole({3, 2}));
  }
  EXPECT_EQ(check_plan(odd, 16), "");
  // A model of nothing but them.
  auto only = fleet(1, 1);
  add_shard(only.sources[0], "nothing", DType::kBF16, {0}, Box::whole({0}));
  add_slot(only.sinks[0], "nothing", DType::kBF16, {0}, Box::whole({0}));
  const auto planned = plan::plan(only.plan_sources(), only.plan_sinks(), {});
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_EQ((*planned)->bytes(), 0U);
}

}  // namespace
}  // namespace weightbus::field
