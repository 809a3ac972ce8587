#include "cli/watch_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/checks.h"
#include "tests/unit/cli/fake_coordinator.h"

namespace weightbus::cli {
namespace {

using testing::HasSubstr;

TEST(WatchLinesTest, PrintsOnlyWhatIsNew) {
  WatchLines lines(false);
  auto status = sample_status();
  EXPECT_THAT(lines.next(status), AllOf(HasSubstr("joined"), HasSubstr("update 5 committed")));
  EXPECT_EQ(lines.next(status), "");
  status.events.push_back({3, 1'700'000'002'000, "update 6 began"});
  status.running = sample_update(protocol::Phase::kStaging);
  const auto more = lines.next(status);
  EXPECT_THAT(more, AllOf(HasSubstr("update 6 began"), HasSubstr("staging"), testing::Not(HasSubstr("joined"))));
  status.running->bytes_done += 1;
  EXPECT_EQ(lines.next(status), "") << "people are told of phases, not of bytes";
}

TEST(WatchLinesTest, JsonFollowsTheBytes) {
  WatchLines lines(true);
  auto status = sample_status();
  status.running = sample_update(protocol::Phase::kStaging);
  lines.next(status);
  EXPECT_EQ(lines.next(status), "");
  status.running->bytes_done += 1;
  EXPECT_THAT(lines.next(status), HasSubstr("\"bytes_done\":600000001"));
}

TEST(WatchLinesTest, ARestartedCoordinatorCountsAnew) {
  WatchLines lines(false);
  auto status = sample_status();
  status.events[1].sequence = 90;
  lines.next(status);
  status.epoch.number += 1;
  status.events = {{1, 1'700'000'005'000, "engine-0-tp0 joined again"}};
  EXPECT_THAT(lines.next(status), AllOf(HasSubstr("restarted"), HasSubstr("joined again")));
}

TEST(WatchLinesTest, TroubleIsSaidOnce) {
  WatchLines lines(false);
  const base::Error nobody{base::ErrorCode::kUnavailable, "no coordinator answered"};
  EXPECT_THAT(lines.trouble(nobody), HasSubstr("no coordinator answered"));
  EXPECT_EQ(lines.trouble(nobody), "");
  lines.next(sample_status());
  EXPECT_NE(lines.trouble(nobody), "");
}

TEST(ChecksTest, LittleSharedMemoryAndFewDescriptorsAreSaid) {
  EXPECT_EQ(judge_shared_memory(64ULL << 20, 64ULL << 20).health, Health::kFail);
  EXPECT_EQ(judge_shared_memory(64ULL << 30, 1ULL << 30).health, Health::kWarn);
  EXPECT_EQ(judge_shared_memory(64ULL << 30, 60ULL << 30).health, Health::kOk);
  EXPECT_EQ(judge_descriptors(100, 100).health, Health::kFail);
  EXPECT_EQ(judge_descriptors(1024, 4096).health, Health::kWarn);
  EXPECT_THAT(judge_descriptors(1024, 4096).advice, HasSubstr("ulimit -n 4096"));
  EXPECT_EQ(judge_descriptors(1 << 20, 1 << 20).health, Health::kOk);
  EXPECT_EQ(check_reservation().health, Health::kOk);
}

}  // namespace
}  // namespace weightbus::cli
