// Field cases of what an update leaves behind, and of the channel that it takes: the work of a source agent and a sink
// agent as their loops do it, in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/field/region.h"
#include "tests/unit/client/shm_arena.h"
#include "weightbus/channel/shm/factory.h"
#include "weightbus/channel/tcp/factory.h"
#include "weightbus/client/live_range.h"
#include "weightbus/device/host/factory.h"
#include "weightbus/runtime/sink_work.h"
#include "weightbus/runtime/source_work.h"

namespace weightbus::field {
namespace {

using base::ErrorCode;
using channel::Channel;
using ::testing::HasSubstr;

std::size_t descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}
// Mappings and bytes of ours in this process, and our objects in /dev/shm.
struct Footprint {
  std::size_t mappings = 0;
  std::uint64_t bytes = 0;
  std::size_t objects = 0;
  friend bool operator==(const Footprint&, const Footprint&) = default;
};
Footprint footprint() {
  Footprint result;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("weightbus.") == std::string::npos) continue;
    std::size_t dash = 0;
    const auto first = std::stoull(line, &dash, 16);
    result.bytes += std::stoull(line.substr(dash + 1), nullptr, 16) - first;
    ++result.mappings;
  }
  const auto pid = "." + std::to_string(::getpid()) + ".";
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    result.objects += entry.path().filename().string().find(pid) != std::string::npos ? 1 : 0;
  return result;
}

// One source agent and one sink agent: what their loops do for an update, from opening to releasing.
class Pair {
 public:
  explicit Pair(std::vector<std::shared_ptr<Channel>> channels)
      : source_([this](model::UpdateId, const protocol::SourceSpec&, device::Control&) { return open(); }, device_,
                channels, 1),
        sink_(member(), channels, 1) {
    const model::Dims shape{64, 32};
    source_manifest_.tensors = sink_manifest_.tensors = {{"w", model::DType::kBF16, shape}};
    source_manifest_.shards = {{0, model::Box::whole(shape), {0, 0, model::dense_strides(shape)}}};
    model::Slot slot;
    slot.tensor = 0;
    slot.box = model::Box::whole(shape);
    slot.at = {0, 0, model::dense_strides(shape)};
    sink_manifest_.slots = {slot};
    source_manifest_.region_bytes = sink_manifest_.region_bytes = {64 * 32 * 2};
    weights_ = std::make_unique<Region>(*device_, 64 * 32 * 2);
    arena_ = runtime::Arena::create(*device_, prefix_, sink_manifest_).value();
    const plan::PlanSource source{model::MemberId("source"), model::HostId("h"), "", &source_manifest_};
    const plan::PlanSink sink{member().id, model::HostId("h"), "", &sink_manifest_};
    plan_ = plan::plan({&source, 1}, {&sink, 1}, {256}).value();
    source_part_ = std::make_shared<const plan::SourcePart>(plan_->source_part(0));
    sink_part_ = std::make_shared<const plan::SinkPart>(plan_->sink_part(0));
  }
  ~Pair() { runtime::Arena::remove(*device_, prefix_, sink_manifest_); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // The channel that was used, once all is staged and compared; or what went wrong.
  base::Result<std::string> update(std::uint64_t number) {
    const model::UpdateId id{number};
    std::memset(weights_->memory()->data(), static_cast<int>(number & 0xff), 64);  // a small change
    const auto opened = source_.perform(protocol::DoOpenSource{id, protocol::TrainerSource{}});
    if (!opened.result) return base::fail(opened.result.error());
    const protocol::SourcePeer peer{model::MemberId("source"), model::HostId("h"), "", opened.result->offers};
    const auto joined = sink_.perform(protocol::DoJoin{id, sink_part_, {peer}, 10'000});
    if (!joined.channels) return base::fail(joined.channels.error());
    return staged(id, joined.channels->at(0));
  }
  std::map<std::string, std::uint64_t> bytes_by_channel() const { return sink_.bytes_by_channel(); }

 private:
  static model::Member member() {
    model::Member self{model::MemberId("engine-0/0"), model::Role::kEngineAgent, model::ModelName("m"),
                       model::HostId("h")};
    self.engine = "engine-0";
    return self;
  }
  base::Result<runtime::SourceMemory> open() {
    return runtime::SourceMemory{source_manifest_, {weights_->memory()}, nullptr};
  }
  base::Result<std::string> staged(model::UpdateId id, const std::string& channel) {
    const auto served = source_.perform(protocol::DoServe{id, source_part_});
    if (!served.result) return base::fail(served.result.error());
    const auto sent = source_.perform(protocol::DoDigestSource{id, source_part_});
    if (!sent.result) return base::fail(sent.result.error());
    const auto pulled =
        sink_.perform(protocol::DoPull{id, sink_part_, static_cast<std::uint32_t>(id.value() % 2), 10'000}, *arena_);
    if (!pulled.result) return base::fail(pulled.result.error());
    WB_ASSIGN(const auto mismatches, plan_->compare({sent.result->units}, 0, pulled.result->slots));
    if (!mismatches.empty()) return base::fail(ErrorCode::kCorrupted, "other bytes than were sent");
    sink_.perform(protocol::DoLeave{id});
    source_.perform(protocol::DoReleaseSource{id});
    return channel;
  }

  const std::shared_ptr<device::Device> device_ = device::make_host_device();
  const std::string prefix_ = unique_name() + ".";
  model::SourceManifest source_manifest_;
  model::SinkManifest sink_manifest_;
  std::unique_ptr<Region> weights_;
  std::shared_ptr<runtime::Arena> arena_;
  std::shared_ptr<const plan::ReshardPlan> plan_;
  std::shared_ptr<const plan::SourcePart> source_part_;
  std::shared_ptr<const plan::SinkPart> sink_part_;
  runtime::SourceWork source_;
  runtime::SinkWork sink_;
};

// Each update leaked a mapping, up to 2 GiB a time. Over 1,000 updates nothing grows.
TEST(Field, F12_MemoryAndDescriptorsAreFlatOverAThousandUpdates) {
  Pair pair({channel::make_shm_channel(device::make_host_device())});
  ASSERT_TRUE(pair.update(1));
  const auto at_first = footprint();
  const auto open_at_first = descriptors();
  EXPECT_GT(at_first.mappings, 0U);
  for (std::uint64_t i = 2; i <= 1'000; ++i) {
    const auto result = pair.update(i);
    ASSERT_TRUE(result) << i << ": " << result.error().message;
  }
  EXPECT_EQ(footprint().mappings, at_first.mappings);
  EXPECT_EQ(footprint().bytes, at_first.bytes);
  EXPECT_EQ(footprint().objects, at_first.objects);
  EXPECT_EQ(descriptors(), open_at_first);
}

// The engine's side of the same: exchanging 1,000 times maps nothing that stays.
TEST(Field, F12_AnEnginesMappingsAreFlatOverAThousandExchanges) {
  testing::ShmArena arena;
  client::LiveRange range;
  ASSERT_TRUE(range.open(arena.info(0, 1)));
  ASSERT_TRUE(range.map(0));
  const auto at_first = footprint();
  const auto open_at_first = descriptors();
  for (std::uint32_t i = 1; i <= 1'000; ++i)
    ASSERT_TRUE(range.map(i % 2));
  EXPECT_EQ(footprint(), at_first);
  EXPECT_EQ(descriptors(), open_at_first);
}

// What `shm` is in a container that forbids it: found when the channel is made, not at the first update.
class Forbidden final : public Channel {
 public:
  std::string_view name() const override { return "shm"; }
  channel::Viability viability() const override {
    return {false, "the container has no /dev/shm: start it with --ipc=host"};
  }
  base::Result<std::unique_ptr<channel::SourceSession>> serve(const channel::ServeRequest&) override {
    return base::fail(ErrorCode::kInternal, "a channel that is not viable was asked to serve");
  }
  base::Result<std::unique_ptr<channel::PullSession>> join(const channel::JoinRequest&) override {
    return base::fail(ErrorCode::kInternal, "a channel that is not viable was joined");
  }
};

// The container forbade a way of sharing memory, and the first update failed. Capability is probed at the start, the
// fallback is chosen, and it is visible which channel carried the bytes.
TEST(Field, F13_AChannelThatCannotBeUsedGivesWayAndItShows) {
  Pair usual({channel::make_shm_channel(device::make_host_device()), channel::make_tcp_channel()});
  EXPECT_EQ(usual.update(1), "shm");
  EXPECT_EQ(usual.bytes_by_channel(), (std::map<std::string, std::uint64_t>{{"shm", 64 * 32 * 2}}));
  Pair confined({std::make_shared<Forbidden>(), channel::make_tcp_channel()});
  EXPECT_EQ(confined.update(1), "tcp");
  EXPECT_EQ(confined.bytes_by_channel(), (std::map<std::string, std::uint64_t>{{"tcp", 64 * 32 * 2}}));
}

TEST(Field, F13_WithoutAFallbackTheReasonIsSaid) {
  const auto taken = channel::make_tcp_channel({.listen = "nowhere.invalid:0"});
  EXPECT_FALSE(taken->viability().usable);
  EXPECT_THAT(taken->viability().reason, HasSubstr("nowhere.invalid"));
  Pair pair({std::make_shared<Forbidden>()});
  const auto result = pair.update(1);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(result.error().message, HasSubstr("--ipc=host"));
}

}  // namespace
}  // namespace weightbus::field
