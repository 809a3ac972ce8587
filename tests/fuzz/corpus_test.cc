// Replays every corpus file through its target: what a fuzzer once found stays found.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "targets.h"
#include "weightbus/base/prng.h"
#include "weightbus/checkpoint/checkpoint_folder.h"
#include "weightbus/checkpoint/safetensors.h"
#include "weightbus/checkpoint/snapshot_index.h"
#include "weightbus/model/layout.h"

namespace weightbus::fuzz {
namespace {

// Small seeded changes of one input, so that every run of the tests looks a little further than the corpus.
void replay_mutated(const std::string& input, void (*target)(std::string_view)) {
  constexpr std::string_view kPieces = "{}[]\",:0129-.*\\\xff";
  base::Prng random(input.size());
  for (int round = 0; round < 100; ++round) {
    std::string mutated = input;
    for (std::uint64_t change = 0; change <= random.below(4) && !mutated.empty(); ++change) {
      const auto at = random.below(mutated.size());
      const auto piece = kPieces[random.below(kPieces.size())];
      switch (random.below(4)) {
        case 0: mutated[at] = piece; break;
        case 1: mutated.insert(at, 1, piece); break;
        case 2: mutated.erase(at, 1 + random.below(8)); break;
        default: mutated.insert(at, mutated.substr(random.below(mutated.size()), random.below(64))); break;
      }
    }
    target(mutated);
  }
}

// Runs a target over its folder; `accepts` must be true for every file called valid*, so that the seeds stay
// meaningful.
void replay(const std::string& name, void (*target)(std::string_view), bool (*accepts)(std::string_view)) {
  std::size_t files = 0, valid = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(WEIGHTBUS_FUZZ_CORPUS) + "/" + name)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    SCOPED_TRACE(entry.path().string());
    target(input);
    replay_mutated(input, target);
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
