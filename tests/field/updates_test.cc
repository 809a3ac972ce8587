// Field cases of an update as a whole: what a fault in the middle of one does to the engines, and to the next one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/field/fleet.h"

namespace weightbus::field {
namespace {

using base::ErrorCode;
using protocol::Phase;
using ::testing::HasSubstr;

template <class Action>
Fate on(const Agent& agent, const protocol::AgentAction& action, const std::string& member, Fate fate) {
  return std::holds_alternative<Action>(action) && agent.self.id.value() == member ? fate : Fate::kDone;
}
template <class Message>
std::size_t count(const Fleet& fleet) {
  return static_cast<std::size_t>(std::ranges::count_if(
      fleet.sent(), [](const auto& envelope) { return std::holds_alternative<Message>(envelope.body); }));
}
std::uint64_t pulls(Fleet& fleet) {
  std::uint64_t all = 0;
  for (const auto& [id, agent] : fleet.agents())
    all += agent.pulls;
  return all;
}
void expect_committed(Fleet& fleet, std::uint64_t content) {
  EXPECT_EQ(fleet.last().phase, Phase::kCommitted) << (fleet.last().error ? fleet.last().error->message : "");
  EXPECT_TRUE(fleet.all_serve(content));
  for (const char* rank : {"engine-0/0", "engine-0/1", "engine-1/0", "engine-1/1"})
    EXPECT_TRUE(fleet.ready(rank)) << rank << ": " << fleet.why_not_ready(rank);
}
// The update that ran last was aborted, and every engine computes with `content`, ready, as if nothing had happened.
void expect_aborted(Fleet& fleet, std::uint64_t content, ErrorCode code, const std::string& who) {
  const auto last = fleet.last();
  EXPECT_EQ(last.phase, Phase::kAborted);
  ASSERT_TRUE(last.error);
  EXPECT_EQ(last.error->code, code) << last.error->message;
  EXPECT_THAT(last.error->message, HasSubstr(who));
  EXPECT_TRUE(fleet.all_serve(content));
  for (const char* rank : {"engine-0/0", "engine-0/1", "engine-1/0", "engine-1/1"})
    EXPECT_TRUE(fleet.ready(rank)) << rank << ": " << fleet.why_not_ready(rank);
}

// An update failed halfway, parameters stayed unusable, and the next request crashed the engine. Live memory must be
// untouched until commit: a stage that breaks off leaves the engine serving the version it had.
TEST(Field, F01_AStageThatBreaksOffHalfwayLeavesTheOldVersionServing) {
  Fleet fleet;
  fleet.push(1);
  expect_committed(fleet, 1);
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoPull>(agent, action, "engine-1/1", Fate::kHalfWritten);
  };
  fleet.push(2);
  expect_aborted(fleet, 1, ErrorCode::kUnavailable, "engine-1/1");
  EXPECT_EQ(fleet.status().committed, model::WeightVersion(1));
  EXPECT_GT(pulls(fleet), 4U) << "bytes of the second version were on their way";
}

TEST(Field, F01_WhicheverStepFailsTheOldVersionServes) {
  using namespace protocol;
  const std::vector<std::function<Fate(const Agent&, const AgentAction&)>> faults = {
      [](const auto& agent, const auto& a) { return on<DoOpenSource>(agent, a, "shard-1", Fate::kFails); },
      [](const auto& agent, const auto& a) { return on<DoServe>(agent, a, "shard-0", Fate::kFails); },
      [](const auto& agent, const auto& a) { return on<DoDigestSource>(agent, a, "shard-1", Fate::kFails); },
      [](const auto& agent, const auto& a) { return on<DoJoin>(agent, a, "engine-0/1", Fate::kFails); },
      [](const auto& agent, const auto& a) { return on<DoPull>(agent, a, "engine-0/0", Fate::kFails); },
  };
  const char* const who[] = {"shard-1", "shard-0", "shard-1", "engine-0/1", "engine-0/0"};
  for (std::size_t i = 0; i < faults.size(); ++i) {
    SCOPED_TRACE(i);
    Fleet fleet;
    fleet.push(1);
    fleet.fate = faults[i];
    fleet.push(2);
    expect_aborted(fleet, 1, ErrorCode::kUnavailable, who[i]);
  }
}

// After a failed update its session stayed "active", and every later update was refused. The next push must work at
// once.
TEST(Field, F02_TheNextPushWorksAtOnceAfterAnAbort) {
  Fleet fleet;
  fleet.push(1);
  for (std::uint64_t round = 0; round < 5; ++round) {
    fleet.fate = [](const auto& agent, const auto& action) {
      return on<protocol::DoPull>(agent, action, "engine-0/1", Fate::kHalfWritten);
    };
    fleet.push(100 + round);
    ASSERT_EQ(fleet.last().phase, Phase::kAborted);
    fleet.fate = nullptr;
    // No time passes in between.
    ASSERT_TRUE(std::holds_alternative<protocol::UpdateAccepted>(fleet.push(2 + round)));
    expect_committed(fleet, 2 + round);
  }
}

// The same where an operator aborts an update that hangs.
TEST(Field, F02_AnUpdateThatHangsCanBeAbortedAndTheNextOneWorks) {
  Fleet fleet;
  fleet.push(1);
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoPull>(agent, action, "engine-1/0", Fate::kNever);
  };
  fleet.push(2);
  ASSERT_TRUE(fleet.status().running);
  ASSERT_TRUE(std::holds_alternative<protocol::ErrorReply>(fleet.push(3))) << "one update at a time";
  EXPECT_TRUE(std::holds_alternative<protocol::Done>(fleet.request(protocol::AbortRequest{})));
  EXPECT_EQ(fleet.last().phase, Phase::kAborted);
  EXPECT_TRUE(fleet.all_serve(1));
  fleet.fate = nullptr;
  fleet.push(4);
  expect_committed(fleet, 4);
}

// The engine answered success while it had loaded uninitialised memory. Success without proof must be impossible: what
// a rank says it staged is compared with what the sources sent.
TEST(Field, F03_AStageThatWroteNothingIsFoundHoweverSuccessfulItSaysItWas) {
  Fleet fleet;
  fleet.push(1);
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoPull>(agent, action, "engine-0/1", Fate::kUnwritten);
  };
  fleet.push(2);
  expect_aborted(fleet, 1, ErrorCode::kCorrupted, "engine-0/1");
  EXPECT_EQ(fleet.status().committed, model::WeightVersion(1));
}

// The first version of a fresh fleet is no exception: nothing was ever live, so nothing becomes live.
TEST(Field, F03_UninitialisedMemoryNeverBecomesTheFirstVersion) {
  Fleet fleet;
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoPull>(agent, action, "engine-1/0", Fate::kUnwritten);
  };
  fleet.push(1);
  EXPECT_EQ(fleet.last().phase, Phase::kAborted);
  for (const auto& [id, agent] : fleet.agents()) {
    EXPECT_EQ(agent.exchanges, 0U) << id.value();
    EXPECT_EQ(agent.mapped, std::nullopt) << id.value();
  }
  EXPECT_FALSE(fleet.ready("engine-0/0"));
}

// A receiver died and the collective waited for half an hour. Every wait must have a deadline, and the error must name
// the member that was lost.
TEST(Field, F04_AReceiverThatDiesAbortsTheUpdateForAll) {
  Fleet fleet;
  fleet.push(1);
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoPull>(agent, action, "engine-1/1", Fate::kNever);
  };
  fleet.push(2);
  fleet.kill("engine-1/1");
  fleet.fate = nullptr;
  fleet.pass(base::Millis(4'500));
  const auto last = fleet.last();
  EXPECT_EQ(last.phase, Phase::kAborted);
  ASSERT_TRUE(last.error);
  EXPECT_THAT(last.error->message, HasSubstr("engine-1/1"));
  EXPECT_TRUE(fleet.all_serve(1)) << "clients of a dead agent keep what they have mapped";
  fleet.start("engine-1/1");
  fleet.pass(base::Millis(2'000));
  fleet.push(3);
  expect_committed(fleet, 3);
}

TEST(Field, F04_AReceiverThatHangsEndsAtTheDeadlineOfTheUpdate) {
  Fleet fleet;
  fleet.push(1);
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoPull>(agent, action, "engine-0/0", Fate::kNever);
  };
  fleet.push(2);
  fleet.pass(base::Millis(4'500));
  EXPECT_FALSE(fleet.status().running);
  expect_aborted(fleet, 1, ErrorCode::kDeadlineExceeded, "engine-0/0");
}

TEST(Field, F04_WithRequireTheOthersGoOnWithoutTheDead) {
  Fleet fleet;
  fleet.push(1);
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoPull>(agent, action, "engine-1/1", Fate::kNever);
  };
  fleet.push(2, 1);
  fleet.kill("engine-1/1");
  fleet.fate = nullptr;
  fleet.pass(base::Millis(4'500));
  EXPECT_EQ(fleet.last().phase, Phase::kCommitted);
  EXPECT_TRUE(fleet.serves("engine-0/0", 2) && fleet.serves("engine-0/1", 2));
  EXPECT_FALSE(fleet.ready("engine-1/0")) << "an engine that was left behind is quarantined";
  EXPECT_TRUE(fleet.serves("engine-1/0", 1));
  // It comes back by itself.
  fleet.start("engine-1/1");
  fleet.pass(base::Millis(4'000));
  EXPECT_TRUE(fleet.all_serve(2));
  EXPECT_TRUE(fleet.ready("engine-1/0") && fleet.ready("engine-1/1"));
}

// A rank that does not stop at the commit: the pause has a deadline too, and no rank of that engine exchanges.
TEST(Field, F04_ARankThatDoesNotPauseHoldsItsEngineNoLongerThanTheDeadline) {
  Fleet fleet;
  fleet.push(1);
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoPause>(agent, action, "engine-1/1", Fate::kFails);
  };
  const auto before = fleet.agent("engine-1/0").exchanges;
  fleet.push(2);
  EXPECT_EQ(fleet.agent("engine-1/0").exchanges, before);
  EXPECT_TRUE(fleet.serves("engine-1/0", 1) && fleet.serves("engine-1/1", 1)) << "paused, and let go again";
  EXPECT_TRUE(fleet.serves("engine-0/0", 2));
  EXPECT_FALSE(fleet.ready("engine-1/0") || fleet.ready("engine-1/1"));
  fleet.fate = nullptr;
  fleet.pass(base::Millis(6'000));
  EXPECT_TRUE(fleet.all_serve(2)) << "caught up";
}

// A receiver never entered the collective, since its request had failed with an error that nobody read. All must have
// agreed that they are ready before any byte moves, and a refusal must name the member and its reason.
TEST(Field, F05_ARefusalAtPrepareIsNamedBeforeAnyByteMoves) {
  Fleet fleet;
  fleet.push(1);
  const auto before = pulls(fleet);
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoJoin>(agent, action, "engine-1/0", Fate::kFails);
  };
  fleet.push(2);
  expect_aborted(fleet, 1, ErrorCode::kUnavailable, "engine-1/0");
  EXPECT_THAT(fleet.last().error->message, HasSubstr("the link went down"));
  EXPECT_EQ(pulls(fleet), before);
}

TEST(Field, F05_NobodyStagesBeforeEverybodyIsPrepared) {
  Fleet fleet;
  fleet.push(1);
  std::set<std::pair<model::MemberId, protocol::SessionRole>> prepared;
  for (const auto& envelope : fleet.sent()) {
    if (const auto* body = std::get_if<protocol::Prepared>(&envelope.body)) prepared.emplace(envelope.from, body->role);
    if (std::holds_alternative<protocol::StageSource>(envelope.body) ||
        std::holds_alternative<protocol::StageSink>(envelope.body)) {
      ASSERT_EQ(prepared.size(), 6U) << "two shard agents and four ranks";
    }
  }
  EXPECT_EQ(count<protocol::StageSink>(fleet), 4U);
}

// A request whose answer is lost is repeated until it is answered: silence is no agreement.
TEST(Field, F05_ALostAnswerIsAskedForAgain) {
  Fleet fleet;
  int lost = 0;
  fleet.loses = [&](const protocol::Envelope& envelope) {
    return std::holds_alternative<protocol::Prepared>(envelope.body) && envelope.from.value() == "engine-0/1" &&
           ++lost <= 2;
  };
  fleet.push(1);
  EXPECT_EQ(pulls(fleet), 0U);
  fleet.pass(base::Millis(500));
  EXPECT_EQ(lost, 3);
  expect_committed(fleet, 1);
}

// Ranks held different numbers of dtypes, or no tensor at all, and the gather of metadata broke. Every rank has a
// manifest of its own; an empty one is fine.
TEST(Field, F11_ATrainerRankThatHoldsNothingTakesPart) {
  Fleet fleet;
  simulation::ToyModel toy;
  fleet.trainer = [&](std::uint64_t content, std::uint32_t rank) {
    if (rank == 1) return std::pair{model::SourceManifest{}, Bytes{}};
    return std::pair{simulation::ToyModel::source_manifest(0, 1), toy.source_bytes(content, 0, 1)};
  };
  fleet.push(1);
  expect_committed(fleet, 1);
}

// A recovered engine got traffic before it had weights. It must be quarantined until the committed version is live, and
// readiness must say so.
TEST(Field, F17_AnEngineThatLostItsMemoryIsNotReadyUntilItCaughtUp) {
  Fleet fleet;
  fleet.push(1);
  fleet.push(2);
  fleet.kill("engine-1/0");
  fleet.lose_memory("engine-1/0");
  fleet.pass(base::Millis(1'500));
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoPull>(agent, action, "engine-1/0", Fate::kNever);  // the catch-up takes its time
  };
  fleet.start("engine-1/0");
  EXPECT_FALSE(fleet.ready("engine-1/0"));
  fleet.pass(base::Millis(1'000));
  EXPECT_FALSE(fleet.ready("engine-1/0"));
  EXPECT_THAT(fleet.why_not_ready("engine-1/0"), HasSubstr("no version is live"));
  EXPECT_FALSE(fleet.ready("engine-1/1")) << "its ranks share a step";
  EXPECT_THAT(fleet.why_not_ready("engine-1/1"), HasSubstr("quarantined"));
  EXPECT_TRUE(fleet.ready("engine-0/0"));
  fleet.fate = nullptr;
  fleet.pass(base::Millis(15'000));
  EXPECT_TRUE(fleet.all_serve(2));
  EXPECT_TRUE(fleet.ready("engine-1/0") && fleet.ready("engine-1/1"));
}

TEST(Field, F17_AnEngineThatMissedAVersionIsNotReadyWithTheOldOne) {
  Fleet fleet;
  fleet.push(1);
  fleet.kill("engine-1/1");
  fleet.pass(base::Millis(1'500));
  fleet.push(2, 1);
  ASSERT_EQ(fleet.last().phase, Phase::kCommitted);
  fleet.start("engine-1/1");
  EXPECT_FALSE(fleet.ready("engine-1/1")) << "it serves version 1, and does not know yet that this is old";
  fleet.pass(base::Millis(4'000));
  EXPECT_TRUE(fleet.serves("engine-1/1", 2));
  EXPECT_TRUE(fleet.ready("engine-1/1"));
}

// A model of another size was pushed and corrupted the engine. Shapes are checked in planning: the push is refused by
// the tensor's name, and no byte moves.
TEST(Field, F19_AModelOfAnotherSizeIsRefusedAndTheEngineUntouched) {
  Fleet fleet;
  fleet.push(1);
  const auto before = pulls(fleet);
  const auto usual = fleet.trainer;
  fleet.trainer = [&](std::uint64_t content, std::uint32_t rank) {
    auto result = usual(content, rank);
    for (auto& tensor : result.first.tensors) {
      if (tensor.name == "q") tensor.shape = {4, 12};
    }
    return result;
  };
  fleet.push(2);
  expect_aborted(fleet, 1, ErrorCode::kInvalidArgument, "'q'");
  EXPECT_THAT(fleet.last().error->message, HasSubstr("[4, 12]"));
  EXPECT_EQ(pulls(fleet), before);
  fleet.trainer = usual;
  fleet.push(3);
  expect_committed(fleet, 3);
}

// Several chunks of one update each ran the engine's post-load step, and a MoE layer was corrupted. However many
// buckets an update has, each rank exchanges and resumes once.
TEST(Field, F20_ManyBucketsAreOneExchangeAndOneResume) {
  Fleet fleet;
  fleet.push(1);
  std::map<model::MemberId, std::pair<std::uint64_t, std::uint64_t>> before;
  std::size_t buckets = 0;
  for (const auto& [id, agent] : fleet.agents())
    before[id] = {agent.exchanges, agent.resumes};
  fleet.fate = [&](const auto&, const auto& action) {
    if (const auto* pull = std::get_if<protocol::DoPull>(&action))
      buckets = std::max(buckets, pull->part->buckets.size());
    return Fate::kDone;
  };
  fleet.push(2);
  ASSERT_GT(buckets, 2U);
  for (const auto& [id, agent] : fleet.agents()) {
    if (agent.self.role != model::Role::kEngineAgent) continue;
    EXPECT_EQ(agent.exchanges, before[id].first + 1) << id.value();
    EXPECT_EQ(agent.resumes, before[id].second + 1) << id.value();
  }
}

// The label of the version changed with the first bucket, while most weights were still old. The version shown is the
// one that is committed, everywhere, until the next one is.
TEST(Field, F21_TheVersionShownChangesWithTheCommitOnly) {
  Fleet fleet;
  fleet.push(1);
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoPull>(agent, action, "engine-1/1", Fate::kNever);
  };
  fleet.push(2);
  fleet.pass(base::Millis(600));  // heartbeats tell what every rank holds
  const auto during = fleet.status();
  ASSERT_TRUE(during.running);
  EXPECT_EQ(during.running->target, model::WeightVersion(2));
  EXPECT_EQ(during.committed, model::WeightVersion(1));
  for (const auto& member : during.members) {
    if (member.member.role != model::Role::kEngineAgent) continue;
    ASSERT_TRUE(member.live) << member.member.id.value();
    EXPECT_EQ(member.live->version, model::WeightVersion(1)) << member.member.id.value();
  }
  EXPECT_TRUE(fleet.all_serve(1));
  EXPECT_FALSE(fleet.agent("engine-1/1").engine->halves()[1].tag) << "a half that is being written has no version";
  fleet.fate = nullptr;
  fleet.pass(base::Millis(4'500));
  fleet.push(3);
  expect_committed(fleet, 3);
  fleet.pass(base::Millis(600));
  for (const auto& member : fleet.status().members) {
    if (member.live) {
      EXPECT_EQ(member.live->version, fleet.status().committed);
    }
  }
}

// The send buffer was reused before the copy had read it. A trainer gets its memory back only after every reader is
// done.
TEST(Field, F08_TheTrainerGetsItsMemoryBackOnlyWhenAllHaveStaged) {
  Fleet fleet;
  fleet.fate = [](const auto& agent, const auto& action) {
    return on<protocol::DoPull>(agent, action, "engine-0/1", Fate::kNever);
  };
  fleet.push(1);
  EXPECT_EQ(fleet.agent("engine-0/0").pulls, 1U);
  EXPECT_EQ(count<protocol::Release>(fleet), 0U) << "one rank still reads";
  EXPECT_EQ(fleet.agent("shard-0").serving.size(), 1U);
  fleet.pass(base::Millis(4'500));
  ASSERT_EQ(fleet.last().phase, Phase::kAborted);
  // The abort, too, gives it back only after the readers have answered that they are done.
  EXPECT_TRUE(fleet.agent("shard-0").serving.empty());
  fleet.fate = nullptr;
  fleet.push(2);
  EXPECT_EQ(count<protocol::Release>(fleet), 2U);
  EXPECT_TRUE(fleet.agent("shard-0").serving.empty());
  const auto& sent = fleet.sent();
  const auto first =
      std::ranges::find_if(sent, [](const auto& e) { return std::holds_alternative<protocol::Release>(e.body); });
  const auto last_staged = std::find_if(sent.rbegin(), sent.rend(),
                                        [](const auto& e) { return std::holds_alternative<protocol::Staged>(e.body); });
  EXPECT_GE(first, last_staged.base());
}

}  // namespace
}  // namespace weightbus::field
