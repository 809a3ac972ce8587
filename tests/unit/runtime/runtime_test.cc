#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "tests/unit/client/shm_arena.h"
#include "weightbus/runtime/clock.h"
#include "weightbus/runtime/mailbox.h"
#include "weightbus/runtime/signals.h"
#include "weightbus/runtime/state_file.h"
#include "weightbus/runtime/worker_pool.h"

namespace weightbus::runtime {
namespace {

using base::ErrorCode;
using namespace std::chrono_literals;

TEST(Clock, OnlyGrows) {
  const auto first = now();
  EXPECT_GE(now(), first);
  EXPECT_GT(unix_millis(), 1'600'000'000'000U);
}

TEST(Mailbox, RunsInOrderAndLeavesNewTasksForTheNextTurn) {
  int woken = 0;
  Mailbox mailbox([&] { ++woken; });
  std::string order;
  mailbox.post([&] {
    order += 'a';
    mailbox.post([&] { order += 'c'; });
  });
  mailbox.post([&] { order += 'b'; });
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(mailbox.run(), 2U);
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(mailbox.run(), 1U);
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(mailbox.run(), 0U);
}

TEST(WorkerPool, RunsJobsElsewhereAndContinuationsInTheLoop) {
  std::promise<void> posted;
  Mailbox mailbox([&] { posted.set_value(); });
  WorkerPool pool(2, 8, [&](Task task) { mailbox.post(std::move(task)); });
  std::thread::id job_thread;
  std::thread::id then_thread;
  ASSERT_TRUE(pool.submit([&] {
    job_thread = std::this_thread::get_id();
    return [&] { then_thread = std::this_thread::get_id(); };
  }));
  posted.get_future().wait();
  mailbox.run();
  EXPECT_EQ(then_thread, std::this_thread::get_id());
  EXPECT_NE(job_thread, then_thread);
}

TEST(WorkerPool, RefusesMoreThanItsQueueHolds) {
  std::promise<void> go;
  std::promise<void> running;
  std::atomic<int> done{0};
  {
    WorkerPool pool(1, 2, [](Task) {});
    ASSERT_TRUE(pool.submit([&]() -> Task {
      running.set_value();
      go.get_future().wait();
      ++done;
      return {};
    }));
    running.get_future().wait();
    const auto job = [&]() -> Task {
      ++done;
      return {};
    };
    EXPECT_TRUE(pool.submit(job));
    EXPECT_TRUE(pool.submit(job));
    EXPECT_EQ(pool.submit(job).error().code, ErrorCode::kResourceExhausted);
    go.set_value();
  }
  // The running one was waited for.
  EXPECT_GE(done, 1);
}

TEST(StopSignals, ASignalAsksOnceAndKeepsTheProcess) {
  std::promise<void> asked;
  std::atomic<int> calls{0};
  {
    StopSignals signals(
        [&] {
          if (++calls == 1) asked.set_value();
        },
        1h);
    EXPECT_FALSE(signals.requested());
    ::kill(::getpid(), SIGTERM);
    asked.get_future().wait();
    ::kill(::getpid(), SIGINT);
    EXPECT_TRUE(signals.requested());
  }
  EXPECT_EQ(calls, 1);
}

TEST(StopSignalsDeathTest, AProcessThatDoesNotStopEndsAfterItsGrace) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        StopSignals signals([] {}, 20ms);
        signals.request();
        for (;;)
          ::pause();
      },
      ::testing::ExitedWithCode(kExitGraceOver), "still busy");
}

TEST(StateFile, ReplacesWhole) {
  testing::TempDir dir;
  const auto path = dir.file("state");
  EXPECT_EQ(read_file(path, 100).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(write_file(path, "first", Durability::kMachine));
  ASSERT_TRUE(write_file(path, std::string("sec\0nd", 6), Durability::kProcess));
  EXPECT_EQ(read_file(path, 6).value(), std::string("sec\0nd", 6));
  EXPECT_EQ(read_file(path, 5).error().code, ErrorCode::kCorrupted);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_NE(::access((path + ".tmp").c_str(), F_OK), 0);
}

TEST(StateFile, AFailedWriteLeavesWhatWasThere) {
  testing::TempDir dir;
  const auto path = dir.file("state");
  ASSERT_TRUE(write_file(path, "before", Durability::kProcess));
  // A limit on file sizes stands for a full disk.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &former), 0);
  const rlimit small{10, former.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto status = write_file(path, std::string(1000, 'x'), Durability::kProcess);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &former), 0);
  EXPECT_FALSE(status);
  EXPECT_EQ(read_file(path, 100).value(), "before");
  EXPECT_NE(::access((path + ".tmp").c_str(), F_OK), 0);
  EXPECT_EQ(write_file(dir.file("none/state"), "x", Durability::kProcess).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace weightbus::runtime
