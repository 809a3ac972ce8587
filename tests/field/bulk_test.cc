// Field cases of bulk data: real channels and real shared memory, in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/field/region.h"
#include "tests/unit/client/shm_arena.h"
#include "weightbus/channel/selection.h"
#include "weightbus/channel/shm/factory.h"
#include "weightbus/channel/tcp/factory.h"
#include "weightbus/client/live_range.h"
#include "weightbus/device/host/factory.h"

namespace weightbus::field {
namespace {

using base::ErrorCode;
using channel::Channel;
using ::testing::HasSubstr;
using testing::PartBuilder;
using testing::SinkMemory;

constexpr base::Duration kPlenty = std::chrono::seconds(60);
constexpr char kToken[] = "the token of this update";

std::vector<const device::Memory*> memory_of(const std::vector<std::unique_ptr<Region>>& regions) {
  std::vector<const device::Memory*> result;
  for (const auto& region : regions)
    result.push_back(region->memory());
  return result;
}
std::shared_ptr<const plan::SourcePart> source_part(const PartBuilder& builder) {
  auto part = std::make_shared<plan::SourcePart>();
  part->tensors = builder.tensors;
  part->buckets = builder.buckets;
  return part;
}

// Serves the part over `channel`, pulls it, and gives what arrived; `after` runs when the pull has returned.
struct Delivered {
  base::Status status;
  bool whole = false;  // every byte as the definition of strides says, and no other byte touched
};
Delivered deliver(Channel& channel, device::Device& device, const PartBuilder& part) {
  std::vector<std::unique_ptr<Region>> regions;
  std::vector<const std::byte*> from;
  for (const auto bytes : part.from_bytes) {
    regions.push_back(std::make_unique<Region>(device, bytes));
    from.push_back(regions.back()->memory()->data());
  }
  SinkMemory expected(part.to_bytes);
  for (const auto& bucket : part.buckets)
    testing::reference_copy(bucket, part.tensors, from, expected.pointers());
  auto source = channel.serve({model::MemberId("source"), memory_of(regions), kToken});
  if (!source) return {base::fail(source.error())};
  (*source)->set_part(source_part(part));
  auto session =
      channel.join({model::MemberId("source"), model::MemberId("sink"), (*source)->offer(), kToken, kPlenty});
  if (!session) return {base::fail(session.error())};
  SinkMemory memory(part.to_bytes);
  device::Control control;
  auto status = (*session)->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control);
  // The trainer goes on at once: its next step overwrites what was sent.
  source->reset();
  for (const auto& region : regions)
    region->overwrite();
  return {status, memory == expected};
}

// ---------------------------------------------------------------- F06

// On a device it did not support, an update was a successful no-op. Every layer refuses memory it cannot handle.
TEST(Field, F06_GpuMemoryIsRefusedWhereOnlyCpusAreSupported) {
  const auto device = device::make_host_device();
  for (const auto kind : {model::RegionKind::kCudaVmm, model::RegionKind::kCudaIpc, model::RegionKind::kHostMemfd}) {
    const auto imported = device->import_region({kind, "GPU-1", "handle", 4096, 1}, false);
    ASSERT_FALSE(imported);
    EXPECT_EQ(imported.error().code, ErrorCode::kUnsupported) << imported.error().message;
  }
  const std::vector<std::string> offered{"shm", "tcp"};
  const std::vector<channel::SinkChannel> here{{"shm", true, ""}, {"tcp", true, ""}};
  const channel::SelectionEnd gpu{model::MemberId("engine-0/0"), model::HostId("h"), "GPU-1"};
  const channel::SelectionEnd cpu{model::MemberId("shard-0"), model::HostId("h"), ""};
  for (const auto& chosen :
       {channel::select_channel(cpu, gpu, offered, here), channel::select_channel(gpu, cpu, offered, here)}) {
    ASSERT_FALSE(chosen);
    EXPECT_EQ(chosen.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(chosen.error().message, HasSubstr("GPU-1"));
  }
}

TEST(Field, F06_AClientRefusesAnArenaThatItCannotMap) {
  testing::ShmArena arena;
  auto info = arena.info(0, 1);
  info.halves[0][0].kind = info.halves[1][0].kind = model::RegionKind::kCudaVmm;
  client::LiveRange range;
  const auto opened = range.open(info);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(range.mapped(), std::nullopt);
}

// ---------------------------------------------------------------- F07

// A port was chosen by bind-then-close and taken before it was used; IPv6 hosts failed to parse. The socket is held
// from the start, so a second one cannot have the port.
TEST(Field, F07_ThePortThatIsOfferedIsHeldFromTheStart) {
  const auto device = device::make_host_device();
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({300});
  for (const std::string host : {"127.0.0.1", "[::1]", "localhost"}) {
    const auto first = channel::make_tcp_channel({.listen = host + ":0"});
    ASSERT_TRUE(first->viability().usable) << host << ": " << first->viability().reason;
    // Many others that take free ports at the same time never get this one.
    std::vector<std::unique_ptr<Channel>> others;
    for (int i = 0; i < 32; ++i) {
      others.push_back(channel::make_tcp_channel({.listen = host + ":0"}));
      ASSERT_TRUE(others.back()->viability().usable) << others.back()->viability().reason;
    }
    const auto delivered = deliver(*first, *device, part);
    EXPECT_TRUE(delivered.status) << host << ": " << delivered.status.error().message;
    EXPECT_TRUE(delivered.whole) << host;
  }
}

// ---------------------------------------------------------------- F08 and F09

// Messages were queued only, and the send buffer was reused before the copy had read it. With the smallest buffers
// every slot is reused many times, and the source's memory is overwritten as soon as its session has ended.
TEST(Field, F08_ASlotIsReusedOnlyAfterItsBytesHaveGone) {
  const auto device = device::make_host_device();
  PartBuilder part("source", "sink");
  for (int i = 0; i < 60; ++i) {
    part.bucket();
    part.dense({3'000});
    part.fragment({40, 50}, model::DType::kBF16, model::DType::kBF16, model::Cast::kNone, {{0, 1}, 0}, {{1, 0}, 1});
  }
  const std::unique_ptr<Channel> channels[] = {channel::make_tcp_channel({.window_bytes = 1, .staging_bytes = 1}),
                                               channel::make_tcp_channel(), channel::make_shm_channel(device)};
  for (const auto& channel : channels) {
    const auto delivered = deliver(*channel, *device, part);
    EXPECT_TRUE(delivered.status) << channel->name() << ": " << delivered.status.error().message;
    EXPECT_TRUE(delivered.whole) << channel->name();
  }
}

// A source that takes its memory back in the middle of a pull: the pull either has every byte as it was, or an error.
TEST(Field, F08_MemoryTakenBackDuringAPullIsNeverReportedAsDelivered) {
  const auto device = device::make_host_device();
  PartBuilder part("source", "sink");
  for (int i = 0; i < 16; ++i) {
    part.bucket();
    part.dense({512 << 10});
  }
  const std::unique_ptr<Channel> channels[] = {channel::make_tcp_channel(), channel::make_shm_channel(device)};
  for (const auto& channel : channels) {
    for (int round = 0; round < 5; ++round) {
      std::vector<std::unique_ptr<Region>> regions;
      std::vector<const std::byte*> from;
      for (const auto bytes : part.from_bytes) {
        regions.push_back(std::make_unique<Region>(*device, bytes));
        from.push_back(regions.back()->memory()->data());
      }
      SinkMemory expected(part.to_bytes);
      for (const auto& bucket : part.buckets) {
        for (const auto& fragment : bucket.fragments) {
          std::memcpy(expected.regions[fragment.to.region].data() + fragment.to.offset,
                      from[fragment.from.region] + fragment.from.offset, fragment.box.volume() * 2);
        }
      }
      auto source = channel->serve({model::MemberId("source"), memory_of(regions), kToken});
      ASSERT_TRUE(source);
      (*source)->set_part(source_part(part));
      auto session =
          channel->join({model::MemberId("source"), model::MemberId("sink"), (*source)->offer(), kToken, kPlenty});
      ASSERT_TRUE(session) << session.error().message;
      SinkMemory memory(part.to_bytes);
      device::Control control;
      base::Status status;
      std::atomic<bool> ended{false};
      std::thread pull([&] {
        status = (*session)->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control);
        ended = true;
      });
      while (control.bytes_done == 0 && !ended)
        std::this_thread::yield();
      source->reset();
      for (const auto& region : regions)
        region->overwrite();
      pull.join();
      if (status) {
        EXPECT_TRUE(memory == expected) << channel->name();
      } else {
        EXPECT_EQ(status.error().code, ErrorCode::kUnavailable) << status.error().message;
      }
    }
  }
}

// Transposed or sliced tensors arrived shuffled: over every channel, strides on both sides are followed.
TEST(Field, F09_EveryChannelFollowsStrides) {
  const auto device = device::make_host_device();
  base::Prng prng(9);
  PartBuilder part("source", "sink");
  for (int i = 0; i < 80; ++i) {
    if (i % 8 == 0) part.bucket();
    part.random(prng, 9);
  }
  const std::unique_ptr<Channel> channels[] = {channel::make_tcp_channel(), channel::make_shm_channel(device)};
  for (const auto& channel : channels)
    EXPECT_TRUE(deliver(*channel, *device, part).whole) << channel->name();
}

// Zero-size and 0-dimensional tensors broke packing.
TEST(Field, F22_EveryChannelTakesEmptyAndScalarTensors) {
  const auto device = device::make_host_device();
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({});
  part.dense({0, 4});
  part.dense({3});
  part.bucket();
  part.dense({0});
  const std::unique_ptr<Channel> channels[] = {channel::make_tcp_channel(), channel::make_shm_channel(device)};
  for (const auto& channel : channels) {
    const auto delivered = deliver(*channel, *device, part);
    EXPECT_TRUE(delivered.status) << delivered.status.error().message;
    EXPECT_TRUE(delivered.whole) << channel->name();
  }
}

}  // namespace
}  // namespace weightbus::field
