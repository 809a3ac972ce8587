// Reader processes beside a fleet: each checks that its steps see whole versions only.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/attach/reader_process.h"
#include "tests/support/fleet.h"

namespace weightbus::testing {

// One reader for each rank of the engines named.
class Readers {
 public:
  Readers(const Fleet& fleet, const std::vector<unsigned>& engines, unsigned ranks = 2) {
    for (const unsigned engine : engines) {
      for (unsigned rank = 0; rank < ranks; ++rank) {
        readers_.emplace(Fleet::member(engine, rank), std::make_unique<ReaderProcess>(std::vector<std::string>{
                                                          "--socket", fleet.socket(engine, rank), "--step-us", "500",
                                                          "--connect-timeout-ms", "120000"}));
      }
    }
  }
  // Waits until each has computed with this version.
  void saw(std::uint64_t version) {
    for (auto& [member, reader] : readers_)
      EXPECT_TRUE(reader->saw_version(version)) << member << " never saw version " << version;
  }
  // Ends them. Every step was whole, no address moved, and equal ranks of all engines read the same bytes.
  // Returns the versions that each has seen, by member.
  std::map<std::string, std::vector<std::uint64_t>> finish() {
    std::map<std::string, std::vector<std::uint64_t>> seen;
    std::map<std::string, std::string> digests;  // of "tp0/3"
    for (auto& [member, reader] : readers_) {
      const auto summary = reader->finish();
      EXPECT_EQ(reader->wait(), 0) << member << " " << summary;
      if (!summary.contains("violations")) {
        ADD_FAILURE() << member << " gave no summary";
        continue;
      }
      EXPECT_EQ(summary["violations"], 0) << member;
      EXPECT_EQ(summary["address_changes"], 0) << member;
      for (const auto& [version, digest] : summary["versions"].items()) {
        seen[member].push_back(std::stoull(version));
        const auto key = member.substr(member.rfind("tp")) + "/" + version;
        const auto [known, is_new] = digests.try_emplace(key, digest.get<std::string>());
        EXPECT_EQ(known->second, digest.get<std::string>()) << member << " read another version " << version;
      }
    }
    readers_.clear();
    return seen;
  }
  ReaderProcess& of(const std::string& member) { return *readers_.at(member); }

 private:
  std::map<std::string, std::unique_ptr<ReaderProcess>> readers_;
};

}  // namespace weightbus::testing
