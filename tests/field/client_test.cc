// Field cases as the engine's own process sees them, through the client library.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/unit/client/shm_arena.h"
#include "weightbus/client/reader.h"
#include "weightbus/runtime/attach_server.h"

namespace weightbus::field {
namespace {

using namespace std::chrono_literals;
using client::Reader;
using testing::ShmArena;
using testing::tag_of;

constexpr auto kLong = 20s;

class FieldClient : public ::testing::Test {
 protected:
  void SetUp() override {
    arena_.fill(0, 1);
    auto server = runtime::AttachServer::listen({.path = path_});
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    ASSERT_TRUE(server_->set_arena(arena_.info(0, 1)));
    auto reader = Reader::connect({.socket_path = path_,
                                   .connect_timeout = kLong,
                                   .hooks = {.on_pause = [this] { ++paused_; },
                                             .on_resume =
                                                 [this](const client::Arena& arena) {
                                                   ++resumed_;
                                                   last_version_ = arena.tag.version.value();
                                                 },
                                             .log = {}}});
    ASSERT_TRUE(reader) << reader.error().message;
    reader_ = std::move(*reader);
    expect_whole(1);
  }
  // A step sees exactly this version, in every byte of every slot.
  void expect_whole(std::uint64_t version) {
    auto step = reader_->enter_step(kLong);
    ASSERT_TRUE(step) << step.error().message;
    EXPECT_EQ(step->version(), model::WeightVersion(version));
    const auto& slots = *step->arena().slots;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      for (std::size_t at = 0; at < slots[i].span_bytes; ++at)
        ASSERT_EQ(slots[i].data[at], arena_.expected(version, i, at)) << "slot " << i << " byte " << at;
    }
  }
  void commit(std::uint32_t half, std::uint64_t version) {
    ASSERT_TRUE(server_->pause(kLong));
    ASSERT_TRUE(server_->exchange(half, tag_of(version), kLong));
    server_->resume();
    expect_whole(version);
  }

  testing::TempDir dir_;
  const std::string path_ = dir_.file("agent.sock");
  ShmArena arena_;
  std::atomic<int> paused_{0};
  std::atomic<int> resumed_{0};
  std::atomic<std::uint64_t> last_version_{0};
  std::unique_ptr<runtime::AttachServer> server_;
  std::unique_ptr<Reader> reader_;
};

// Several chunks of one update each ran the engine's post-load step, and a MoE layer was corrupted. However many writes
// an update makes into the shadow, the engine's finish hook (on_resume) runs once, at the commit, and sees the whole
// version.
TEST_F(FieldClient, F20_TheFinishHookRunsOncePerCommit) {
  EXPECT_EQ(resumed_, 1) << "the first time";
  for (std::uint64_t version = 2; version <= 20; ++version) {
    const auto half = static_cast<std::uint32_t>((version + 1) % 2);
    for (int chunk = 0; chunk < 3; ++chunk) {
      arena_.fill(half, version);
      expect_whole(version - 1);
    }
    EXPECT_EQ(resumed_, static_cast<int>(version - 1)) << "nothing is finished before the commit";
    commit(half, version);
    EXPECT_EQ(resumed_, static_cast<int>(version));
    EXPECT_EQ(paused_, static_cast<int>(version - 1));
    EXPECT_EQ(last_version_, version);
  }
}

// The label of the version changed with the first bucket, while most weights were still old. A step's version and its
// bytes belong together, also while the next version is being written.
TEST_F(FieldClient, F21_TheVersionOfAStepIsTheOneItsBytesAreOf) {
  auto step = reader_->enter_step(kLong);
  ASSERT_TRUE(step);
  arena_.fill(1, 2);
  EXPECT_EQ(step->version(), model::WeightVersion(1));
  const auto& slots = *step->arena().slots;
  for (std::size_t i = 0; i < slots.size(); ++i)
    EXPECT_EQ(slots[i].data[100], arena_.expected(1, i, 100));
  EXPECT_EQ(reader_->state().tag->version, model::WeightVersion(1));
  { const auto ended = std::move(*step); }
  commit(1, 2);
  EXPECT_EQ(reader_->state().tag->version, model::WeightVersion(2));
}

// An update failed halfway and the next request crashed the engine: what an abort leaves in the shadow is never seen.
TEST_F(FieldClient, F01_AnAbortedStageIsNeverSeen) {
  arena_.fill(1, 666);
  expect_whole(1);
  arena_.fill(1, 3);
  commit(1, 3);
}

}  // namespace
}  // namespace weightbus::field
