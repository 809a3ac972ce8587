#include "cli/waiting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/unit/cli/fake_coordinator.h"

namespace weightbus::cli {
namespace {

using protocol::ModelStatus;
using protocol::Phase;
using testing::HasSubstr;

// Answers come from a list, the last of them for ever; time passes only by sleeping.
struct MadeUpWorld {
  std::vector<base::Result<ModelStatus>> answers;
  base::Instant time{};
  std::size_t asked = 0;
  std::ostringstream out;
  std::ostringstream err;
  Console console{out, err, false, false, false, [] { return 100; }};

  base::Result<protocol::UpdateStatus> wait(WaitOptions options, Progress::Mode mode = Progress::Mode::kLines) {
    const WaitWorld world{[this] { return answers[std::min(asked++, answers.size() - 1)]; }, [this] { return time; },
                          [this](base::Duration slept) { time += slept; }};
    Progress progress(console, mode);
    return wait_for_update(options, world, progress);
  }
};

ModelStatus running(Phase phase, std::uint64_t id = 5) {
  ModelStatus status = sample_status();
  status.recent.clear();
  status.running = sample_update(phase);
  status.running->update = model::UpdateId{id};
  return status;
}

ModelStatus nothing_known() {
  ModelStatus status = sample_status();
  status.recent.clear();
  return status;
}

const base::Error kNobody{base::ErrorCode::kUnavailable, "no coordinator answered"};
const WaitOptions kFive{model::UpdateId{5}, false, kFakeEpoch};

TEST(WaitTest, ReportsEachPhaseOnceAndReturnsTheEnd) {
  MadeUpWorld world;
  world.answers = {running(Phase::kAnnounced), running(Phase::kStaging), running(Phase::kStaging), sample_status()};
  const auto update = world.wait(kFive);
  ASSERT_TRUE(update) << update.error().message;
  EXPECT_EQ(update->phase, Phase::kCommitted);
  EXPECT_EQ(world.out.str(),
            "push 5 to version 3: announced\n"
            "push 5 to version 3: staging, 600 MB of 1.20 GB\n"
            "push 5 to version 3: committed, 1.20 GB of 1.20 GB\n");
}

TEST(WaitTest, ABarIsRemovedInTheEnd) {
  MadeUpWorld world;
  world.answers = {running(Phase::kStaging), sample_status()};
  ASSERT_TRUE(world.wait(kFive, Progress::Mode::kBar));
  EXPECT_THAT(world.err.str(), HasSubstr(" 50%"));
  EXPECT_TRUE(world.err.str().ends_with("\r\033[K"));
  EXPECT_EQ(world.out.str(), "");
}

TEST(WaitTest, WaitsBehindAnotherUpdate) {
  MadeUpWorld world;
  auto options = kFive;
  options.queued = true;
  world.answers.assign(100, running(Phase::kStaging, 4));  // for longer than lost_after
  world.answers.emplace_back(sample_status());
  ASSERT_TRUE(world.wait(options));
  EXPECT_THAT(world.out.str(), HasSubstr("update 5 waits behind update 4 (push to version 3, staging)\n"));
}

TEST(WaitTest, OutlivesARestartOfTheCoordinator) {
  MadeUpWorld world;
  world.answers = {running(Phase::kCommitting), base::fail(kNobody), base::fail(kNobody), sample_status()};
  ASSERT_TRUE(world.wait(kFive));
}

TEST(WaitTest, ARestartBeforeTheDecisionAborted) {
  MadeUpWorld world;
  auto after = nothing_known();
  after.epoch.number += 1;
  world.answers = {running(Phase::kStaging), base::fail(kNobody), after};
  const auto update = world.wait(kFive);
  ASSERT_FALSE(update);
  EXPECT_EQ(update.error().code, base::ErrorCode::kAborted);
  EXPECT_THAT(update.error().message, HasSubstr("restarted before update 5 was decided"));
}

TEST(WaitTest, ARestartLosesTheQueueToo) {
  MadeUpWorld world;
  auto options = kFive;
  options.queued = true;
  auto after = running(Phase::kStaging, 9);
  after.epoch.number += 1;
  world.answers = {after};
  const auto update = world.wait(options);
  ASSERT_FALSE(update);
  EXPECT_EQ(update.error().code, base::ErrorCode::kAborted);
}

TEST(WaitTest, GivesUpOnACoordinatorThatStaysAway) {
  MadeUpWorld world;
  world.answers = {running(Phase::kStaging), base::fail(kNobody)};
  const auto update = world.wait(kFive);
  ASSERT_FALSE(update);
  EXPECT_EQ(update.error().code, base::ErrorCode::kUnavailable);
  EXPECT_THAT(update.error().message, HasSubstr("outcome is unknown"));
  EXPECT_GE(world.time - base::Instant{}, kFive.patience);
}

TEST(WaitTest, SaysSoWhenTheUpdateIsNotKnown) {
  MadeUpWorld world;
  world.answers = {nothing_known()};
  const auto update = world.wait(kFive);
  ASSERT_FALSE(update);
  EXPECT_EQ(update.error().code, base::ErrorCode::kUnavailable);
}

TEST(WaitTest, OtherErrorsEndIt) {
  MadeUpWorld world;
  world.answers = {base::fail(base::ErrorCode::kPermissionDenied, "no")};
  EXPECT_EQ(world.wait(kFive).error().code, base::ErrorCode::kPermissionDenied);
}

}  // namespace
}  // namespace weightbus::cli
