// Engines that come late, or come back without their memory.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>

#include "tests/integration/fleet/readers.h"

namespace weightbus::testing {
namespace {

using protocol::ModelStatus;
using protocol::Phase;
using protocol::UpdateKind;

void lose_memory(const Fleet& fleet, unsigned engine) {
  for (const auto& name : fleet.shared_memory()) {
    if (name.find("engine-" + std::to_string(engine)) != std::string::npos) ::shm_unlink(("/" + name).c_str());
  }
}

std::string catch_up_source(const ModelStatus& status) {
  for (const auto& update : status.recent) {
    if (update.kind == UpdateKind::kCatchUp && update.phase == Phase::kCommitted) return update.source;
  }
  return "none";
}

TEST(Recovery, ALateEngineCatchesUpFromAPeer) {
  Fleet fleet({.engines = {2}});
  ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0)).phase, Phase::kCommitted);
  Readers readers(fleet, {0});
  readers.saw(1);
  fleet.add_engine(1, 2);
  fleet.wait_serving(1);
  EXPECT_EQ(catch_up_source(fleet.status()), "live version 1");
  const auto live = fleet.live_digests();
  for (unsigned rank = 0; rank < 2; ++rank)
    EXPECT_EQ(live.at(Fleet::member(0, rank)), live.at(Fleet::member(1, rank)));
  const auto update = fleet.push_to_end(fleet.checkpoint(1));
  EXPECT_EQ(update.engines.size(), 2U);
  ASSERT_EQ(update.phase, Phase::kCommitted) << describe(update);
  readers.saw(2);
  readers.finish();
}

TEST(Recovery, ALateEngineOfAnotherSizeCatchesUpToo) {
  Fleet fleet({.engines = {2}});
  ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0)).phase, Phase::kCommitted);
  fleet.add_engine(1, 1);
  fleet.wait_serving(1);
  EXPECT_EQ(fleet.push_to_end(fleet.checkpoint(1)).phase, Phase::kCommitted);
  fleet.wait_serving(2);
}

TEST(Recovery, AnEngineThatLostItsMemoryAndItsStateCatchesUp) {
  Fleet fleet;
  ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0)).phase, Phase::kCommitted);
  const auto before = fleet.live_digests();
  Readers readers(fleet, {0});
  readers.saw(1);
  fleet.kill_engine(1);
  lose_memory(fleet, 1);
  for (unsigned rank = 0; rank < 2; ++rank)
    std::filesystem::remove_all(fleet.path(Fleet::member(1, rank)));
  fleet.start_engine(1);
  fleet.wait_serving(1);
  EXPECT_EQ(fleet.live_digests(), before);
  readers.finish();
}

TEST(Recovery, ARankThatLostItsMemoryOnlyCatchesUpAndItsPeerIsNotTakenForCurrent) {
  Fleet fleet;
  ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(0)).phase, Phase::kCommitted);
  const auto before = fleet.live_digests();
  fleet.engine(1, 1).kill_keeper();
  for (const auto& name : fleet.shared_memory()) {
    if (name.find(Fleet::member(1, 1)) != std::string::npos) ::shm_unlink(("/" + name).c_str());
  }
  fleet.engine(1, 1).start();
  fleet.wait_for("the engine to be missed", [](const ModelStatus& status) {
    return std::count_if(status.events.begin(), status.events.end(), [](const protocol::Event& event) {
             return event.text.starts_with(Fleet::member(1, 1) + " joined");
           }) >= 2;
  });
  fleet.wait_serving(1);
  EXPECT_EQ(fleet.live_digests(), before);
}

TEST(Recovery, AFleetThatLostAllItsMemoryIsRestoredFromSnapshots) {
  Fleet fleet;
  for (unsigned variant = 0; variant < 2; ++variant) {
    ASSERT_EQ(fleet.push_to_end(fleet.checkpoint(variant)).phase, Phase::kCommitted);
    fleet.wait_snapshots(variant + 1);
  }
  const auto before = fleet.live_digests();
  fleet.kill_engine(0);
  fleet.kill_engine(1);
  lose_memory(fleet, 0);
  lose_memory(fleet, 1);
  ASSERT_TRUE(fleet.shared_memory().empty() || fleet.shared_memory().front().find("trainer") != std::string::npos);
  fleet.start_engine(0);
  fleet.start_engine(1);
  fleet.wait_serving(2);
  EXPECT_EQ(fleet.live_digests(), before);
  const auto back = fleet.rollback_to_end(1);
  EXPECT_EQ(back.phase, Phase::kCommitted) << describe(back);
  fleet.wait_serving(1);
}

}  // namespace
}  // namespace weightbus::testing
