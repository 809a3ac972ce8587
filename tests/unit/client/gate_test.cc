#include "weightbus/client/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "tests/unit/client/shm_arena.h"

namespace weightbus::client {
namespace {

std::shared_ptr<const Arena> arena_of(std::uint64_t version) {
  return std::make_shared<const Arena>(Arena{testing::tag_of(version), std::make_shared<const std::vector<Slot>>()});
}

TEST(Gate, StartsClosedAndSaysSoWithinTheTimeout) {
  Gate gate([] {});
  EXPECT_TRUE(gate.idle());
  EXPECT_EQ(gate.enter(std::chrono::milliseconds(1)).error().code, base::ErrorCode::kDeadlineExceeded);
  gate.open(arena_of(3));
  EXPECT_EQ(gate.enter(std::nullopt).value()->tag.version, model::WeightVersion(3));
  EXPECT_FALSE(gate.idle());
  gate.leave();
}

TEST(Gate, TellsWhenTheLastStepHasLeftAClosedGate) {
  int idle_calls = 0;
  Gate gate([&] { ++idle_calls; });
  gate.open(arena_of(1));
  ASSERT_TRUE(gate.enter(std::nullopt));
  ASSERT_TRUE(gate.enter(std::nullopt));
  gate.close();
  gate.leave();
  EXPECT_EQ(idle_calls, 0);
  EXPECT_FALSE(gate.idle());
  gate.leave();
  EXPECT_EQ(idle_calls, 1);
  EXPECT_TRUE(gate.idle());
}

TEST(Gate, ShutEndsEveryWait) {
  Gate gate([] {});
  auto waiting = std::async(std::launch::async, [&] { return gate.enter(std::nullopt); });
  gate.shut();
  EXPECT_EQ(waiting.get().error().code, base::ErrorCode::kUnavailable);
  EXPECT_EQ(gate.enter(std::nullopt).error().code, base::ErrorCode::kUnavailable);
}

// The property that everything rests on: between close() + idle() and open() nobody is inside.
TEST(Gate, NobodyIsInsideWhileItIsClosedAndIdle) {
  Gate gate([] {});
  std::atomic<int> value{0};
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0};
  std::vector<std::thread> steps;
  gate.open(arena_of(1));
  for (int i = 0; i < 3; ++i) {
    steps.emplace_back([&] {
      while (!stop) {
        if (!gate.enter(std::nullopt)) return;
        const int before = value.load(std::memory_order_relaxed);
        std::this_thread::yield();
        if (value.load(std::memory_order_relaxed) != before) ++torn;
        gate.leave();
      }
    });
  }
  for (int round = 0; round < 300; ++round) {
    gate.close();
    while (!gate.idle())
      std::this_thread::yield();
    value.fetch_add(1, std::memory_order_relaxed);
    gate.open(arena_of(static_cast<std::uint64_t>(round + 2)));
  }
  stop = true;
  gate.shut();
  for (auto& thread : steps)
    thread.join();
  EXPECT_EQ(torn, 0);
}

}  // namespace
}  // namespace weightbus::client
