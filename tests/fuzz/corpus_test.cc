// Replays every corpus file through its target: what a fuzzer once found stays found.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "targets.h"
#include "weightbus/checkpoint/checkpoint_folder.h"
#include "weightbus/checkpoint/safetensors.h"
#include "weightbus/checkpoint/snapshot_index.h"
#include "weightbus/model/layout.h"

namespace weightbus::fuzz {
namespace {

// Runs a target over its folder; `accepts` must be true for every file called valid*, so that the seeds stay
// meaningful.
void replay(const std::string& name, void (*target)(std::string_view), bool (*accepts)(std::string_view)) {
  std::size_t files = 0, valid = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(WEIGHTBUS_FUZZ_CORPUS) + "/" + name)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    SCOPED_TRACE(entry.path().string());
    target(input);
    ++files;
    if (!entry.path().filename().string().starts_with("valid")) continue;
    ++valid;
    EXPECT_TRUE(accepts(input));
  }
  EXPECT_GT(files, 1u);
  EXPECT_GE(valid, 1u);
}

TEST(FuzzCorpus, SafetensorsHeader) {
  replay("safetensors_header", safetensors_header, [](std::string_view input) {
    return checkpoint::parse_header(input.substr(1), static_cast<unsigned char>(input.front())).has_value();
  });
}
TEST(FuzzCorpus, HfIndex) {
  replay("hf_index", hf_index, [](std::string_view input) { return checkpoint::parse_index(input).has_value(); });
}
TEST(FuzzCorpus, ModelConfig) {
  replay("model_config", model_config,
         [](std::string_view input) { return checkpoint::parse_config(input).has_value(); });
}
TEST(FuzzCorpus, Layout) {
  replay("layout", layout, [](std::string_view input) { return model::parse_layout(input).has_value(); });
}
TEST(FuzzCorpus, SnapshotIndex) {
  replay("snapshot_index", snapshot_index,
         [](std::string_view input) { return checkpoint::parse_snapshot_index(input).has_value(); });
}

}  // namespace
}  // namespace weightbus::fuzz
