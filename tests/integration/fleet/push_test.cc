// What a fleet is for: versions pushed and rolled back, seen whole by the processes that compute with them.
#include <gtest/gtest.h>

#include "tests/integration/fleet/readers.h"
#include "tests/support/fleet.h"

namespace weightbus::testing {
namespace {

using protocol::Phase;

const protocol::EngineResult* result_of(const protocol::UpdateStatus& update, const std::string& engine) {
  for (const auto& result : update.engines) {
    if (result.engine == engine) return &result;
  }
  return nullptr;
}

void expect_equal_live(Fleet& fleet, std::uint64_t version) {
  const auto live = fleet.live_digests();
  ASSERT_EQ(live.size(), 4U);
  for (unsigned rank = 0; rank < 2; ++rank) {
    const auto& first = live.at(Fleet::member(0, rank));
    EXPECT_EQ(first.first, version);
    EXPECT_EQ(first, live.at(Fleet::member(1, rank)));
  }
  EXPECT_NE(live.at(Fleet::member(0, 0)).second, live.at(Fleet::member(0, 1)).second);
}

TEST(Push, ReadersSeeWholeVersionsAndEveryEngineTheSame) {
  Fleet fleet;
  const auto first = fleet.push_to_end(fleet.checkpoint(0));
  ASSERT_EQ(first.phase, Phase::kCommitted) << describe(first);
  EXPECT_GT(first.digests_compared, 0U);
  EXPECT_GT(first.bytes_total, 0U);
  fleet.wait_serving(first.target.value());
  expect_equal_live(fleet, first.target.value());
  const auto before = fleet.live_digests();
  Readers readers(fleet, {0, 1});
  readers.saw(first.target.value());
  const auto second = fleet.push_to_end(fleet.checkpoint(1));
  ASSERT_EQ(second.phase, Phase::kCommitted) << describe(second);
  EXPECT_GT(second.target, first.target);
  readers.saw(second.target.value());
  for (const auto& [member, versions] : readers.finish())
    EXPECT_EQ(versions.size(), 2U) << member;
  fleet.wait_serving(second.target.value());
  expect_equal_live(fleet, second.target.value());
  for (const auto& [member, live] : fleet.live_digests())
    EXPECT_NE(live.second, before.at(member).second) << member;
}

TEST(Push, AReaderThatIgnoresThePauseIsCaughtByTheSameCheck) {
  Fleet fleet({.engines = {2}});
  ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0)).phase, Phase::kCommitted);
  ReaderProcess reader({"--socket", fleet.socket(0, 0), "--ignore-pause", "--stop-on-violation", "--step-us", "20000"});
  ASSERT_TRUE(reader.saw_version(1));
  for (unsigned push = 1; push < 200 && !reader.has_ended(); ++push) {
    const auto update = fleet.push_to_end(fleet.checkpoint(push % 3));
    ASSERT_EQ(update.phase, Phase::kCommitted) << describe(update);
  }
  EXPECT_EQ(reader.wait(), 3);
}

TEST(Push, RollbackIsInstantFromTheShadowAndATransferFromASnapshot) {
  Fleet fleet;
  for (unsigned variant = 0; variant < 3; ++variant) {
    ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(variant)).phase, Phase::kCommitted);
    fleet.wait_snapshots(variant + 1);
  }
  Readers readers(fleet, {0, 1});
  readers.saw(3);
  const auto before = fleet.live_digests();
  const auto instant = fleet.rollback_to_end();
  ASSERT_EQ(instant.phase, Phase::kCommitted) << describe(instant);
  EXPECT_EQ(instant.target.value(), 2U);
  EXPECT_TRUE(instant.instant);
  EXPECT_EQ(instant.bytes_done, 0U);
  readers.saw(2);
  const auto transfer = fleet.rollback_to_end(1);
  ASSERT_EQ(transfer.phase, Phase::kCommitted) << describe(transfer);
  EXPECT_FALSE(transfer.instant);
  EXPECT_GT(transfer.bytes_total, 0U);
  readers.saw(1);
  // Forward again is a rollback too, and brings back the same bytes.
  const auto forward = fleet.rollback_to_end(3);
  ASSERT_EQ(forward.phase, Phase::kCommitted) << describe(forward);
  readers.saw(3);
  for (const auto& [member, versions] : readers.finish())
    EXPECT_EQ(versions.size(), 3U) << member;
  EXPECT_EQ(fleet.live_digests(), before);
}

TEST(Push, OtherHostsAreServedOverTcpAndProvenAlike) {
  Fleet fleet({.trainer = {{"host", "trainer-host"}}, .engine = {{"host", "engine-host"}}});
  for (unsigned variant = 0; variant < 2; ++variant) {
    const auto update = fleet.push_to_end(fleet.checkpoint(variant));
    ASSERT_EQ(update.phase, Phase::kCommitted) << describe(update);
    EXPECT_GT(update.digests_compared, 0U);
    for (const auto& engine : update.engines)
      EXPECT_EQ(engine.channels, "tcp") << engine.engine;
  }
  fleet.wait_serving(2);
  expect_equal_live(fleet, 2);
}

TEST(Push, EnginesNearAndFarTakeTheirOwnChannelsAndEndAlike) {
  Fleet fleet({.engines = {2}, .trainer = {{"host", "a"}}, .engine = {{"host", "a"}}});
  fleet.add_engine(1, 2, {{"host", "b"}});
  fleet.wait_joined();
  const auto update = fleet.push_to_end(fleet.checkpoint(0));
  ASSERT_EQ(update.phase, Phase::kCommitted) << describe(update);
  ASSERT_NE(result_of(update, "engine-0"), nullptr);
  ASSERT_NE(result_of(update, "engine-1"), nullptr);
  EXPECT_EQ(result_of(update, "engine-0")->channels, "shm");
  EXPECT_EQ(result_of(update, "engine-1")->channels, "tcp");
  fleet.wait_serving(1);
  expect_equal_live(fleet, 1);
}

TEST(Push, TrainersAndEnginesMayBeCutInAnyWay) {
  Fleet fleet({.trainers = 3, .engines = {1, 2}});
  const auto update = fleet.push_to_end(fleet.checkpoint(0));
  ASSERT_EQ(update.phase, Phase::kCommitted) << describe(update);
  fleet.wait_serving(1);
}

}  // namespace
}  // namespace weightbus::testing
