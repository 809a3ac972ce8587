// Waiting for an update to end, and showing how far it is.
#pragma once

#include <functional>
#include <optional>

#include "cli/console.h"
#include "weightbus/base/result.h"
#include "weightbus/base/time.h"
#include "weightbus/protocol/messages.h"

namespace weightbus::cli {

// Shows an update's progress: a bar that is drawn again and again on a terminal, otherwise a line for each phase.
class Progress {
 public:
  enum class Mode { kSilent, kLines, kBar };
  Progress(const Console& console, Mode mode) : console_(console), mode_(mode) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const protocol::UpdateStatus& update);
  // Something that is no phase ("waiting behind update 6"); shown when it differs from what was said last.
  void say(const std::string& text);
  // Removes the bar, so that something else can be printed.
  void clear();

 private:
  void draw(const std::string& line);
  const Console& console_;
  Mode mode_;
  bool drawn_ = false;
  std::string said_;
  std::optional<protocol::Phase> phase_;
};

struct WaitOptions {
  model::UpdateId update;
  bool queued = false;                // it began behind another one
  std::optional<model::Epoch> epoch;  // of the coordinator that accepted it
  base::Duration poll = base::Millis(100);
  base::Duration patience = base::Millis(30'000);   // with a coordinator that does not answer: it may be restarting
  base::Duration lost_after = base::Millis(2'000);  // that nobody has heard of the update
};

// What it needs of the world; in tests, made up.
struct WaitWorld {
  std::function<base::Result<protocol::ModelStatus>()> status;  // bounded in time by itself
  std::function<base::Instant()> now;
  std::function<void(base::Duration)> sleep;
};

// Until the update has ended (a dry run ends as `planned`). kUnavailable: the coordinator stopped answering, the
// outcome is unknown. kAborted: the coordinator was restarted before the update was decided, so that it never will be.
base::Result<protocol::UpdateStatus> wait_for_update(const WaitOptions& options, const WaitWorld& world,
                                                     Progress& progress);

}  // namespace weightbus::cli
