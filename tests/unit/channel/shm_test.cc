#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "weightbus/channel/shm/control_block.h"
#include "weightbus/channel/shm/factory.h"
#include "weightbus/device/host/factory.h"

namespace weightbus::channel {
namespace {

using base::ErrorCode;

bool exists(const std::string& name) { return std::filesystem::exists("/dev/shm/" + name); }

TEST(ControlBlock, TellsItsStateAndVanishesWithItsSource) {
  auto source = ControlBlock::create(hash_token("token"));
  ASSERT_TRUE(source) << source.error().message;
  const auto name = (*source)->name();
  const auto sink = ControlBlock::open(name);
  ASSERT_TRUE(sink) << sink.error().message;
  EXPECT_TRUE(equal_secrets((*sink)->token(), hash_token("token")));
  EXPECT_EQ((*sink)->state(), ServeState::kWaiting);
  EXPECT_TRUE((*sink)->source_alive());
  (*source)->set_state(ServeState::kServing);
  EXPECT_EQ((*sink)->state(), ServeState::kServing);
  source->reset();
  EXPECT_FALSE((*sink)->source_alive());
  EXPECT_FALSE(exists(name));
  EXPECT_EQ(ControlBlock::open(name).error().code, ErrorCode::kUnavailable);
}

TEST(ControlBlock, DrainWaitsForReadersAndLetsNoNewOneIn) {
  const auto source = ControlBlock::create(Secret{});
  ASSERT_TRUE(source);
  const auto first = ControlBlock::open((*source)->name());
  const auto second = ControlBlock::open((*source)->name());
  ASSERT_TRUE(first && second);
  ASSERT_TRUE((*first)->begin_read());
  ASSERT_TRUE((*second)->begin_read()) << "readers do not exclude each other";
  (*source)->drain(std::chrono::milliseconds(1));
  EXPECT_TRUE((*first)->begin_read()) << "the drain gave up, since readers remained";
  (*first)->end_read();
  (*second)->end_read();
  (*source)->drain(std::chrono::seconds(60));
  EXPECT_FALSE((*first)->begin_read());
}

TEST(ControlBlock, TheSweepTakesOnlyWhatTheDeadLeft) {
  const auto living = ControlBlock::create(Secret{});
  ASSERT_TRUE(living);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto block = ControlBlock::create(Secret{});
    if (!block || ::write(ends[1], (*block)->name().data(), (*block)->name().size()) < 0) ::_exit(1);
    while (true)
      ::pause();
  }
  char name[256] = {};
  ASSERT_GT(::read(ends[0], name, sizeof name - 1), 0);
  ControlBlock::sweep();
  EXPECT_TRUE(exists(name));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_TRUE(exists(name));
  ControlBlock::sweep();
  EXPECT_FALSE(exists(name));
  EXPECT_TRUE(exists((*living)->name()));
}

TEST(ControlBlock, OtherObjectsAreRefused) {
  const auto device = device::make_host_device();
  const std::string name = "weightbus.test." + std::to_string(::getpid()) + ".page";
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{4096}}) {
    const auto memory = device->allocate(name, bytes);
    ASSERT_TRUE(memory);
    const auto block = ControlBlock::open(name);
    device->remove(name);
    ASSERT_FALSE(block) << bytes;
    EXPECT_EQ(block.error().code, ErrorCode::kCorrupted);
  }
  EXPECT_EQ(ControlBlock::open("../../etc/passwd").error().code, ErrorCode::kInvalidArgument);
}

// A reader that was stopped does not hold its source for longer than the drain.
TEST(ShmChannel, AStoppedReaderDoesNotHoldItsSource) {
  const auto device = device::make_host_device();
  const auto channel = make_shm_channel(device, {.threads = 1, .drain = std::chrono::milliseconds(20)});
  auto source = channel->serve({model::MemberId("source"), {}, "token"});
  ASSERT_TRUE(source) << source.error().message;
  // The control page's name: after the revision (2 bytes) and its own length (4 bytes).
  const auto& descriptor = (*source)->offer().descriptor;
  const std::string name = descriptor.substr(6, static_cast<unsigned char>(descriptor[2]));
  const auto reader = ControlBlock::open(name);
  ASSERT_TRUE(reader) << reader.error().message;
  ASSERT_TRUE((*reader)->begin_read());
  source->reset();  // returns, though the reader never ends
  EXPECT_EQ((*reader)->state(), ServeState::kClosed) << "which is what the reader sees after its last byte";
  EXPECT_FALSE(exists(name));
}

TEST(ShmChannel, OnlyNamedSharedMemoryIsServed) {
  class Other final : public device::Memory {
   public:
    std::byte* data() noexcept override { return nullptr; }
    std::uint64_t bytes() const noexcept override { return 0; }
    const model::Region& region() const noexcept override { return region_; }

   private:
    const model::Region region_{model::RegionKind::kCudaVmm, "GPU-1", "", 0, 0};
  } memory;
  const auto channel = make_shm_channel(device::make_host_device());
  const auto source = channel->serve({model::MemberId("source"), {&memory}, "token"});
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace weightbus::channel
