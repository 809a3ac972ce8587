// A coordinator that dies, has a rival, or finds another journal than its members know.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "tests/integration/fleet/readers.h"

namespace weightbus::testing {
namespace {

using base::ErrorCode;
using protocol::ModelStatus;
using protocol::Phase;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void remove_journal(const Fleet& fleet) {
  for (const char* end : {"", "-wal", "-shm", ".lock"})
    std::filesystem::remove(fleet.path("journal.db") + end);
}

// The moment is drawn, so that over the rounds it falls into every phase.
void wait_for_moment(std::mt19937& random) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 60'000);
  while (std::chrono::steady_clock::now() < until)
    continue;
}

class History {
 public:
  // Numbers only grow, whoever of the coordinators gave them.
  void add(const protocol::UpdateAccepted& accepted) {
    EXPECT_GT(accepted.target.value(), version_);
    EXPECT_GT(accepted.update.value(), update_);
    version_ = accepted.target.value();
    update_ = accepted.update.value();
  }
  std::uint64_t version() const { return version_; }

 private:
  std::uint64_t version_ = 0;
  std::uint64_t update_ = 0;
};

// Kills in the middle of a stream of pushes, then checks that everyone agrees on one history.
void stream_of_pushes(Fleet& fleet, unsigned rounds, const std::function<void()>& kill) {
  std::mt19937 random(20240607);
  History history;
  ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0)).phase, Phase::kCommitted);
  Readers readers(fleet, {0, 1});
  readers.saw(1);
  for (unsigned round = 0; round < rounds; ++round) {
    std::optional<protocol::UpdateAccepted> accepted;
    fleet.wait_for("a push to be accepted", [&](const ModelStatus&) {
      const auto answer = fleet.push(fleet.checkpoint(round % 3));
      if (answer) accepted = *answer;
      return answer.has_value();
    });
    ASSERT_TRUE(accepted);
    history.add(*accepted);
    wait_for_moment(random);
    kill();
    fleet.wait_joined();
  }
  std::optional<protocol::UpdateStatus> last;
  fleet.wait_for("the last push", [&](const ModelStatus&) {
    const auto answer = fleet.push(fleet.checkpoint(1));
    if (!answer) return false;
    history.add(*answer);
    last = fleet.end_of(answer->update);
    return last->phase == Phase::kCommitted;
  });
  fleet.wait_serving(history.version());
  const auto status = fleet.status();
  std::set<std::uint64_t> versions;
  for (const auto& version : status.versions) {
    EXPECT_TRUE(versions.insert(version.version.value()).second) << "version " << version.version.value() << " twice";
    EXPECT_EQ(version.committed, version.version.value() == history.version());
  }
  const auto live = fleet.live_digests();
  for (unsigned rank = 0; rank < 2; ++rank)
    EXPECT_EQ(live.at(Fleet::member(0, rank)), live.at(Fleet::member(1, rank)));
  readers.saw(history.version());
  readers.finish();
}

TEST(CoordinatorFaults, KeepersKilledInAStreamOfPushesLeaveOneHistory) {
  Fleet fleet;
  stream_of_pushes(fleet, 12, [&] {
    fleet.coordinator().kill_keeper();
    fleet.start_coordinator();
  });
}

// Fewer than the keeper takes for a worker that cannot work.
TEST(CoordinatorFaults, WorkersKilledInAStreamOfPushesLeaveOneHistory) {
  Fleet fleet;
  stream_of_pushes(fleet, 5, [&] { fleet.coordinator().kill_worker(); });
}

TEST(CoordinatorFaults, OneThatWasAwayFindsItsEnginesServing) {
  Fleet fleet;
  ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0)).phase, Phase::kCommitted);
  Readers readers(fleet, {0, 1});
  readers.saw(1);
  fleet.coordinator().kill_keeper();
  fleet.start_coordinator();
  fleet.wait_serving(1);
  for (const auto& update : fleet.status().recent)
    EXPECT_EQ(update.kind, protocol::UpdateKind::kPush) << describe(update);
  readers.finish();
}

TEST(CoordinatorFaults, OneThatDiesInACommitIsNotNeededForIt) {
  Fleet fleet({.coordinator = {{"pause_deadline", "30s"}, {"commit_deadline", "30s"}}});
  ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0)).phase, Phase::kCommitted);
  ReaderProcess busy({"--socket", fleet.socket(0, 0), "--step-us", "500"});
  ASSERT_TRUE(busy.saw_version(1));
  busy.stop();  // so that its engine is in the middle of the commit
  const auto accepted = fleet.push(fleet.checkpoint(1));
  ASSERT_TRUE(accepted) << accepted.error().message;
  fleet.wait_for("the commit", [](const ModelStatus& status) {
    return status.running && status.running->phase == Phase::kCommitting;
  });
  fleet.coordinator().kill_keeper();
  busy.signal(SIGCONT);
  EXPECT_TRUE(busy.saw_version(2)) << "the engine did not go on without its coordinator";
  fleet.start_coordinator();
  fleet.wait_serving(2);
  EXPECT_EQ(fleet.end_of(accepted->update).phase, Phase::kCommitted);
  busy.finish();
  EXPECT_EQ(busy.wait(), 0);
}

TEST(CoordinatorFaults, ASecondOneOnTheJournalIsRefusedUntilTheFirstIsGone) {
  Fleet fleet({.engines = {1}});
  ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0)).phase, Phase::kCommitted);
  const pid_t holder = fleet.coordinator().worker();
  auto& second = fleet.add("second", "weightbus-coordinator",
                           {{"journal", fleet.path("journal.db")}, {"listen", "tcp://127.0.0.1:0"}});
  second.start();
  EXPECT_NE(second.wait(), 0);
  const std::string why = second.logged("journal.acquire", "error");
  EXPECT_NE(why.find("pid " + std::to_string(holder)), std::string::npos) << why;
  // The first one never noticed.
  EXPECT_EQ(fleet.push_to_end(fleet.checkpoint(1)).phase, Phase::kCommitted);
  fleet.coordinator().kill_keeper();
  second.start();
  EXPECT_FALSE(second.logged("coordinator.epoch", "epoch").empty()) << second.log_tail(10);
  EXPECT_EQ(second.stop(), 0);
  fleet.start_coordinator();
  fleet.wait_serving(2);
}

TEST(CoordinatorFaults, AJournalOfANewerVersionIsRefusedAndLeftAsItIs) {
  Fleet fleet({.engines = {1}, .start = false});
  fleet.start_coordinator();
  ASSERT_EQ(fleet.coordinator().stop(), 0);
  std::string bytes = read_file(fleet.path("journal.db"));
  ASSERT_GT(bytes.size(), 100U);
  bytes[63] = 99;  // the last byte of SQLite's user_version
  std::ofstream(fleet.path("journal.db"), std::ios::binary) << bytes;
  fleet.coordinator().start();
  EXPECT_EQ(fleet.coordinator().wait(), 64);
  const std::string why = fleet.coordinator().logged("journal.open", "error");
  EXPECT_NE(why.find("99"), std::string::npos) << why;
  EXPECT_NE(why.find("newer"), std::string::npos) << why;
  EXPECT_EQ(read_file(fleet.path("journal.db")), bytes);
}

TEST(CoordinatorFaults, AnEmptyJournalRefusesMembersOfAnotherUntilTheyAreAdopted) {
  Fleet fleet;
  ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0)).phase, Phase::kCommitted);
  const auto second = fleet.push_to_end(fleet.checkpoint(1));
  ASSERT_EQ(second.phase, Phase::kCommitted);
  fleet.wait_serving(2);
  Readers readers(fleet, {0, 1});
  readers.saw(2);
  ASSERT_EQ(fleet.coordinator().stop(), 0);
  remove_journal(fleet);
  fleet.start_coordinator();
  fleet.wait_for("the members of the other journal", [](const ModelStatus& status) { return status.needs_adopt; });
  const auto refused = fleet.push(fleet.checkpoint(0));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_NE(refused.error().message.find("adopt"), std::string::npos) << refused.error().message;
  // Every member has to be heard before it is adopted; those that come later are asked about again.
  fleet.wait_for("everyone to be adopted", [&](const ModelStatus& status) {
    if (status.needs_adopt) static_cast<void>(fleet.ask<protocol::Done>(protocol::AdoptRequest{}));
    return std::count_if(status.members.begin(), status.members.end(),
                         [](const auto& member) { return member.connected; }) == 6;
  });
  const auto update = fleet.push_to_end(fleet.checkpoint(2));
  ASSERT_EQ(update.phase, Phase::kCommitted) << describe(update);
  EXPECT_GT(update.target, second.target);
  EXPECT_GT(update.update, second.update);
  fleet.wait_serving(update.target.value());
  readers.saw(update.target.value());
  readers.finish();
}

}  // namespace
}  // namespace weightbus::testing
