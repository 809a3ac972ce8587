// What `weightbus watch` prints where it cannot draw a screen: one line for each thing that is new.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weightbus/base/result.h"
#include "weightbus/protocol/status.h"

namespace weightbus::cli {

class WatchLines {
 public:
  explicit WatchLines(bool json) : json_(json) {}

  // The lines for what this report has that the one before had not: events, and steps of the running update.
  std::string next(const protocol::ModelStatus& status);
  // A report that did not come; said once until one comes again.
  std::string trouble(const base::Error& error);

 private:
  std::string update_line(const protocol::UpdateStatus& update);
  bool json_;
  bool in_trouble_ = false;
  std::optional<model::Epoch> epoch_;
  std::uint64_t seen_ = 0;  // the highest event so far
  std::optional<model::UpdateId> update_;
  std::optional<protocol::Phase> phase_;
  std::uint64_t bytes_done_ = 0;
};

}  // namespace weightbus::cli
