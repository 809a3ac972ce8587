// How tests meet an update in the middle.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/fleet.h"

namespace weightbus::testing {

// Pushes until an update was seen in one of these phases, where `act` is called. The update's end; nullopt after a
// failure of the test. Large enough checkpoints make it the first one.
inline std::optional<protocol::UpdateStatus> interrupt(Fleet& fleet, const std::vector<protocol::Phase>& phases,
                                                       const std::function<void()>& act, std::uint32_t require = 0) {
  for (unsigned attempt = 0; attempt < 50; ++attempt) {
    protocol::PublishRequest request{protocol::CheckpointSource{}};
    request.require = require;
    const auto accepted = fleet.push(fleet.checkpoint(1 + attempt % 2, "small"), request);
    if (!accepted) {
      ADD_FAILURE() << accepted.error().message;
      return std::nullopt;
    }
    bool met = false;
    fleet.wait_for("a phase", [&](const protocol::ModelStatus& status) {
      if (!status.running || status.running->update != accepted->update)
        return !status.recent.empty() && status.recent.front().update == accepted->update;
      met = std::find(phases.begin(), phases.end(), status.running->phase) != phases.end();
      return met;
    });
    if (met) act();
    auto end = fleet.end_of(accepted->update);
    if (met) return end;
  }
  ADD_FAILURE() << "no update was met in that phase";
  return std::nullopt;
}

inline bool names(const protocol::UpdateStatus& update, const std::string& member) {
  return update.error && update.error->message.find(member) != std::string::npos;
}

}  // namespace weightbus::testing
