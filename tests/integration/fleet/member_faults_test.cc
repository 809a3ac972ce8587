// Members and readers that die or stop, at any moment: what was served stays whole, and the fleet gets going again.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/integration/fleet/faults.h"
#include "tests/integration/fleet/readers.h"

namespace weightbus::testing {
namespace {

using protocol::ModelStatus;
using protocol::Phase;
using protocol::UpdateKind;

class MemberFaults : public ::testing::Test {
 protected:
  // Version 1 serves everywhere, with a reader on each rank.
  void begin() {
    const auto update = fleet_.push_to_end(fleet_.checkpoint(0, "small"));
    ASSERT_EQ(update.phase, Phase::kCommitted) << describe(update);
    fleet_.wait_serving(1);
    readers_ = std::make_unique<Readers>(fleet_, std::vector<unsigned>{0, 1});
    readers_->saw(1);
  }
  void next_push_works() {
    const auto update = fleet_.push_to_end(fleet_.checkpoint(0, "small"));
    ASSERT_EQ(update.phase, Phase::kCommitted) << describe(update);
    fleet_.wait_serving(update.target.value());
    readers_->saw(update.target.value());
    readers_->finish();
  }
  void wait_joined_again(const std::string& member) {
    fleet_.wait_for(member + " to come back", [&](const ModelStatus& status) {
      std::size_t joined = 0;
      for (const auto& event : status.events)
        joined += event.text.starts_with(member + " joined") ? 1U : 0U;
      return joined >= 2;
    });
  }

  // So that those who hang or are gone are missed soon.
  Fleet fleet_{{.coordinator = {{"member_timeout", "3s"}, {"pause_deadline", "3s"}, {"commit_deadline", "8s"}}}};
  std::unique_ptr<Readers> readers_;
};

TEST_F(MemberFaults, AnEngineWorkerKilledWhileIdleComesBackWithItsVersion) {
  begin();
  fleet_.engine(0, 1).kill_worker();
  wait_joined_again(Fleet::member(0, 1));
  fleet_.wait_serving(1);
  for (const auto& update : fleet_.status().recent) {
    if (update.kind == UpdateKind::kPush) continue;
    EXPECT_EQ(update.bytes_done, 0U) << describe(update);
  }
  next_push_works();
}

TEST_F(MemberFaults, AKeeperKilledWhileIdleComesBackWithItsVersion) {
  begin();
  fleet_.engine(1, 0).kill_keeper();
  fleet_.engine(1, 0).start();
  wait_joined_again(Fleet::member(1, 0));
  fleet_.wait_serving(1);
  for (const auto& update : fleet_.status().recent) {
    if (update.kind == UpdateKind::kPush) continue;
    EXPECT_EQ(update.bytes_done, 0U) << describe(update);
  }
  next_push_works();
}

TEST_F(MemberFaults, AnEngineKilledWhileStagingAbortsThePushAndTheNextOneWorks) {
  begin();
  const auto update =
      interrupt(fleet_, {Phase::kAccepted, Phase::kStaging}, [&] { fleet_.engine(1, 0).kill_worker(); });
  ASSERT_TRUE(update);
  EXPECT_EQ(update->phase, Phase::kAborted) << describe(*update);
  EXPECT_TRUE(names(*update, Fleet::member(1, 0))) << describe(*update);
  next_push_works();
}

TEST_F(MemberFaults, AnEngineKilledWhileStagingIsLeftBehindWhenOneIsEnoughAndCatchesUp) {
  begin();
  const auto update = interrupt(
      fleet_, {Phase::kAccepted, Phase::kStaging}, [&] { fleet_.engine(1, 1).kill_worker(); }, 1);
  ASSERT_TRUE(update);
  EXPECT_EQ(update->phase, Phase::kCommitted) << describe(*update);
  fleet_.wait_serving(update->target.value());
  next_push_works();
}

TEST_F(MemberFaults, AKeeperKilledWhileStagingAbortsThePushAndComesBack) {
  begin();
  const auto update =
      interrupt(fleet_, {Phase::kAccepted, Phase::kStaging}, [&] { fleet_.engine(0, 0).kill_keeper(); });
  ASSERT_TRUE(update);
  EXPECT_EQ(update->phase, Phase::kAborted) << describe(*update);
  EXPECT_TRUE(names(*update, Fleet::member(0, 0))) << describe(*update);
  fleet_.engine(0, 0).start();
  fleet_.wait_serving(fleet_.committed());
  next_push_works();
}

TEST_F(MemberFaults, AnEngineThatHangsWhileStagingIsLostAndComesBack) {
  begin();
  const auto update =
      interrupt(fleet_, {Phase::kAccepted, Phase::kStaging}, [&] { fleet_.engine(1, 1).signal_worker(SIGSTOP); });
  ASSERT_TRUE(update);
  EXPECT_EQ(update->phase, Phase::kAborted) << describe(*update);
  EXPECT_TRUE(names(*update, Fleet::member(1, 1))) << describe(*update);
  fleet_.engine(1, 1).signal_worker(SIGCONT);
  next_push_works();
}

TEST_F(MemberFaults, AShardAgentKilledInAnUpdateAbortsItAndTheNextOneWorks) {
  begin();
  fleet_.trainer(0).signal_worker(SIGSTOP);
  const auto accepted = fleet_.push(fleet_.checkpoint(1, "small"));
  ASSERT_TRUE(accepted) << accepted.error().message;
  fleet_.wait_for("the update to begin", [](const ModelStatus& status) { return status.running.has_value(); });
  fleet_.trainer(0).kill_worker();
  const auto update = fleet_.end_of(accepted->update);
  EXPECT_EQ(update.phase, Phase::kAborted) << describe(update);
  EXPECT_TRUE(names(update, "trainer-0")) << describe(update);
  wait_joined_again("trainer-0");
  next_push_works();
}

TEST_F(MemberFaults, AShardAgentKilledWhileStagingAbortsThePush) {
  begin();
  const auto update = interrupt(fleet_, {Phase::kAccepted, Phase::kStaging}, [&] { fleet_.trainer(1).kill_worker(); });
  ASSERT_TRUE(update);
  EXPECT_EQ(update->phase, Phase::kAborted) << describe(*update);
  EXPECT_TRUE(names(*update, "trainer-1")) << describe(*update);
  wait_joined_again("trainer-1");
  next_push_works();
}

TEST_F(MemberFaults, AReaderStuckInAStepKeepsItsEngineBackAndNobodyElse) {
  begin();
  auto& stuck = readers_->of(Fleet::member(0, 1));
  stuck.stop();
  const auto update = fleet_.push_to_end(fleet_.checkpoint(1, "small"));
  EXPECT_EQ(update.phase, Phase::kCommitted) << describe(update);
  for (const auto& engine : update.engines)
    EXPECT_EQ(engine.committed, engine.engine == "engine-1") << describe(update);
  EXPECT_TRUE(readers_->of(Fleet::member(1, 0)).saw_version(2));
  const auto status = fleet_.status();
  for (const auto& member : status.members) {
    if (member.member.engine != "engine-0") continue;
    EXPECT_TRUE(member.quarantined);
    EXPECT_EQ(member.live->version.value(), 1U) << member.member.id.value();
  }
  stuck.signal(SIGCONT);
  fleet_.wait_serving(2);
  next_push_works();
}

TEST_F(MemberFaults, AReaderKilledWhileItsEnginePausesHoldsNobodyUp) {
  begin();
  ReaderProcess extra({"--socket", fleet_.socket(0, 0), "--step-us", "500"});
  ASSERT_TRUE(extra.saw_version(1));
  extra.stop();
  const auto accepted = fleet_.push(fleet_.checkpoint(1, "small"));
  ASSERT_TRUE(accepted) << accepted.error().message;
  fleet_.wait_for("the commit", [](const ModelStatus& status) {
    return status.running && status.running->phase == Phase::kCommitting;
  });
  extra.signal(SIGKILL);
  const auto update = fleet_.end_of(accepted->update);
  EXPECT_EQ(update.phase, Phase::kCommitted) << describe(update);
  fleet_.wait_serving(2);
  next_push_works();
}

TEST_F(MemberFaults, ADriverKilledWhileItsEngineIsPausedIsFollowedByItsNextStart) {
  begin();
  ReaderProcess extra({"--socket", fleet_.socket(0, 1), "--step-us", "500"});
  ASSERT_TRUE(extra.saw_version(1));
  extra.stop();  // so that rank 1 cannot say Paused, while rank 0 has
  const auto accepted = fleet_.push(fleet_.checkpoint(1, "small"));
  ASSERT_TRUE(accepted) << accepted.error().message;
  fleet_.wait_for("the commit", [](const ModelStatus& status) {
    return status.running && status.running->phase == Phase::kCommitting;
  });
  fleet_.engine(0, 0).kill_worker();
  extra.signal(SIGCONT);
  const auto update = fleet_.end_of(accepted->update);
  EXPECT_EQ(update.phase, Phase::kCommitted) << describe(update);
  fleet_.wait_serving(2);
  next_push_works();
  extra.finish();
  EXPECT_EQ(extra.wait(), 0);
}

}  // namespace
}  // namespace weightbus::testing
