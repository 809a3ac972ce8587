// What cannot be done is refused with its reason, and nothing that is served changes.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "tests/integration/fleet/readers.h"

namespace weightbus::testing {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;
using protocol::ModelStatus;
using protocol::Phase;

bool says(const protocol::UpdateStatus& update, const std::string& text) {
  return update.error && update.error->message.find(text) != std::string::npos;
}

// A fleet that serves version 1, and has to serve it still in the end.
class Refusals : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(fleet_.push_to_end(fleet_.checkpoint(0)).phase, Phase::kCommitted);
    fleet_.wait_serving(1);
    before_ = fleet_.live_digests();
    readers_ = std::make_unique<Readers>(fleet_, std::vector<unsigned>{0, 1});
    readers_->saw(1);
  }
  void TearDown() override {
    EXPECT_EQ(fleet_.committed(), 1U);
    EXPECT_EQ(fleet_.live_digests(), before_);
    const auto update = fleet_.push_to_end(fleet_.checkpoint(1));
    EXPECT_EQ(update.phase, Phase::kCommitted) << describe(update);
    readers_->saw(update.target.value());
    readers_->finish();
  }
  // A copy of a checkpoint, to be spoilt.
  std::string copy() {
    const std::string to = fleet_.path("copy");
    fs::copy(fleet_.checkpoint(1), to);
    return to;
  }
  static std::string first_tensor_file(const std::string& directory) {
    std::string first;
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (entry.path().extension() == ".safetensors") first = std::max(first, entry.path().string());
    }
    return first;
  }

  Fleet fleet_;
  std::map<std::string, std::pair<std::uint64_t, std::string>> before_;
  std::unique_ptr<Readers> readers_;
};

TEST_F(Refusals, ACheckpointThatIsNotThere) {
  const auto update = fleet_.push_to_end("/nonexistent/checkpoint");
  EXPECT_EQ(update.phase, Phase::kAborted);
  EXPECT_TRUE(says(update, "/nonexistent/checkpoint")) << describe(update);
  EXPECT_TRUE(says(update, "trainer-")) << describe(update);
}

TEST_F(Refusals, ATruncatedFile) {
  const std::string directory = copy();
  const std::string file = first_tensor_file(directory);
  ASSERT_FALSE(file.empty());
  fs::resize_file(file, fs::file_size(file) - 7);
  const auto update = fleet_.push_to_end(directory);
  EXPECT_EQ(update.phase, Phase::kAborted);
  EXPECT_TRUE(says(update, fs::path(file).filename())) << describe(update);
}

TEST_F(Refusals, AFileThatIsMissing) {
  const std::string directory = copy();
  const std::string file = first_tensor_file(directory);
  ASSERT_TRUE(fs::remove(file));
  const auto update = fleet_.push_to_end(directory);
  EXPECT_EQ(update.phase, Phase::kAborted);
  EXPECT_TRUE(says(update, fs::path(file).filename())) << describe(update);
}

TEST_F(Refusals, AModelOfOtherShapes) {
  const auto update = fleet_.push_to_end(fleet_.checkpoint(0, "small"));
  EXPECT_EQ(update.phase, Phase::kAborted);
  EXPECT_TRUE(says(update, "model.")) << describe(update);
}

TEST_F(Refusals, RollbacksToWhatIsNot) {
  const auto unknown = fleet_.rollback(77);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_NE(unknown.error().message.find("77"), std::string::npos) << unknown.error().message;
  const auto none_before = fleet_.rollback();
  ASSERT_FALSE(none_before);
  EXPECT_EQ(none_before.error().code, ErrorCode::kNotFound);
  const auto same = fleet_.rollback(1);
  ASSERT_FALSE(same);
  EXPECT_EQ(same.error().code, ErrorCode::kConflict);
}

TEST_F(Refusals, ADryRunChangesNothing) {
  protocol::PublishRequest request{protocol::CheckpointSource{}};
  request.dry_run = true;
  const auto update = fleet_.push_to_end(fleet_.checkpoint(2), request);
  EXPECT_EQ(update.phase, Phase::kPlanned) << describe(update);
  ASSERT_TRUE(update.plan);
  EXPECT_GT(update.plan->bytes, 0U);
}

TEST_F(Refusals, MoreEnginesRequiredThanThereAre) {
  protocol::PublishRequest request{protocol::CheckpointSource{}};
  request.require = 3;
  const auto answer = fleet_.push(fleet_.checkpoint(1), request);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
}

TEST_F(Refusals, AnUpdateThatIsAborted) {
  fleet_.trainer(0).signal_worker(SIGSTOP);
  const auto accepted = fleet_.push(fleet_.checkpoint(1));
  ASSERT_TRUE(accepted) << accepted.error().message;
  EXPECT_TRUE(fleet_.ask<protocol::Done>(protocol::AbortRequest{}));
  fleet_.trainer(0).signal_worker(SIGCONT);
  EXPECT_EQ(fleet_.end_of(accepted->update).phase, Phase::kAborted);
  fleet_.wait_joined();
}

TEST(Refusal, AModelThatTheRanksDoNotDivide) {
  Fleet fleet({.engines = {3}});
  const auto update = fleet.push_to_end(fleet.checkpoint(0));
  EXPECT_EQ(update.phase, Phase::kAborted);
  EXPECT_TRUE(says(update, "model.")) << describe(update);
  for (const auto& name : fleet.shared_memory())
    EXPECT_EQ(name.find("engine"), std::string::npos) << name;
}

TEST(Refusal, APushWhileAnotherRunsUnlessItQueues) {
  Fleet fleet;
  fleet.trainer(1).signal_worker(SIGSTOP);
  const auto first = fleet.push(fleet.checkpoint(0));
  ASSERT_TRUE(first) << first.error().message;
  const auto second = fleet.push(fleet.checkpoint(1));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kConflict);
  EXPECT_NE(second.error().message.find("update " + std::to_string(first->update.value())), std::string::npos)
      << second.error().message;
  protocol::PublishRequest request{protocol::CheckpointSource{}};
  request.queue = true;
  const auto third = fleet.push(fleet.checkpoint(1), request);
  ASSERT_TRUE(third) << third.error().message;
  EXPECT_TRUE(third->queued);
  fleet.trainer(1).signal_worker(SIGCONT);
  EXPECT_EQ(fleet.end_of(first->update).phase, Phase::kCommitted);
  EXPECT_EQ(fleet.end_of(third->update).phase, Phase::kCommitted);
  fleet.wait_serving(third->target.value());
}

TEST(Refusal, ARollbackToAVersionThatNobodyKeeps) {
  Fleet fleet({.engines = {1}, .coordinator = {{"retain_versions", "1"}}});
  for (unsigned variant = 0; variant < 3; ++variant) {
    ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(variant)).phase, Phase::kCommitted);
    fleet.wait_snapshots(variant + 1);
  }
  const auto retired = fleet.rollback(1);
  ASSERT_FALSE(retired);
  EXPECT_EQ(retired.error().code, ErrorCode::kNotFound);
  EXPECT_NE(retired.error().message.find("unavailable"), std::string::npos) << retired.error().message;
  const auto shadow = fleet.rollback_to_end();
  EXPECT_EQ(shadow.phase, Phase::kCommitted) << describe(shadow);
  EXPECT_TRUE(shadow.instant);
}

TEST(Refusal, APushWithoutEngines) {
  Fleet fleet({.engines = {}});
  const auto answer = fleet.push(fleet.checkpoint(0));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(answer.error().message.find("no engine"), std::string::npos) << answer.error().message;
}

TEST(Refusal, APushToAnEngineThatMissesARank) {
  Fleet fleet({.engines = {2}, .coordinator = {{"member_timeout", "2s"}}});
  fleet.engine(0, 1).stop();
  fleet.wait_for("the rank to be missed", [](const ModelStatus& status) {
    return std::any_of(status.members.begin(), status.members.end(), [](const auto& member) {
      return member.member.id.value() == Fleet::member(0, 1) && !member.connected;
    });
  });
  const auto answer = fleet.push(fleet.checkpoint(0));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(answer.error().message.find("rank 1 of 2 is missing"), std::string::npos) << answer.error().message;
}

}  // namespace
}  // namespace weightbus::testing
