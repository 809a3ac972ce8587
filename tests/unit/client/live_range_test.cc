#include "weightbus/client/live_range.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

#include "tests/unit/client/shm_arena.h"

namespace weightbus::client {
namespace {

using testing::ShmArena;

TEST(LiveRange, ExchangesHalvesAtUnchangedAddresses) {
  ShmArena arena;
  arena.fill(0, 1);
  arena.fill(1, 2);
  LiveRange range;
  ASSERT_TRUE(range.open(arena.info(0, 1)));
  EXPECT_EQ(range.mapped(), std::nullopt);
  ASSERT_TRUE(range.map(0));
  const std::byte* first = range.region(0);
  const std::byte* second = range.region(1);
  EXPECT_EQ(first[5], ShmArena::pattern(1, 0, 5));
  EXPECT_EQ(second[29'999], ShmArena::pattern(1, 1, 29'999));
  for (std::uint32_t round = 0; round < 100; ++round) {
    const std::uint32_t half = (round + 1) % 2;
    ASSERT_TRUE(range.map(half));
    ASSERT_EQ(range.region(0), first);
    ASSERT_EQ(range.region(1), second);
    EXPECT_EQ(first[700], ShmArena::pattern(half + 1, 0, 700));
    EXPECT_EQ(second[29'999], ShmArena::pattern(half + 1, 1, 29'999));
  }
}

TEST(LiveRange, KeepsItsAddressesForANewArenaOfEqualSizes) {
  ShmArena old_arena;
  LiveRange range;
  ASSERT_TRUE(range.open(old_arena.info(0, 1)));
  ASSERT_TRUE(range.map(0));
  const std::byte* before = range.region(1);
  ShmArena new_arena;
  new_arena.fill(1, 5);
  ASSERT_TRUE(range.open(new_arena.info(1, 5)));
  ASSERT_TRUE(range.map(1));
  EXPECT_EQ(range.region(1), before);
  EXPECT_EQ(before[64], ShmArena::pattern(5, 1, 64));
}

TEST(LiveRange, RefusesWhatTheAgentDescribedWrongly) {
  ShmArena arena;
  LiveRange range;
  auto gone = arena.info(0, 1);
  gone.halves[1][1].handle = "weightbus.test.gone";
  EXPECT_EQ(range.open(gone).error().code, base::ErrorCode::kNotFound);
  auto larger = arena.info(0, 1);
  for (auto& half : larger.halves)
    half[0].bytes += 1;
  EXPECT_EQ(range.open(larger).error().code, base::ErrorCode::kCorrupted);
  auto gpu = arena.info(0, 1);
  for (auto& half : gpu.halves)
    half[0].kind = model::RegionKind::kCudaVmm;
  EXPECT_EQ(range.open(gpu).error().code, base::ErrorCode::kUnsupported);
}

TEST(LiveRange, AShrunkenHalfIsRefusedBeforeAnythingIsUnmapped) {
  ShmArena arena;
  arena.fill(0, 1);
  LiveRange range;
  ASSERT_TRUE(range.open(arena.info(0, 1)));
  ASSERT_TRUE(range.map(0));
  const int fd = ::shm_open(("/" + arena.info(0, 1).halves[1][1].handle).c_str(), O_RDWR, 0);
  ASSERT_EQ(::ftruncate(fd, 4096), 0);
  ::close(fd);
  const auto status = range.map(1);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, base::ErrorCode::kCorrupted);
  EXPECT_EQ(range.mapped(), 0U);
  EXPECT_EQ(range.region(0)[9], ShmArena::pattern(1, 0, 9));
  EXPECT_EQ(range.region(1)[9], ShmArena::pattern(1, 1, 9));
}

int calls_left = 0;
void* failing_map(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (calls_left-- > 0) return ::mmap(at, bytes, protection, flags, fd, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}

TEST(LiveRange, AFirstMappingThatFailsIsAnError) {
  ShmArena arena;
  LiveRange range(&failing_map);
  ASSERT_TRUE(range.open(arena.info(0, 1)));
  calls_left = 1;
  EXPECT_EQ(range.map(0).error().code, base::ErrorCode::kResourceExhausted);
  EXPECT_EQ(range.mapped(), std::nullopt);
  calls_left = 2;
  EXPECT_TRUE(range.map(0));
}

TEST(LiveRangeDeathTest, AnExchangeThatFailsHalfwayEndsTheProcess) {
  // A plain fork: a new start of the test would make an arena of its own and leave it behind.
  ::testing::FLAGS_gtest_death_test_style = "fast";
  ShmArena arena;
  LiveRange range(&failing_map);
  ASSERT_TRUE(range.open(arena.info(0, 1)));
  calls_left = 2;
  ASSERT_TRUE(range.map(0));
  calls_left = 1;
  EXPECT_EXIT((void)range.map(1), ::testing::ExitedWithCode(kExitHalfMapped), "mixture of two versions");
}

}  // namespace
}  // namespace weightbus::client
