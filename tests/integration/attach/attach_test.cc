// An agent's attach server and real reader processes: what a reader computes with, whatever dies.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/integration/attach/reader_process.h"
#include "tests/unit/client/shm_arena.h"
#include "weightbus/runtime/attach_server.h"

namespace weightbus::runtime {
namespace {

using base::ErrorCode;
using testing::ReaderProcess;
using testing::ShmArena;
using testing::tag_of;
using namespace std::chrono_literals;

constexpr auto kLong = 30s;

class AttachProcessTest : public ::testing::Test {
 protected:
  std::unique_ptr<AttachServer> listen() {
    auto server = AttachServer::listen({.path = path_});
    EXPECT_TRUE(server) << server.error().message;
    return std::move(*server);
  }
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    std::vector<std::string> all{"--socket", path_, "--step-us", "200"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // One push: the shadow is filled while steps run, then exchanged in.
  base::Status push(AttachServer& server, std::uint64_t version) {
    const std::uint32_t shadow = 1 - server.arena()->live;
    arena_.fill(shadow, version);
    WB_TRY(server.pause(kLong));
    WB_TRY(server.exchange(shadow, tag_of(version), kLong));
    server.resume();
    return {};
  }
  // An agent in a process of its own, which does `work` and then only lives. Returns when `work` is done.
  template <class Work>
  pid_t fork_agent(Work&& work) {
    int done[2];
    EXPECT_EQ(::pipe(done), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto server = AttachServer::listen({.path = path_});
      const bool good = server && work(**server);
      (void)!::write(done[1], good ? "y" : "n", 1);
      for (;;)
        ::pause();
    }
    char result = 'n';
    EXPECT_EQ(::read(done[0], &result, 1), 1);
    EXPECT_EQ(result, 'y');
    ::close(done[0]);
    ::close(done[1]);
    return child;
  }
  static void kill_agent(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }

  testing::TempDir dir_;
  const std::string path_ = dir_.file("agent.sock");
  ShmArena arena_{200'000, 6};
};

TEST_F(AttachProcessTest, EveryStepSeesOneWholeVersionAtUnchangedAddresses) {
  auto server = listen();
  arena_.fill(0, 1);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  ReaderProcess reader(arguments());
  ASSERT_TRUE(reader.saw_version(1));
  for (std::uint64_t version = 2; version <= 12; ++version) {
    const auto status = push(*server, version);
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_TRUE(reader.saw_version(version)) << version;
  }
  // Rollback: the version before is still whole in the shadow.
  ASSERT_TRUE(server->pause(kLong));
  ASSERT_TRUE(server->exchange(0, tag_of(11), kLong));
  server->resume();
  ASSERT_TRUE(reader.saw_version(11));
  const auto summary = reader.finish();
  EXPECT_EQ(reader.wait(), 0) << summary;
  EXPECT_EQ(summary["violations"], 0);
  EXPECT_EQ(summary["address_changes"], 0);
  EXPECT_EQ(summary["exchanges"], 12);
  EXPECT_EQ(summary["versions"].size(), 12U);
}

TEST_F(AttachProcessTest, AReaderThatIgnoresThePauseIsCaught) {
  auto server = listen();
  arena_.fill(0, 1);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  ReaderProcess reader(arguments({"--ignore-pause", "--stop-on-violation"}));
  ASSERT_TRUE(reader.saw_version(1));
  std::uint64_t version = 1;
  while (!reader.has_ended() && version < 100'000) {
    const auto status = push(*server, ++version);
    ASSERT_TRUE(status) << status.error().message;
  }
  EXPECT_EQ(reader.wait(), 3);
  const auto violation = reader.next("violation");
  EXPECT_TRUE(violation);
}

TEST_F(AttachProcessTest, ADigestKnownBeforehandIsHeldAgainstWhatIsRead) {
  auto server = listen();
  arena_.fill(0, 1);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  ReaderProcess first(arguments({"--steps", "1"}));
  const auto digest = first.next("version").value().at("digest").get<std::string>();
  EXPECT_EQ(first.wait(), 0);
  ReaderProcess same(arguments({"--steps", "3", "--expect", "1=" + digest}));
  EXPECT_EQ(same.wait(), 0);
  ReaderProcess other(arguments({"--steps", "3", "--expect", "1=" + std::string(32, '0')}));
  EXPECT_EQ(other.wait(), 3);
}

TEST_F(AttachProcessTest, AReaderKilledDuringAPauseCountsAsGone) {
  auto server = listen();
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  ReaderProcess stopped(arguments());
  ReaderProcess healthy(arguments());
  ASSERT_TRUE(stopped.saw_version(1));
  ASSERT_TRUE(healthy.saw_version(1));
  stopped.stop();
  auto paused = std::async(std::launch::async, [&] { return server->pause(kLong); });
  EXPECT_EQ(paused.wait_for(50ms), std::future_status::timeout);
  stopped.signal(SIGKILL);
  const auto report = paused.get();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->readers, 1U);
  const auto exchanged = server->exchange(1, tag_of(2), kLong);
  ASSERT_TRUE(exchanged) << exchanged.error().message;
  EXPECT_EQ(exchanged->readers, 1U);
  server->resume();
  ASSERT_TRUE(healthy.saw_version(2));
  healthy.finish();
  EXPECT_EQ(healthy.wait(), 0);
}

TEST_F(AttachProcessTest, AReaderKilledDuringAnExchangeCountsAsGone) {
  auto server = listen();
  arena_.fill(0, 1);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  ReaderProcess victim(arguments());
  ASSERT_TRUE(victim.saw_version(1));
  ASSERT_TRUE(server->pause(kLong));
  victim.stop();
  auto exchanged = std::async(std::launch::async, [&] { return server->exchange(1, tag_of(2), kLong); });
  EXPECT_EQ(exchanged.wait_for(50ms), std::future_status::timeout);
  victim.signal(SIGKILL);
  const auto report = exchanged.get();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->readers, 0U);
  EXPECT_EQ(server->arena()->live, 1U);
  server->resume();
}

TEST_F(AttachProcessTest, AStoppedReaderFailsThePauseByItsDeadlineAndNothingChanges) {
  auto server = listen();
  arena_.fill(0, 1);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  ReaderProcess reader(arguments());
  ASSERT_TRUE(reader.saw_version(1));
  reader.stop();
  const auto paused = server->pause(100ms);
  ASSERT_FALSE(paused);
  EXPECT_EQ(paused.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_NE(paused.error().message.find(std::to_string(reader.pid())), std::string::npos) << paused.error().message;
  EXPECT_EQ(server->exchange(1, tag_of(2), kLong).error().code, ErrorCode::kConflict);
  server->resume();
  reader.signal(SIGCONT);
  const auto status = push(*server, 3);
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_TRUE(reader.saw_version(3));
  const auto summary = reader.finish();
  EXPECT_EQ(reader.wait(), 0) << summary;
}

TEST_F(AttachProcessTest, AReaderStoppedDuringTheExchangeComesBackToWhatIsLive) {
  auto server = listen();
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  ReaderProcess reader(arguments());
  ReaderProcess healthy(arguments());
  ASSERT_TRUE(reader.saw_version(1));
  ASSERT_TRUE(healthy.saw_version(1));
  ASSERT_TRUE(server->pause(kLong));
  reader.stop();
  const auto exchanged = server->exchange(1, tag_of(2), 100ms);
  ASSERT_FALSE(exchanged);
  EXPECT_EQ(exchanged.error().code, ErrorCode::kDeadlineExceeded);
  // The healthy one has exchanged and goes back, so that both compute with version 1.
  server->resume();
  reader.signal(SIGCONT);
  ASSERT_TRUE(server->pause(kLong));
  server->resume();
  for (auto* process : {&reader, &healthy}) {
    const auto summary = process->finish();
    EXPECT_EQ(process->wait(), 0) << summary;
    EXPECT_EQ(summary["last_version"], 1);
    EXPECT_EQ(summary["versions"].size(), 1U);
  }
}

TEST_F(AttachProcessTest, AReaderOutlivesItsAgentAndFollowsTheNextOne) {
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  const pid_t agent = fork_agent([&](AttachServer& server) { return server.set_arena(arena_.info(0, 1)).has_value(); });
  ReaderProcess reader(arguments());
  ASSERT_TRUE(reader.saw_version(1));
  kill_agent(agent);
  // The next agent pauses before anything else; the reader, which computes unattached, is not overlooked.
  auto server = listen();
  const auto paused = server->pause(kLong);
  ASSERT_TRUE(paused) << paused.error().message;
  EXPECT_EQ(paused->readers, 1U);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  ASSERT_TRUE(server->exchange(1, tag_of(2), kLong));
  server->resume();
  ASSERT_TRUE(reader.saw_version(2));
  const auto summary = reader.finish();
  EXPECT_EQ(reader.wait(), 0) << summary;
  EXPECT_EQ(summary["attachments"], 2);
}

TEST_F(AttachProcessTest, AnAgentKilledBetweenPauseAndExchangeLeavesItsReadersWaiting) {
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  // The reader attaches while the agent holds the pause: it waits from the first moment.
  const pid_t agent = fork_agent([&](AttachServer& server) { return server.set_arena(arena_.info(0, 1)).has_value(); });
  ReaderProcess reader(arguments());
  ASSERT_TRUE(reader.saw_version(1));
  kill_agent(agent);
  const pid_t second = fork_agent([&](AttachServer& server) {
    return server.set_arena(arena_.info(0, 1)).has_value() && server.pause(kLong).has_value();
  });
  kill_agent(second);
  // It had recorded half 1 as live before it died. Had the reader gone on with half 0 meanwhile, writing there would
  // be seen as a violation.
  arena_.fill(0, 99);
  auto server = listen();
  ASSERT_TRUE(server->set_arena(arena_.info(1, 2)));
  ASSERT_TRUE(reader.saw_version(2));
  const auto summary = reader.finish();
  EXPECT_EQ(reader.wait(), 0) << summary;
  EXPECT_EQ(summary["violations"], 0);
}

}  // namespace
}  // namespace weightbus::runtime
