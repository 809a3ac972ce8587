// Memory and disks that are full, and the orderly end.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/integration/fleet/readers.h"

namespace weightbus::testing {
namespace {

using protocol::ModelStatus;
using protocol::Phase;

TEST(Limits, AnArenaThatDoesNotFitIsRefusedWithItsNumbers) {
  Fleet fleet({.engines = {1, 1}, .start = false});
  fleet.engine(1, 0).limit_file_size(64 << 10);
  fleet.start_all();
  const auto update = fleet.push_to_end(fleet.checkpoint(0));
  EXPECT_EQ(update.phase, Phase::kAborted) << describe(update);
  ASSERT_TRUE(update.error);
  EXPECT_EQ(update.error->code, base::ErrorCode::kResourceExhausted);
  const std::string& why = update.error->message;
  EXPECT_NE(why.find(Fleet::member(1, 0)), std::string::npos) << why;
  EXPECT_NE(why.find("needs"), std::string::npos) << why;
  EXPECT_NE(why.find("free"), std::string::npos) << why;
  for (const auto& name : fleet.shared_memory())
    EXPECT_EQ(name.find("engine-1"), std::string::npos) << name << " was left";
  // The others are served without it.
  protocol::PublishRequest request{protocol::CheckpointSource{}};
  request.require = 1;
  const auto served = fleet.push_to_end(fleet.checkpoint(0), request);
  EXPECT_EQ(served.phase, Phase::kCommitted) << describe(served);
}

// Whatever of a push the full disk stopped: no version is decided that the journal does not hold, and with room again
// everything goes on.
TEST(Limits, AJournalThatCannotGrowStopsPushesAndHistoryStaysWhole) {
  Fleet fleet({.engines = {2}, .start = false});
  fleet.coordinator().limit_file_size(200 << 10);
  fleet.start_all();
  ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0)).phase, Phase::kCommitted);
  Readers readers(fleet, {0});
  readers.saw(1);
  std::uint64_t last = 1;
  const auto is_full = [&] { return !fleet.coordinator().all_logged("journal.append", "error").empty(); };
  for (unsigned push = 1; push < 500 && !is_full(); ++push) {
    protocol::PublishRequest request{protocol::CheckpointSource{fleet.checkpoint(push % 3)}};
    const auto accepted = runtime::AdminClient::connect(fleet.client_options())
                              .value()
                              ->ask<protocol::UpdateAccepted>(request, base::Millis(2'000));
    if (!accepted) continue;
    last = accepted->target.value();
    eventually([&] {
      if (is_full()) return true;
      const auto recent = fleet.status().recent;
      return !recent.empty() && recent.front().update == accepted->update;
    });
  }
  EXPECT_TRUE(is_full());
  fleet.coordinator().kill_keeper();
  fleet.coordinator().limit_file_size(std::nullopt);
  fleet.start_coordinator();
  fleet.wait_joined();
  const auto before = fleet.committed();
  EXPECT_LE(before, last);
  fleet.wait_serving(before);
  const auto update = fleet.push_to_end(fleet.checkpoint(0));
  EXPECT_EQ(update.phase, Phase::kCommitted) << describe(update);
  EXPECT_GT(update.target.value(), last);
  readers.saw(update.target.value());
  readers.finish();
}

TEST(Limits, EveryProcessEndsWithZeroWhenAskedToAndLeavesNothing) {
  for (const bool during_push : {false, true}) {
    Fleet fleet;
    ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0, "small")).phase, Phase::kCommitted);
    fleet.wait_serving(1);
    EXPECT_FALSE(fleet.shared_memory().empty());
    if (during_push) {
      ASSERT_TRUE(fleet.push(fleet.checkpoint(1, "small")));
    }
    // Checks the exit codes, the processes and /dev/shm. A worker that needs longer than the five seconds that it is
    // given is killed, and its keeper ends with another code.
    fleet.ends();
  }
}

TEST(Limits, OneThatIsAskedToEndAtOnceEndsWithZero) {
  Fleet fleet({.engines = {1}, .start = false});
  fleet.start_coordinator();
  for (const std::string name : {"trainer-0", "engine-0-tp0"}) {
    fleet.process(name).start();
    fleet.process(name).worker();
    EXPECT_EQ(fleet.process(name).stop(), 0) << name;
  }
}

}  // namespace
}  // namespace weightbus::testing
