// A slot that casts, filled again from what an engine already holds: a peer's live half, or a snapshot.
#include <gtest/gtest.h>

#include "weightbus/plan/plan.h"

namespace weightbus::plan {
namespace {

model::SinkManifest casting_sink() {
  model::SinkManifest sink;
  sink.tensors = {{"w", model::DType::kBF16, {4, 2}}};
  sink.slots = {{0, {{0, 0}, {4, 2}}, {0, 0, {2, 1}}, model::SlotKind::kRaw, model::Cast::kF32ToBF16, 0, "w"}};
  sink.region_bytes = {16};
  return sink;
}

base::Result<std::shared_ptr<const ReshardPlan>> plan_from(const model::SourceManifest& source,
                                                           const model::SinkManifest& sink) {
  const PlanSource from{model::MemberId{"from"}, model::HostId{"h"}, "", &source};
  const PlanSink to{model::MemberId{"to"}, model::HostId{"h"}, "", &sink};
  return plan({&from, 1}, {&to, 1}, {});
}

TEST(RestoredCast, APeersConvertedBytesAreCopiedAsTheyAre) {
  const auto sink = casting_sink();
  const auto planned = plan_from(model::as_source(sink), sink);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_EQ((*planned)->sink_part(0).tensors.at(0).cast, model::Cast::kNone);
  EXPECT_EQ((*planned)->bytes(), 16U);
}

TEST(RestoredCast, TheTrainersDtypeIsStillCast) {
  auto sink = casting_sink();
  model::SourceManifest source;
  source.tensors = {{"w", model::DType::kF32, {4, 2}}};
  source.shards = {{0, {{0, 0}, {4, 2}}, {0, 0, {2, 1}}}};
  source.region_bytes = {32};
  const auto planned = plan_from(source, sink);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_EQ((*planned)->sink_part(0).tensors.at(0).cast, model::Cast::kF32ToBF16);
  sink.slots[0].cast = model::Cast::kNone;
  EXPECT_FALSE(plan_from(source, sink));
}

}  // namespace
}  // namespace weightbus::plan
