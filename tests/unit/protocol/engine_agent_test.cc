// An engine of two ranks: both state machines are real, the test carries messages and plays the work.
#include <gmock/gmock.h>

#include <deque>
#include <map>

#include "weightbus/protocol/engine_agent_fsm.h"
#include "weightbus/protocol/invariants.h"
#include "weightbus/protocol/shard_agent_fsm.h"

namespace weightbus::protocol {
namespace {

const model::ModelName kToy{"toy"};
const model::Epoch kEpoch{{7, 7}, 3};

model::SinkManifest sink_manifest() {
  model::SinkManifest manifest;
  manifest.tensors = {{"w", model::DType::kF32, {4}}};
  model::Slot slot;
  slot.tensor = 0;
  slot.box = model::Box::whole({4});
  slot.at = {0, 0, {1}};
  manifest.slots = {slot};
  manifest.region_bytes = {16};
  return manifest;
}

Tag tag(std::uint64_t version, std::uint64_t update) {
  return {model::WeightVersion{version}, model::layout_hash(sink_manifest()), model::UpdateId{update}};
}

model::Member member(std::uint32_t rank) {
  model::Member m{model::MemberId{rank == 0 ? "r0" : "r1"}, model::Role::kEngineAgent, kToy, model::HostId{"h"}};
  m.rank = rank;
  m.world = 2;
  m.engine = "E";
  return m;
}

class Engine : public ::testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<EngineAgentFsm> fsm;
    AgentState disk;
    std::vector<AgentAction> work;  // asked for, not done
    std::uint64_t boot = 0;
  };

  void SetUp() override {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      AgentState state;
      state.has_arena = true;
      state.halves[0] = Half{tag(1, 1), true};
      state.halves[1] = Half{tag(2, 2), false};
      ranks_[rank].disk = state;
      start(rank);
    }
  }
  Now now() const { return Now{base::Instant{} + base::Millis(10'000 + ms_)}; }
  void start(std::uint32_t rank) {
    Rank& r = ranks_[rank];
    r.work.clear();
    r.fsm = std::make_unique<EngineAgentFsm>(member(rank), model::BootId{++r.boot}, "test", r.disk, sink_manifest(),
                                             std::vector<HeldVersion>{});
    r.fsm->start(now());
    take(rank);
    to(rank, std::nullopt, Welcome{500, 0, false, {member(0), member(1)}});
  }
  void to(std::uint32_t rank, std::optional<std::uint64_t> update, Body body, model::Epoch epoch = kEpoch) {
    std::optional<model::UpdateId> id;
    if (update) id = model::UpdateId{*update};
    ranks_[rank].fsm->step(now(), Envelope{epoch, kToy, id, kCoordinator, member(rank).id, 0, std::move(body)});
    take(rank);
  }
  void take(std::uint32_t rank) {
    auto out = ranks_[rank].fsm->take_output();
    if (out.save) {
      const auto wrong = check_agent_state(ranks_[rank].disk, *out.save);
      EXPECT_FALSE(wrong) << *wrong;
      ranks_[rank].disk = *out.save;
    }
    for (auto& envelope : out.send)
      (envelope.to == kCoordinator ? told_ : between_).push_back(std::move(envelope));
    for (auto& action : out.perform)
      ranks_[rank].work.push_back(std::move(action));
  }
  // Carries messages between the ranks until there are none.
  void carry() {
    for (int i = 0; i < 200 && !between_.empty(); ++i) {
      const Envelope envelope = between_.front();
      between_.pop_front();
      const std::uint32_t rank = envelope.to == member(0).id ? 0 : 1;
      ranks_[rank].fsm->step(now(), envelope);
      take(rank);
    }
  }
  template <class T>
  std::optional<T> work(std::uint32_t rank) {
    std::optional<T> found;
    std::erase_if(ranks_[rank].work, [&](const AgentAction& action) {
      if (const auto* a = std::get_if<T>(&action); a && !found) return found = *a, true;
      return false;
    });
    return found;
  }
  void done(std::uint32_t rank, AgentEvent event) {
    ranks_[rank].fsm->done(now(), event);
    take(rank);
  }
  bool pause(std::uint32_t rank, base::Status result = {}) {
    const auto action = work<DoPause>(rank);
    if (action) done(rank, PauseDone{action->attempt, std::move(result)});
    carry();
    return action.has_value();
  }
  std::optional<std::uint32_t> exchange(std::uint32_t rank, base::Status result = {}) {
    const auto action = work<DoExchange>(rank);
    if (!action) return std::nullopt;
    done(rank, ExchangeDone{action->attempt, std::move(result)});
    carry();
    return action->live;
  }
  bool resume(std::uint32_t rank) {
    const auto action = work<DoResume>(rank);
    if (action) done(rank, ResumeDone{action->attempt});
    carry();
    return action.has_value();
  }
  void pass(std::uint64_t ms) {
    for (std::uint64_t at = 0; at < ms; at += 50) {
      ms_ += 50;
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        ranks_[rank].fsm->tick(now());
        take(rank);
      }
      carry();
    }
  }
  template <class T>
  std::optional<T> told() {
    std::optional<T> found;
    std::erase_if(told_, [&](const Envelope& envelope) {
      if (const auto* body = std::get_if<T>(&envelope.body)) return found = *body, true;
      return false;
    });
    return found;
  }
  Commit commit_of(std::uint64_t version, std::uint64_t update) {
    return Commit{model::WeightVersion{version},
                  {{member(0).id, tag(version, update)}, {member(1).id, tag(version, update)}},
                  1'000};
  }
  std::uint64_t live_version(std::uint32_t rank) { return ranks_[rank].fsm->halves()[0].tag->version.value(); }

  Rank ranks_[2];
  std::deque<Envelope> between_;
  std::deque<Envelope> told_;
  std::uint64_t ms_ = 0;
};

TEST_F(Engine, ExchangesOnlyWhenAllRanksHavePausedAndResumesOnlyWhenAllHaveExchanged) {
  to(0, 2, commit_of(2, 2));
  carry();
  ASSERT_TRUE(pause(0));
  EXPECT_FALSE(work<DoExchange>(0)) << "rank 1 still computes";
  ASSERT_TRUE(pause(1));
  EXPECT_EQ(exchange(0), 1U);
  EXPECT_FALSE(work<DoResume>(0)) << "rank 1 would compute with the old version";
  EXPECT_FALSE(told<Committed>());
  EXPECT_EQ(exchange(1), 1U);
  EXPECT_TRUE(resume(0));
  EXPECT_TRUE(resume(1));
  ASSERT_TRUE(told<Committed>());
  EXPECT_EQ(live_version(0), 2U);
  EXPECT_EQ(live_version(1), 2U);
}

TEST_F(Engine, ARepeatedCommitIsAnsweredAndDoesNothing) {
  to(0, 2, commit_of(2, 2));
  carry();
  pause(0), pause(1), exchange(0), exchange(1), resume(0), resume(1);
  ASSERT_TRUE(told<Committed>());
  to(0, 2, commit_of(2, 2));
  EXPECT_TRUE(told<Committed>());
  EXPECT_FALSE(work<DoPause>(0));
}

TEST_F(Engine, AnOlderCommitIsNotObeyedEvenAfterARestart) {
  to(0, 2, commit_of(2, 2));
  carry();
  pause(0), pause(1), exchange(0), exchange(1), resume(0), resume(1);
  start(0);
  to(0, 1, commit_of(1, 1));
  carry();
  EXPECT_FALSE(work<DoPause>(0));
  EXPECT_EQ(live_version(0), 2U);
}

TEST_F(Engine, ARankThatDoesNotPauseLetsTheEngineGoOnWithTheOldVersion) {
  to(0, 2, commit_of(2, 2));
  carry();
  pause(0);
  pause(1, base::fail(base::ErrorCode::kDeadlineExceeded, "a client did not pause"));
  EXPECT_TRUE(resume(0));
  EXPECT_TRUE(resume(1));
  const auto failed = told<CommitFailed>();
  ASSERT_TRUE(failed);
  EXPECT_THAT(failed->error.message, ::testing::HasSubstr("r1: a client did not pause"));
  EXPECT_EQ(live_version(0), 1U);
  EXPECT_EQ(live_version(1), 1U);
}

TEST_F(Engine, ADriverThatHearsNothingGivesUpAtTheDeadline) {
  to(0, 2, commit_of(2, 2));
  carry();
  pause(0);
  pass(1'100);
  EXPECT_TRUE(resume(0));
  EXPECT_FALSE(work<DoExchange>(0));
}

TEST_F(Engine, AFailedExchangeKeepsTheEnginePausedAndIsTriedAgain) {
  to(0, 2, commit_of(2, 2));
  carry();
  pause(0), pause(1), exchange(0);
  exchange(1, base::fail(base::ErrorCode::kInternal, "the client died"));
  EXPECT_TRUE(told<CommitFailed>());
  EXPECT_FALSE(work<DoResume>(0)) << "its ranks hold different versions";
  EXPECT_FALSE(ranks_[1].fsm->reported_halves()[0].verified) << "it must not count as serving";
  pass(200);
  EXPECT_EQ(exchange(1), 1U);
  EXPECT_TRUE(resume(0));
  EXPECT_TRUE(resume(1));
}

TEST_F(Engine, AMixedEngineIsNotResumedByARestartedDriver) {
  to(0, 2, commit_of(2, 2));
  carry();
  pause(0), pause(1), exchange(0);  // rank 1 has not exchanged
  ranks_[1].work.clear();
  start(0);
  pause(0);  // of the restart; rank 1's answer is lost
  between_.clear();
  exchange(0);
  pass(1'500);  // longer than the pause deadline
  EXPECT_FALSE(work<DoResume>(0));
  EXPECT_FALSE(work<DoResume>(1));
}

TEST_F(Engine, ARankRestartedWhilePausedStaysPausedUntilTheDriverDecides) {
  to(0, 2, commit_of(2, 2));
  carry();
  pause(0), pause(1);
  ranks_[1].work.clear();  // the exchange was asked for and the process dies
  start(1);
  ASSERT_TRUE(pause(1)) << "clients that were paused are paused again first";
  EXPECT_EQ(exchange(1), 1U) << "and map what is recorded as live";
  EXPECT_FALSE(work<DoResume>(1));
}

TEST_F(Engine, OnlyTheDriverMayAskARankToPause) {
  ranks_[0].fsm->step(now(), Envelope{kEpoch, kToy, std::nullopt, member(1).id, member(0).id, 0, RankPause{5, 1'000}});
  take(0);
  EXPECT_FALSE(work<DoPause>(0));
  ranks_[1].fsm->step(
      now(), Envelope{kEpoch, kToy, std::nullopt, model::MemberId{"stranger"}, member(1).id, 0, RankPause{5, 1'000}});
  take(1);
  EXPECT_FALSE(work<DoPause>(1));
}

TEST_F(Engine, AHalfWithAnotherTagIsNotExchangedIn) {
  to(0, 3, commit_of(2, 3));
  carry();
  pause(0), pause(1);
  EXPECT_FALSE(exchange(0));
  EXPECT_TRUE(told<CommitFailed>());
}

TEST_F(Engine, CapturesTheVersionBeforeFromTheShadowAndNoHalfThatNoDecisionNamed) {
  const Retain both{{model::WeightVersion{1}, model::WeightVersion{2}}, model::WeightVersion{2}};
  to(0, std::nullopt, both);
  auto capture = work<DoRetain>(0);
  ASSERT_TRUE(capture);
  EXPECT_FALSE(capture->capture) << "version 2 is staged and not decided";
  done(0, RetainDone{{}, std::nullopt});

  to(0, 2, commit_of(2, 2));
  carry();
  pause(0), pause(1), exchange(0), exchange(1), resume(0), resume(1);
  ASSERT_EQ(live_version(0), 2U);
  to(0, std::nullopt, Retain{both.keep, model::WeightVersion{1}});
  capture = work<DoRetain>(0);
  ASSERT_TRUE(capture);
  EXPECT_EQ(capture->capture, model::WeightVersion{1});
  EXPECT_EQ(capture->half, 0U) << "the half that was live before";
}

TEST_F(Engine, AMessageOfAnOlderEpochChangesNothing) {
  to(0, 2, commit_of(2, 2), {{7, 7}, 2});
  carry();
  EXPECT_FALSE(work<DoPause>(0));
  to(0, std::nullopt, Welcome{500, 0, true, {}}, {{7, 7}, 2});
  EXPECT_FALSE(ranks_[0].fsm->quarantined());
}

// ---------------------------------------------------------------- staging

class Staging : public Engine {
 protected:
  plan::SinkPart part() {
    plan::SinkPart p;
    p.plan_hash = {1, 2};
    return p;
  }
  void prepare(std::uint64_t version, std::uint64_t update) {
    to(0, update, OpenSink{sink_manifest().tensors, {}, 1'000});
    to(0, update, PrepareSink{part().plan_hash, part().hash(), tag(version, update), {}, 1'000});
    if (told<NeedPart>()) to(0, update, SinkPartMessage{part()});
    if (work<DoJoin>(0)) done(0, SinkJoinDone{model::UpdateId{update}, std::vector<std::string>{}});
  }
};

TEST_F(Staging, TheTagIsClearedAndSavedBeforeTheFirstByte) {
  prepare(3, 3);
  ASSERT_TRUE(told<Prepared>());
  EXPECT_TRUE(ranks_[0].disk.halves[1].tag) << "nothing is written yet: the version before can still be had";
  to(0, 3, StageSink{1'000});
  const auto pull = work<DoPull>(0);
  ASSERT_TRUE(pull);
  EXPECT_EQ(pull->half, 1U);
  EXPECT_FALSE(ranks_[0].disk.halves[1].tag);
  done(0, SinkPullDone{model::UpdateId{3}, PullResult{}});
  EXPECT_TRUE(told<Staged>());
  EXPECT_EQ(ranks_[0].disk.halves[1].tag, tag(3, 3));
}

TEST_F(Staging, AbortedIsAnsweredOnlyAfterTheLastWrite) {
  prepare(3, 3);
  to(0, 3, StageSink{1'000});
  const auto pull = work<DoPull>(0);
  ASSERT_TRUE(pull);
  to(0, 3, Abort{{base::ErrorCode::kAborted, "asked for"}});
  EXPECT_TRUE(work<DoCancel>(0));
  EXPECT_FALSE(told<Aborted>()) << "it still writes";
  done(0, SinkPullDone{model::UpdateId{3}, base::fail(base::ErrorCode::kAborted, "cancelled")});
  EXPECT_TRUE(told<Aborted>());
  EXPECT_FALSE(ranks_[0].disk.halves[1].tag);
  EXPECT_EQ(live_version(0), 1U);
}

TEST_F(Staging, ARestartTakesNoUpdateUpAgainThatHasWritten) {
  prepare(3, 3);
  to(0, 3, StageSink{1'000});
  done(0, SinkPullDone{model::UpdateId{3}, PullResult{}});
  start(0);
  told<Prepared>();
  prepare(3, 3);
  to(0, 3, StageSink{1'000});
  EXPECT_FALSE(work<DoPull>(0)) << "the half may be about to be exchanged in";
  EXPECT_EQ(ranks_[0].disk.halves[1].tag, tag(3, 3));
}

TEST_F(Staging, RepeatedRequestsAreAnsweredAgainAndDoneOnce) {
  prepare(3, 3);
  told<Prepared>();
  to(0, 3, PrepareSink{part().plan_hash, part().hash(), tag(3, 3), {}, 1'000});
  EXPECT_TRUE(told<Prepared>());
  EXPECT_FALSE(work<DoJoin>(0));
  to(0, 3, StageSink{1'000});
  to(0, 3, StageSink{1'000});
  EXPECT_TRUE(work<DoPull>(0));
  EXPECT_FALSE(work<DoPull>(0));
}

TEST_F(Staging, AHalfThatIsBeingReadIsNotWritten) {
  to(0, std::nullopt, DigestLive{});
  ASSERT_TRUE(work<DoDigestLive>(0));
  to(0, 2, commit_of(2, 2));  // what is being read becomes the shadow
  carry();
  pause(0), pause(1), exchange(0), exchange(1), resume(0), resume(1);
  prepare(3, 3);
  to(0, 3, StageSink{1'000});
  EXPECT_FALSE(work<DoPull>(0));
  done(0, DigestLiveDone{std::vector<SlotDigest>{}});
  EXPECT_TRUE(work<DoPull>(0));
}

TEST_F(Staging, WithoutAnArenaAnInstantUpdateIsRefused) {
  EngineAgentFsm fsm(member(0), model::BootId{9}, "test", AgentState{}, std::nullopt, {});
  fsm.start(now());
  fsm.step(now(), Envelope{kEpoch, kToy, std::nullopt, kCoordinator, member(0).id, 0, Welcome{500, 0, false, {}}});
  fsm.step(now(), Envelope{kEpoch, kToy, model::UpdateId{4}, kCoordinator, member(0).id, 0, OpenSink{{}, {}, 1'000}});
  const auto out = fsm.take_output();
  EXPECT_TRUE(out.perform.empty());
  ASSERT_FALSE(out.send.empty());
  EXPECT_TRUE(std::holds_alternative<Failed>(out.send.back().body));
}

}  // namespace
}  // namespace weightbus::protocol
