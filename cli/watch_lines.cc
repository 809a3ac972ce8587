#include "cli/watch_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/fleet_view.h"
#include "cli/format.h"
#include "cli/json_views.h"
#include "cli/table.h"
#include "cli/update_view.h"
#include "weightbus/runtime/clock.h"

namespace weightbus::cli {

std::string WatchLines::next(const protocol::ModelStatus& status) {
  in_trouble_ = false;
  // Another coordinator counts its events from the beginning.
  const bool restarted = epoch_ && *epoch_ != status.epoch;
  if (restarted ||
      std::all_of(status.events.begin(), status.events.end(), [&](const auto& e) { return e.sequence < seen_; })) {
    seen_ = 0;
  }
  std::string out;
  if (!epoch_ || restarted) {
    if (json_) {
      out += to_line({{"type", "coordinator"},
                      {"epoch", status.epoch.number},
                      {"committed", status.committed ? Json(status.committed->value()) : Json(nullptr)}});
    } else if (restarted) {
      out += format_clock(runtime::unix_millis()) + "  the coordinator was restarted\n";
    }
  }
  epoch_ = status.epoch;
  for (const auto& event : status.events) {
    if (event.sequence <= seen_) continue;
    seen_ = event.sequence;
    if (json_) {
      Json line{{"type", "event"}};
      line.update(to_json(event));
      out += to_line(line);
    } else {
      out += event_line(event) + "\n";
    }
  }
  if (status.running) out += update_line(*status.running);
  return out;
}

std::string WatchLines::update_line(const protocol::UpdateStatus& update) {
  const bool new_phase = update_ != update.update || phase_ != update.phase;
  const bool moved = bytes_done_ != update.bytes_done;
  if (!new_phase && !(json_ && moved)) return {};
  update_ = update.update;
  phase_ = update.phase;
  bytes_done_ = update.bytes_done;
  if (!json_) return format_clock(runtime::unix_millis()) + "  " + phase_line(update) + "\n";
  return to_line({{"type", "update"},
                  {"update", update.update.value()},
                  {"kind", protocol::update_kind_name(update.kind)},
                  {"target", update.target.value()},
                  {"phase", protocol::phase_name(update.phase)},
                  {"bytes_done", update.bytes_done},
                  {"bytes_total", update.bytes_total}});
}

std::string WatchLines::trouble(const base::Error& error) {
  if (in_trouble_) return {};
  in_trouble_ = true;
  if (json_) return to_line({{"type", "error"}, {"error", to_json(error)}});
  return format_clock(runtime::unix_millis()) + "  " + fit_text(error.message, error.message.size() + 1) + "\n";
}

}  // namespace weightbus::cli
