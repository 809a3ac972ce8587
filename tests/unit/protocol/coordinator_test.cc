#include <gmock/gmock.h>

#include "coordinator_bench.h"

namespace weightbus::protocol {
namespace {

using ::testing::HasSubstr;

class Coordinator : public ::testing::Test {
 protected:
  void SetUp() override {
    bench.hello("t", model::Role::kShardAgent, "");
    bench.hello("a", model::Role::kEngineAgent, "A");
    bench.hello("b", model::Role::kEngineAgent, "B");
  }
  std::size_t decisions() const {
    std::size_t count = 0;
    for (const auto& record : bench.journal_)
      count += std::holds_alternative<Decided>(record);
    return count;
  }
  CoordinatorBench bench;
};

TEST_F(Coordinator, CommitsOnlyWhenEveryRequiredEngineHasStaged) {
  const auto push = bench.push();
  const auto update = push.update.value();
  bench.prepare(update, {"a", "b"});
  bench.stage_source(update);
  bench.stage("a", update);
  EXPECT_EQ(decisions(), 0U);
  EXPECT_FALSE(bench.last<Release>("t"));
  EXPECT_FALSE(bench.last<Commit>("a"));
  bench.stage("b", update);
  EXPECT_EQ(decisions(), 1U);
  EXPECT_TRUE(bench.last<Release>("t")) << "Release means staged, not committed";
  const auto commit = bench.last<Commit>("a");
  ASSERT_TRUE(commit);
  EXPECT_EQ(commit->ranks.front().tag, bench.tags_.at(model::MemberId{"a"}));
  bench.committed("a", update, push.target);
  EXPECT_TRUE(bench.status().running);
  bench.committed("b", update, push.target);
  EXPECT_FALSE(bench.status().running);
  EXPECT_EQ(bench.status().committed, push.target);
}

TEST_F(Coordinator, AWrongDigestIsNeverCommitted) {
  const auto update = bench.push().update.value();
  bench.prepare(update, {"a", "b"});
  bench.stage_source(update);
  bench.stage("a", update);
  bench.stage("b", update, {1, 3});
  EXPECT_EQ(decisions(), 0U);
  for (const char* member : {"t", "a", "b"}) {
    EXPECT_TRUE(bench.last<Abort>(member)) << member;
    bench.answer(member, update, Aborted{});
  }
  EXPECT_EQ(bench.status().recent.at(0).phase, Phase::kAborted);
}

// F02: the next push works at once.
TEST_F(Coordinator, AbortEndsWhenEveryoneHasDrainedAndTheNextPushWorks) {
  const auto update = bench.push().update.value();
  bench.prepare(update, {"a", "b"});
  bench.ask(AbortRequest{});
  EXPECT_TRUE(bench.last<Done>("cli"));
  bench.answer("t", update, Aborted{});
  bench.answer("a", update, Aborted{});
  ASSERT_TRUE(bench.status().running);
  EXPECT_EQ(bench.status().running->phase, Phase::kAborting) << "b may still write";
  bench.answer("b", update, Aborted{});
  EXPECT_FALSE(bench.status().running);
  const auto version = bench.whole_push({"a", "b"});
  EXPECT_EQ(bench.status().committed, version);
}

TEST_F(Coordinator, AFailureBeforeTheDecisionNamesTheMember) {
  const auto update = bench.push().update.value();
  bench.prepare(update, {"a", "b"});
  bench.answer("b", update,
               Failed{SessionRole::kSink, {base::ErrorCode::kResourceExhausted, "needs 10 bytes, 3 are free"}});
  for (const char* member : {"t", "a", "b"})
    bench.answer(member, update, Aborted{});
  const auto status = bench.status().recent.at(0);
  ASSERT_TRUE(status.error);
  EXPECT_THAT(status.error->message, HasSubstr("b: needs 10 bytes"));
}

TEST_F(Coordinator, RequireNGoesOnWithoutTheLostOneWhichIsQuarantined) {
  const auto push = bench.push(1);
  const auto update = push.update.value();
  bench.prepare(update, {"a", "b"});
  bench.answer("b", update, Failed{SessionRole::kSink, {base::ErrorCode::kInternal, "broken"}});
  bench.stage_source(update);
  bench.stage("a", update);
  ASSERT_EQ(decisions(), 1U);
  bench.committed("a", update, push.target);
  EXPECT_EQ(bench.status().committed, push.target);
  EXPECT_FALSE(bench.quarantined("a"));
  EXPECT_TRUE(bench.quarantined("b"));
}

TEST_F(Coordinator, MoreEnginesThanThereAreCannotBeRequired) {
  PublishRequest request{CheckpointSource{"/data"}};
  request.require = 3;
  bench.ask(request);
  EXPECT_THAT(bench.refusal(), HasSubstr("3 engines are required, 2 can take part"));
}

TEST_F(Coordinator, ADecisionThatWasCleanlyNotWrittenAborts) {
  const auto update = bench.push().update.value();
  bench.prepare(update, {"a", "b"});
  bench.stage_source(update);
  bench.stage("a", update);
  bench.append_fails_ = base::Error{base::ErrorCode::kResourceExhausted, "the disk is full"};
  bench.stage("b", update);
  EXPECT_FALSE(bench.last<Commit>("a"));
  EXPECT_TRUE(bench.last<Abort>("a"));
  for (const char* member : {"t", "a", "b"})
    bench.answer(member, update, Aborted{});
  EXPECT_EQ(bench.status().recent.at(0).phase, Phase::kAborted);
  EXPECT_EQ(bench.status().committed, std::nullopt);
}

TEST_F(Coordinator, RepeatedAndStrayAnswersChangeNothing) {
  const auto version = bench.whole_push({"a", "b"});
  const auto records = bench.journal_.size();
  bench.committed("a", 1, version);
  bench.stage("b", 1);
  bench.answer("a", 1, Aborted{});
  bench.answer("a", 77, Staged{bench.tags_.at(model::MemberId{"a"}), {{1, 2}}, {}});
  EXPECT_EQ(bench.journal_.size(), records);
  EXPECT_EQ(bench.status().committed, version);
}

TEST_F(Coordinator, AnAnswerOfAnOlderEpochChangesNothing) {
  const auto update = bench.push().update.value();
  bench.prepare(update, {"a", "b"});
  bench.stage_source(update);
  bench.stage("a", update);
  bench.give(Envelope{{{7, 7}, 0},
                      kToy,
                      model::UpdateId{update},
                      model::MemberId{"b"},
                      kCoordinator,
                      0,
                      Staged{bench.tags_.at(model::MemberId{"b"}), {{1, 2}}, {}}});
  EXPECT_EQ(decisions(), 0U);
}

TEST_F(Coordinator, AMemberThatSpeaksForAnotherIsRefused) {
  model::Member member{model::MemberId{"a"}, model::Role::kEngineAgent, kToy, model::HostId{"h"}};
  bench.give(Envelope{{}, kToy, std::nullopt, model::MemberId{"x"}, kCoordinator, 0, Hello{member, model::BootId{9}}});
  const auto rejected = bench.last<Rejected>("x");
  ASSERT_TRUE(rejected);
  EXPECT_EQ(rejected->error.code, base::ErrorCode::kPermissionDenied);
}

TEST_F(Coordinator, ARunningPushRefusesTheNextUnlessItMayQueue) {
  bench.push();
  bench.ask(PublishRequest{CheckpointSource{"/other"}});
  EXPECT_THAT(bench.refusal(), HasSubstr("update 1 (push to version 1)"));
  EXPECT_TRUE(bench.push(0, true).queued);
}

TEST_F(Coordinator, ARollbackToTheVersionInTheShadowNeedsNoTransfer) {
  const auto first = bench.whole_push({"a", "b"});
  const auto first_tag = bench.tags_.at(model::MemberId{"a"});
  bench.whole_push({"a", "b"});
  bench.sent_.clear();
  bench.ask(RollbackRequest{});
  const auto accepted = bench.last<UpdateAccepted>("cli");
  ASSERT_TRUE(accepted);
  EXPECT_EQ(accepted->target, first);
  EXPECT_FALSE(bench.last<Commit>("a")) << "not before every rank has said what it holds now";
  for (const char* engine : {"a", "b"}) {
    bench.answer(engine, accepted->update.value(),
                 SinkOpened{CoordinatorBench::sink(), bench.halves_[model::MemberId{engine}], {}});
  }
  const auto commit = bench.last<Commit>("a");
  ASSERT_TRUE(commit);
  EXPECT_EQ(commit->ranks.front().tag, first_tag);
  EXPECT_FALSE(bench.last<StageSink>("a"));
}

TEST_F(Coordinator, AnInstantRollbackWhoseHalfIsGoneIsNotDecided) {
  bench.whole_push({"a", "b"});
  bench.whole_push({"a", "b"});
  bench.ask(RollbackRequest{});
  const auto update = bench.last<UpdateAccepted>("cli")->update.value();
  bench.sent_.clear();
  auto halves = bench.halves_[model::MemberId{"a"}];
  halves[1] = Half{};
  bench.answer("a", update, SinkOpened{CoordinatorBench::sink(), halves, {}});
  bench.answer("b", update, SinkOpened{CoordinatorBench::sink(), bench.halves_[model::MemberId{"b"}], {}});
  EXPECT_EQ(decisions(), 2U);
  EXPECT_FALSE(bench.last<Commit>("a"));
}

TEST_F(Coordinator, ARollbackAbortsAnUndecidedPushAndThenRuns) {
  bench.whole_push({"a", "b"});
  bench.whole_push({"a", "b"});
  const auto update = bench.push().update.value();
  bench.prepare(update, {"a", "b"});
  bench.ask(RollbackRequest{});
  EXPECT_TRUE(bench.last<UpdateAccepted>("cli"));
  EXPECT_EQ(bench.status().running->phase, Phase::kAborting);
  for (const char* member : {"t", "a", "b"})
    bench.answer(member, update, Aborted{});
  bench.pass(50);
  ASSERT_TRUE(bench.status().running);
  EXPECT_EQ(bench.status().running->kind, UpdateKind::kRollback);
}

TEST_F(Coordinator, ARollbackAfterTheDecisionQueues) {
  bench.whole_push({"a", "b"});
  const auto push = bench.push();
  const auto update = push.update.value();
  bench.prepare(update, {"a", "b"});
  bench.stage_source(update);
  bench.stage("a", update);
  bench.stage("b", update);
  bench.ask(RollbackRequest{model::WeightVersion{1}});
  ASSERT_TRUE(bench.last<UpdateAccepted>("cli"));
  EXPECT_EQ(bench.status().running->phase, Phase::kCommitting) << "what is decided is completed";
}

TEST_F(Coordinator, ARollbackToAnUnknownVersionIsRefused) {
  bench.whole_push({"a", "b"});
  bench.ask(RollbackRequest{model::WeightVersion{42}});
  EXPECT_THAT(bench.refusal(), HasSubstr("version 42 was never committed"));
}

TEST_F(Coordinator, ARestartedMemberIsQuarantinedUntilItServesTheCommittedVersion) {
  bench.whole_push({"a", "b"});
  EXPECT_FALSE(bench.quarantined("b"));
  bench.halves_[model::MemberId{"b"}].clear();
  bench.hello("b", model::Role::kEngineAgent, "B", 2);
  EXPECT_TRUE(bench.quarantined("b"));
  EXPECT_FALSE(bench.quarantined("a"));
  bench.pass(100);
  ASSERT_TRUE(bench.status().running);
  EXPECT_EQ(bench.status().running->kind, UpdateKind::kCatchUp);
  const auto open = bench.last<OpenSource>("a");
  ASSERT_TRUE(open) << "a peer's live half comes before a snapshot";
  EXPECT_TRUE(std::holds_alternative<LiveSource>(open->source));
}

TEST_F(Coordinator, ASilentMemberAbortsTheUpdateBeforeItsDeadline) {
  const auto update = bench.push().update.value();
  bench.prepare(update, {"a", "b"});
  bench.forget("b");
  bench.pass(5'200);
  ASSERT_TRUE(bench.status().running);
  EXPECT_EQ(bench.status().running->phase, Phase::kAborting);
  EXPECT_THAT(bench.status().running->error->message, HasSubstr("b: lost"));
}

TEST_F(Coordinator, ARestartCompletesWhatWasDecidedAndReusesNoNumber) {
  const auto push = bench.push();
  const auto update = push.update.value();
  bench.prepare(update, {"a", "b"});
  bench.stage_source(update);
  bench.stage("a", update);
  bench.stage("b", update);
  CoordinatorState state;
  for (const auto& record : bench.journal_)
    state.apply(record);
  CoordinatorBench second({}, std::move(state), 2);
  second.tags_ = bench.tags_;
  second.hello("t", model::Role::kShardAgent, "", 1, {{7, 7}, 1});
  second.hello("a", model::Role::kEngineAgent, "A", 1, {{7, 7}, 1});
  second.hello("b", model::Role::kEngineAgent, "B", 1, {{7, 7}, 1});
  second.pass(250);
  EXPECT_TRUE(second.last<Commit>("a"));
  second.committed("a", update, push.target);
  second.committed("b", update, push.target);
  EXPECT_FALSE(second.status().running);
  second.pass(600);  // heartbeats lift the quarantine
  const auto next = second.push();
  EXPECT_GT(next.update.value(), 64U) << "numbers up to the reserved ones may have been used";
  EXPECT_GT(next.target.value(), 64U);
}

TEST_F(Coordinator, AMemberInAnUpdateThatARestartGaveUpIsToldToAbort) {
  model::Member member{model::MemberId{"t"}, model::Role::kShardAgent, kToy, model::HostId{"h"}};
  Hello hello{member, model::BootId{1}};
  hello.running = model::UpdateId{9};
  bench.give(Envelope{{}, kToy, std::nullopt, member.id, kCoordinator, 0, hello});
  bench.pass(50);
  EXPECT_TRUE(bench.last<Abort>("t"));
  bench.answer("t", 9, Aborted{});
  bench.pass(500);
  EXPECT_FALSE(bench.last<Abort>("t"));
}

TEST_F(Coordinator, APinIsAnsweredOnceItIsDurable) {
  const auto version = bench.whole_push({"a", "b"});
  bench.append_fails_ = base::Error{base::ErrorCode::kResourceExhausted, "the disk is full"};
  bench.ask(PinRequest{version, true});
  EXPECT_FALSE(bench.last<Done>("cli"));
  EXPECT_THAT(bench.refusal(), HasSubstr("the disk is full"));
  bench.ask(PinRequest{version, true});
  EXPECT_TRUE(bench.last<Done>("cli"));
  EXPECT_TRUE(bench.status().versions.at(0).pinned);
}

TEST_F(Coordinator, AnEvictedMemberComesBackOnlyAnew) {
  bench.ask(EvictRequest{model::MemberId{"b"}});
  EXPECT_TRUE(bench.last<Done>("cli"));
  bench.forget("b");
  bench.last<Rejected>("b");
  bench.hello("b", model::Role::kEngineAgent, "B", 1);
  EXPECT_TRUE(bench.last<Rejected>("b"));
  bench.hello("b", model::Role::kEngineAgent, "B", 2);
  EXPECT_TRUE(bench.last<Welcome>("b"));
}

TEST_F(Coordinator, MembersOfAnotherJournalWaitForAdopt) {
  const model::Epoch foreign{{9, 9}, 5};
  bench.hello("c", model::Role::kEngineAgent, "C", 1, foreign, 200);
  const auto rejected = bench.last<Rejected>("c");
  ASSERT_TRUE(rejected);
  EXPECT_EQ(rejected->error.code, base::ErrorCode::kConflict);
  bench.forget("c");
  bench.ask(AdoptRequest{});
  EXPECT_TRUE(bench.last<Done>("cli"));
  EXPECT_GT(bench.fsm_.epoch().number, 5U);
  for (const auto& [id, boot] : std::map(bench.boots_)) {
    bench.hello(id.value(), id.value() == "t" ? model::Role::kShardAgent : model::Role::kEngineAgent,
                id.value() == "t"   ? ""
                : id.value() == "a" ? "A"
                                    : "B",
                1);
  }
  bench.hello("c", model::Role::kEngineAgent, "C", 1, foreign, 200);
  EXPECT_TRUE(bench.last<Welcome>("c"));
  EXPECT_GT(bench.push().target.value(), 200U);
}

}  // namespace
}  // namespace weightbus::protocol
