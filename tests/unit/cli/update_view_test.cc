#include "cli/update_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/fleet_view.h"
#include "cli/table.h"
#include "tests/unit/cli/fake_coordinator.h"

namespace weightbus::cli {
namespace {

using protocol::Phase;
using testing::HasSubstr;
using testing::Not;

TEST(ProgressLineTest, ShowsShareRateAndTimeLeft) {
  const auto line = progress_line(sample_update(Phase::kStaging), 100);
  EXPECT_THAT(line, HasSubstr("staging"));
  EXPECT_THAT(line, HasSubstr(" 50%  600 MB of 1.20 GB  2.00 GB/s  0:01 left"));
  EXPECT_THAT(line, HasSubstr("===>"));
}

TEST(ProgressLineTest, FitsEveryWidth) {
  auto update = sample_update(Phase::kStaging);
  for (int width = 1; width <= 140; ++width) {
    for (const std::uint64_t done : {0ULL, 600'000'000ULL, 1'200'000'000ULL, 5'000'000'000ULL}) {
      update.bytes_done = done;
      EXPECT_LE(text_columns(progress_line(update, width)), static_cast<std::size_t>(width)) << width;
    }
  }
}

TEST(ProgressLineTest, PartsGiveWayFromTheRight) {
  const auto update = sample_update(Phase::kStaging);
  EXPECT_THAT(progress_line(update, 40), Not(HasSubstr("left")));
  EXPECT_THAT(progress_line(update, 40), HasSubstr("50%"));
  EXPECT_THAT(progress_line(update, 26), AllOf(HasSubstr("["), HasSubstr("50%"), Not(HasSubstr("GB"))));
}

TEST(ProgressLineTest, TheBarFollowsTheBytes) {
  auto update = sample_update(Phase::kStaging);
  std::size_t last = 0;
  for (std::uint64_t done = 0; done <= update.bytes_total; done += update.bytes_total / 10) {
    update.bytes_done = done;
    const auto line = progress_line(update, 100);
    const auto filled = static_cast<std::size_t>(std::count(line.begin(), line.end(), '='));
    EXPECT_GE(filled, last);
    last = filled;
  }
  EXPECT_EQ(last, 38U);
}

TEST(ProgressLineTest, BeforeThePlanThereIsOnlyThePhase) {
  auto update = sample_update(Phase::kAnnounced);
  update.bytes_total = 0;
  EXPECT_EQ(progress_line(update, 80), "announced ");
}

struct View {
  std::ostringstream sink;
  Console console{sink, sink};
};

TEST(ResultTest, CommittedShowsWhatItTook) {
  View view;
  const auto text = update_result(sample_update(Phase::kCommitted), view.console);
  EXPECT_THAT(text, HasSubstr("committed  push 5 to version 3\n"));
  EXPECT_THAT(text, HasSubstr("1.20 GB at 4.00 GB/s"));
  EXPECT_THAT(text, HasSubstr("184 compared, all equal"));
  EXPECT_THAT(text, HasSubstr("announced 5.00 ms, staging 300 ms"));
  EXPECT_THAT(text, HasSubstr("engine-0  committed  600 MB  2.50 ms  shm      remap"));
  EXPECT_THAT(text, Not(HasSubstr("Error")));
}

TEST(ResultTest, AbortedSaysWhyAndThatNothingChanged) {
  View view;
  auto update = sample_update(Phase::kAborted);
  update.engines[0].committed = false;
  update.error = base::Error{base::ErrorCode::kUnavailable, "engine-0-tp0 has gone"};
  const auto text = update_result(update, view.console);
  EXPECT_THAT(text, HasSubstr("aborted  push 5 to version 3\n"));
  EXPECT_THAT(text, HasSubstr("Error: unavailable\n  engine-0-tp0 has gone\nNothing changed"));
  EXPECT_THAT(text, Not(HasSubstr("all equal")));
}

TEST(ResultTest, PlanShowsChannelsLinksMemoryAndWarnings) {
  View view;
  auto update = sample_update(Phase::kPlanned);
  protocol::PlanReport plan{{1, 2}, 1'000'000, 46, 2'000'000};
  plan.links = {{model::MemberId{"trainer-0"}, model::MemberId{"engine-0-tp0"}, "shm", 600'000, 2},
                {model::MemberId{"trainer-1"}, model::MemberId{"engine-0-tp0"}, "tcp", 400'000, 1}};
  plan.warnings = {"one engine and nothing retained: if it is lost, so is the version"};
  update.plan = plan;
  const auto text = plan_result(update, view.console);
  EXPECT_THAT(text, HasSubstr("1.00 MB, 46 tensors"));
  EXPECT_THAT(text, HasSubstr("2.00 MB in the arenas"));
  EXPECT_THAT(text, HasSubstr("shm      600 kB in 2 buckets"));
  EXPECT_THAT(text, HasSubstr("trainer-1  engine-0-tp0  tcp      400 kB        1"));
  EXPECT_THAT(text, HasSubstr("warning: one engine and nothing retained"));
}

TEST(FleetViewTest, ShowsVersionsStatesAndEventsWithinAHundredColumns) {
  View view;
  auto status = sample_status();
  status.running = sample_update(Phase::kStaging);
  status.recent.front().error = base::Error{base::ErrorCode::kAborted, std::string(300, 'e')};
  for (const auto& text :
       {status_view(status, view.console), versions_view(status, view.console), members_view(status, view.console)}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(text_columns(line), 100U) << line;
  }
  EXPECT_THAT(status_view(status, view.console),
              AllOf(HasSubstr("version 3"), HasSubstr("serving"), HasSubstr("update 5 committed")));
  EXPECT_THAT(versions_view(status, view.console),
              AllOf(HasSubstr("instant, pinned"), HasSubstr("1 live, 1 snapshot")));
  status.members[0].quarantined = true;
  EXPECT_THAT(members_view(status, view.console), HasSubstr("quarantined"));
  status.members[0].connected = false;
  EXPECT_THAT(members_view(status, view.console), HasSubstr("lost"));
}

}  // namespace
}  // namespace weightbus::cli
