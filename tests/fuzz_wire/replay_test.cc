// Gives the saved corpus, and fresh messages of every kind, to the fuzz target. With WB_WRITE_CORPUS=DIR it writes the
// latter as seeds: run it once after the schema has changed, and commit what it wrote to corpus/.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz_wire/target.h"
#include "tests/unit/wire/samples.h"
#include "weightbus/protocol/messages.h"
#include "weightbus/wire/chunks.h"

namespace weightbus::wire::testing {
namespace {

std::vector<std::pair<std::string, std::string>> seeds() {
  std::vector<std::pair<std::string, std::string>> made;
  for (std::size_t kind = 0; kind < body_kinds(); ++kind) {
    const auto envelope = sample_envelope(kind, 1);
    made.emplace_back(std::string("message-") + body_name(envelope.body), message_input(encode(envelope)));
  }
  for (std::size_t kind = 0; kind < record_kinds(); ++kind) {
    made.emplace_back("record-" + std::to_string(kind), record_input(encode_record(sample_record(kind, 1))));
  }
  // The first chunk of a larger message would be 4 MiB; a short frame and a bare header do for a seed.
  const auto chunks = to_frames(std::string(kMaxFrameBytes + 8, 'x'), 7);
  made.emplace_back("frames-small", frames_input({encode(sample_envelope(0, 1)), encode(sample_envelope(1, 1))}));
  made.emplace_back("frames-chunk", frames_input({chunks[1], chunks[1], chunks[0].substr(0, 200)}));
  return made;
}

TEST(Fuzz, FreshSeedsHold) {
  const char* folder = std::getenv("WB_WRITE_CORPUS");
  for (const auto& [name, input] : seeds()) {
    try_input(input);
    if (folder != nullptr) {
      std::ofstream file(std::filesystem::path(folder) / name, std::ios::binary);
      file.write(input.data(), static_cast<std::streamsize>(input.size()));
      ASSERT_TRUE(file.good()) << name;
    }
  }
}

TEST(Fuzz, ChunkedMessagesHold) {
  try_input(frames_input(to_frames(encode(sample_envelope(0, 1)) + std::string(9U << 20, '\0'), 7)));
}

TEST(Fuzz, SavedCorpusHolds) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WB_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input((std::istreambuf_iterator<char>(file)), {});
    SCOPED_TRACE(entry.path().filename().string());
    try_input(input);
    ++files;
  }
  EXPECT_GE(files, body_kinds() + record_kinds());
}

}  // namespace
}  // namespace weightbus::wire::testing
