#include "weightbus/runtime/agent_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace weightbus::runtime {
namespace {

protocol::Tag tag(std::uint64_t version, std::uint64_t update) {
  return {model::WeightVersion{version}, base::Hash128{version, update}, model::UpdateId{update}};
}

protocol::AgentState full_state() {
  protocol::AgentState state;
  state.known_epoch = {base::Hash128{1, 2}, 3};
  state.highest_version = 4;
  state.has_arena = true;
  state.live = 1;
  state.halves[0] = {tag(5, 6), true};
  state.halves[1] = {std::nullopt, false};
  state.attempts = 7;
  state.pending_commit = protocol::Commit{model::WeightVersion{8}, {{model::MemberId{"engine-0-tp0"}, tag(8, 9)}}, 10};
  state.pending_update = 11;
  state.torn = true;
  state.paused_attempt = 12;
  state.resumed_attempt = 13;
  state.over_update = 14;
  return state;
}

class AgentFilesTest : public testing::Test {
 protected:
  AgentFilesTest() { std::filesystem::remove_all(directory_); }
  ~AgentFilesTest() override { std::filesystem::remove_all(directory_); }
  const std::string directory_ =
      testing::TempDir() + "/agent_files_" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(AgentFilesTest, EveryFieldSurvivesARestart) {
  auto files = AgentFiles::open(directory_);
  ASSERT_TRUE(files);
  ASSERT_TRUE(files->save_state(full_state()));
  const auto loaded = AgentFiles::open(directory_)->load_state();
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(state_to_json(*loaded), state_to_json(full_state()));
  EXPECT_NE(state_to_json(*loaded), state_to_json(protocol::AgentState{}));
  EXPECT_EQ(loaded->over_update, 14U);
  EXPECT_TRUE(loaded->torn);
  EXPECT_EQ(loaded->pending_commit->ranks[0].tag, tag(8, 9));
}

TEST_F(AgentFilesTest, AFreshFolderGivesAFreshState) {
  const auto loaded = AgentFiles::open(directory_)->load_state();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(state_to_json(*loaded), state_to_json(protocol::AgentState{}));
}

TEST_F(AgentFilesTest, DamageIsNamedAndNotTakenForAFreshState) {
  ASSERT_TRUE(AgentFiles::open(directory_));
  const std::string whole = state_to_json(full_state());
  for (const std::string& text :
       {std::string("{"), std::string("[]"), whole.substr(0, whole.size() / 2), std::string("{\"live\": 2}")}) {
    std::ofstream(directory_ + "/state.json") << text;
    const auto loaded = AgentFiles::open(directory_)->load_state();
    ASSERT_FALSE(loaded) << text;
    EXPECT_EQ(loaded.error().code, base::ErrorCode::kCorrupted);
    EXPECT_NE(loaded.error().message.find("state.json"), std::string::npos);
  }
}

TEST_F(AgentFilesTest, ManifestRoundTrips) {
  model::SinkManifest manifest;
  manifest.tensors = {{"w", model::DType::kBF16, {4, 2}}};
  manifest.slots = {{0, {{0, 0}, {4, 2}}, {0, 0, {2, 1}}}};
  manifest.region_bytes = {256};
  auto files = AgentFiles::open(directory_);
  ASSERT_TRUE(files->save_manifest(manifest));
  EXPECT_EQ(*files->load_manifest(), manifest);
}

}  // namespace
}  // namespace weightbus::runtime
