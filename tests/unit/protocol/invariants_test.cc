#include "weightbus/protocol/invariants.h"

#include <gtest/gtest.h>

#include "weightbus/protocol/coordinator_state.h"
#include "weightbus/protocol/shard_agent_fsm.h"

namespace weightbus::protocol {
namespace {

const model::ModelName kToy{"toy"};
const model::MemberId kRank{"r"};

Tag tag(std::uint64_t version, std::uint64_t update) {
  return {model::WeightVersion{version}, {1, 1}, model::UpdateId{update}};
}

Decided decision(UpdateKind kind, std::uint64_t update, std::uint64_t version, std::optional<std::uint64_t> base,
                 Tag half) {
  Decided record{kToy, model::UpdateId{update}, kind, std::nullopt, model::WeightVersion{version}};
  if (base) record.base = model::WeightVersion{*base};
  record.engines = {{model::EngineName{"E"}, {{kRank, half}}}};
  return record;
}

class Journal : public ::testing::Test {
 protected:
  void SetUp() override {
    EXPECT_FALSE(checker.add(NumbersReserved{kToy, model::WeightVersion{64}, model::UpdateId{64}}));
    EXPECT_FALSE(checker.add(decision(UpdateKind::kPush, 1, 1, std::nullopt, tag(1, 1))));
    EXPECT_FALSE(checker.add(decision(UpdateKind::kPush, 2, 2, 1, tag(2, 2))));
  }
  JournalChecker checker;
};

TEST_F(Journal, AcceptsAnInstantRollback) {
  EXPECT_FALSE(checker.add(decision(UpdateKind::kRollback, 3, 1, 2, tag(1, 1))));
}
TEST_F(Journal, FindsASecondDecisionOfOneUpdate) {
  EXPECT_TRUE(checker.add(decision(UpdateKind::kPush, 2, 3, 2, tag(3, 2))));
}
TEST_F(Journal, FindsAReusedVersion) { EXPECT_TRUE(checker.add(decision(UpdateKind::kPush, 3, 2, 2, tag(2, 3)))); }
TEST_F(Journal, FindsAnotherBase) { EXPECT_TRUE(checker.add(decision(UpdateKind::kPush, 3, 3, 1, tag(3, 3)))); }
TEST_F(Journal, FindsNumbersThatWereNotReserved) {
  EXPECT_TRUE(checker.add(decision(UpdateKind::kPush, 65, 3, 2, tag(3, 65))));
}
TEST_F(Journal, FindsARollbackToWhatNeverWas) {
  EXPECT_TRUE(checker.add(decision(UpdateKind::kRollback, 3, 9, 2, tag(9, 3))));
}
TEST_F(Journal, FindsAHalfThatNoDecisionNamed) {
  auto record = decision(UpdateKind::kRollback, 3, 1, 2, tag(1, 1));
  record.engines[0].ranks[0].rank = model::MemberId{"another"};
  EXPECT_TRUE(checker.add(record));
}
TEST_F(Journal, FindsAnEndAgainstTheDecision) {
  Ended ended{kToy, UpdateStatus{model::UpdateId{2}, UpdateKind::kPush, Phase::kAborted, std::nullopt,
                                 model::WeightVersion{2}}};
  EXPECT_TRUE(checker.add(ended));
}

TEST(AgentStates, TheTagOfTheLiveHalfStays) {
  AgentState before;
  before.has_arena = true;
  before.halves[0] = Half{tag(1, 1), true};
  AgentState after = before;
  EXPECT_FALSE(check_agent_state(before, after));
  after.halves[0] = Half{};
  EXPECT_TRUE(check_agent_state(before, after));
}

TEST(AgentStates, AHalfIsClearedBeforeItIsWritten) {
  AgentState before;
  before.has_arena = true;
  before.halves[0] = Half{tag(2, 2), true};
  before.halves[1] = Half{tag(1, 1), true};
  AgentState after = before;
  after.halves[1] = Half{tag(3, 3), false};
  EXPECT_TRUE(check_agent_state(before, after));
  after.halves[1] = Half{};
  EXPECT_FALSE(check_agent_state(before, after));
}

TEST(AgentStates, NumbersOnlyGrow) {
  AgentState before;
  before.attempts = 3;
  before.known_epoch = {{7, 7}, 4};
  AgentState after = before;
  after.attempts = 2;
  EXPECT_TRUE(check_agent_state(before, after));
  after = before;
  after.known_epoch.number = 3;
  EXPECT_TRUE(check_agent_state(before, after));
}

TEST(Steps, AllRanksHaveOneVersion) {
  EXPECT_FALSE(check_step("E", {tag(1, 1), tag(1, 2)}));
  EXPECT_TRUE(check_step("E", {tag(1, 1), tag(2, 2)}));
  EXPECT_TRUE(check_step("E", {tag(1, 1), std::nullopt}));
}

// ---------------------------------------------------------------- what replaying gives

TEST(Replay, ADecisionStaysOpenUntilItsEnd) {
  CoordinatorState state;
  state.apply(decision(UpdateKind::kPush, 1, 1, std::nullopt, tag(1, 1)));
  const auto& model = state.models.at(kToy);
  ASSERT_TRUE(model.open);
  EXPECT_EQ(model.committed, model::WeightVersion{1});
  state.apply(Ended{kToy, UpdateStatus{model::UpdateId{1}, UpdateKind::kPush, Phase::kCommitted, std::nullopt,
                                       model::WeightVersion{1}}});
  EXPECT_FALSE(model.open);
  EXPECT_EQ(model.recent.size(), 1U);
}

// ---------------------------------------------------------------- the source of an update

class Source : public ::testing::Test {
 protected:
  Source() : fsm(member(), model::BootId{1}, "test", AgentState{}) { to(std::nullopt, Welcome{500, 0, false, {}}); }
  static model::Member member() { return {model::MemberId{"t"}, model::Role::kShardAgent, kToy, model::HostId{"h"}}; }
  void to(std::optional<std::uint64_t> update, Body body) {
    std::optional<model::UpdateId> id;
    if (update) id = model::UpdateId{*update};
    fsm.step(Now{}, Envelope{{{7, 7}, 1}, kToy, id, kCoordinator, member().id, 0, std::move(body)});
    out = fsm.take_output();
  }
  void done(AgentEvent event) {
    fsm.done(Now{}, event);
    out = fsm.take_output();
  }
  template <class T>
  bool sent() const {
    for (const auto& envelope : out.send) {
      if (std::holds_alternative<T>(envelope.body)) return true;
    }
    return false;
  }
  ShardAgentFsm fsm;
  AgentOutput out;
};

TEST_F(Source, AnswersReleasedAfterTheLastRead) {
  to(1, OpenSource{TrainerSource{}, 1'000});
  done(SourceOpenDone{model::UpdateId{1}, SourceOpened{}});
  EXPECT_TRUE(sent<SourceOpened>());
  to(1, Release{});
  EXPECT_FALSE(sent<Released>()) << "a sink may still read";
  ASSERT_EQ(out.perform.size(), 1U);
  done(SourceReleaseDone{model::UpdateId{1}});
  EXPECT_TRUE(sent<Released>());
  to(1, Release{});
  EXPECT_TRUE(sent<Released>()) << "a repeated Release is answered";
  EXPECT_TRUE(out.perform.empty());
}

TEST_F(Source, AnUpdateThatIsOverIsNotOpenedAgain) {
  to(2, OpenSource{TrainerSource{}, 1'000});
  to(2, Abort{{base::ErrorCode::kAborted, "x"}});
  EXPECT_FALSE(sent<Aborted>());
  done(SourceReleaseDone{model::UpdateId{2}});
  EXPECT_TRUE(sent<Aborted>());
  to(2, OpenSource{TrainerSource{}, 1'000});
  EXPECT_TRUE(out.perform.empty());
  to(1, OpenSource{TrainerSource{}, 1'000});
  EXPECT_TRUE(out.perform.empty());
}

TEST_F(Source, AFailureIsToldAndRepeated) {
  to(1, OpenSource{CheckpointSource{"/missing"}, 1'000});
  done(SourceOpenDone{model::UpdateId{1}, base::fail(base::ErrorCode::kNotFound, "no such folder")});
  EXPECT_TRUE(sent<Failed>());
  to(1, OpenSource{CheckpointSource{"/missing"}, 1'000});
  EXPECT_TRUE(sent<Failed>());
}

}  // namespace
}  // namespace weightbus::protocol
