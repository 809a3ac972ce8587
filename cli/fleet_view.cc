#include "cli/fleet_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/format.h"
#include "cli/table.h"
#include "cli/update_view.h"

namespace weightbus::cli {
namespace {

constexpr int kWidthMax = 100;
constexpr std::size_t kUpdatesShown = 5;
constexpr std::size_t kEventsShown = 5;

int width_of(const Console& console) { return std::min(console.width(), kWidthMax); }

std::string version_text(const std::optional<protocol::Tag>& tag) {
  return tag ? std::to_string(tag->version.value()) : "-";
}

Cell state_cell(const protocol::MemberStatus& row, const protocol::ModelStatus& status) {
  if (!row.connected) return {"lost", Style::kBad};
  if (row.quarantined) return {"quarantined", Style::kWarn};
  if (row.member.role != model::Role::kEngineAgent) return {"connected", Style::kGood};
  if (!row.live) return {"empty", Style::kWarn};
  if (status.committed && row.live->version != *status.committed) return {"behind", Style::kWarn};
  return {"serving", Style::kGood};
}

// "2 live, 2 shadow, 4 snapshots": who holds it by name is for --json.
std::string holders_text(const std::vector<std::string>& holders) {
  std::map<std::string, std::size_t> kinds;
  for (const auto& holder : holders)
    ++kinds[holder.substr(holder.rfind(' ') + 1)];
  std::string text;
  for (const char* kind : {"live", "shadow", "snapshot"}) {
    if (kinds[kind] > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kinds[kind], kind);
  }
  return text.empty() ? "nobody" : text;
}

std::string engines_table(const protocol::ModelStatus& status, const Console& console) {
  Table table({{"engine"},
               {"rank", Align::kRight},
               {"live", Align::kRight},
               {"shadow", Align::kRight},
               {"state"},
               {"heartbeat", Align::kRight},
               {"readers", Align::kRight}});
  for (const auto& row : status.members) {
    if (row.member.role != model::Role::kEngineAgent) continue;
    table.add({row.member.engine, fmt::format("{}/{}", row.member.rank, row.member.world), version_text(row.live),
               version_text(row.shadow), state_cell(row, status), format_age(row.heartbeat_age_ms) + " ago",
               std::to_string(row.readers)});
  }
  return table.empty() ? "no engine agent has connected\n" : table.render(console, width_of(console));
}

std::string updates_table(const protocol::ModelStatus& status, const Console& console) {
  Table table({{"update", Align::kRight},
               {"kind"},
               {"version", Align::kRight},
               {"result"},
               {"bytes", Align::kRight},
               {"staging", Align::kRight},
               {"began"},
               {"note"}});
  for (std::size_t i = 0; i < std::min(status.recent.size(), kUpdatesShown); ++i) {
    const auto& update = status.recent[i];
    const Style style = update.phase == protocol::Phase::kCommitted ? Style::kGood
                        : update.phase == protocol::Phase::kAborted ? Style::kBad
                                                                    : Style::kNone;
    table.add({std::to_string(update.update.value()), protocol::update_kind_name(update.kind),
               std::to_string(update.target.value()), Cell(protocol::phase_name(update.phase), style),
               update.instant ? "none" : format_size(update.bytes_total),
               update.instant ? "-" : format_nanos(time_in(update, protocol::Phase::kStaging)),
               format_clock(update.started_unix_ms), update.error ? update.error->message : ""});
  }
  return table.render(console, width_of(console));
}

std::string summary(const protocol::ModelStatus& status, const Console& console) {
  std::size_t shards = 0;
  for (const auto& row : status.members)
    shards += row.connected && row.member.role == model::Role::kShardAgent ? 1 : 0;
  std::string out =
      fmt::format("model {}  {}  {} shard agents  epoch {} of journal {}\n", status.model.value(),
                  status.committed ? console.paint(Style::kBold, fmt::format("version {}", status.committed->value()))
                                   : std::string("no version committed yet"),
                  shards, status.epoch.number, status.epoch.journal.to_string().substr(0, 8));
  if (status.needs_adopt) {
    out += console.paint(Style::kWarn, "members obeyed another journal: restore that one, or run `weightbus adopt`") +
           "\n";
  }
  return out;
}

}  // namespace

std::string event_line(const protocol::Event& event) {
  return format_clock(event.unix_ms) + "  " + fit_text(event.text, event.text.size() + 1);
}

std::string status_view(const protocol::ModelStatus& status, const Console& console) {
  std::string out = summary(status, console);
  if (status.running) {
    const auto& running = *status.running;
    out += fmt::format("\n{} {} to version {} from {}\n{}\n", protocol::update_kind_name(running.kind),
                       running.update.value(), running.target.value(), running.source,
                       progress_line(running, width_of(console)));
  }
  out += "\n" + engines_table(status, console);
  if (!status.recent.empty()) out += "\n" + updates_table(status, console);
  if (!status.events.empty()) {
    out += "\n";
    const std::size_t begin = status.events.size() - std::min(status.events.size(), kEventsShown);
    for (std::size_t i = begin; i < status.events.size(); ++i) {
      out += console.paint(Style::kDim,
                           fit_text(event_line(status.events[i]), static_cast<std::size_t>(width_of(console)))) +
             "\n";
    }
  }
  return out;
}

std::string versions_view(const protocol::ModelStatus& status, const Console& console) {
  if (status.versions.empty())
    return "no version has been committed yet; `weightbus push --checkpoint DIR` makes the first\n";
  Table table({{"version", Align::kRight},
               {"step", Align::kRight},
               {"bytes", Align::kRight},
               {"created"},
               {"going back"},
               {"held by"},
               {"source"}});
  for (const auto& row : status.versions) {
    const Style style = row.committed ? Style::kGood : row.available ? Style::kNone : Style::kBad;
    table.add({std::to_string(row.version.value()), row.step == 0 ? "-" : std::to_string(row.step),
               format_size(row.bytes), format_time(row.created_unix_ms),
               Cell((row.committed ? "live now" : row.rollback_cost) + (row.pinned ? ", pinned" : ""), style),
               holders_text(row.holders), row.source});
  }
  return table.render(console, width_of(console));
}

std::string members_view(const protocol::ModelStatus& status, const Console& console) {
  if (status.members.empty()) return "no agent of this model has connected\n";
  Table table({{"member"},
               {"role"},
               {"rank", Align::kRight},
               {"engine"},
               {"state"},
               {"live", Align::kRight},
               {"shadow", Align::kRight},
               {"heartbeat", Align::kRight},
               {"software"}});
  for (const auto& row : status.members) {
    const auto& member = row.member;
    table.add({member.id.value(), role_text(member.role), fmt::format("{}/{}", member.rank, member.world),
               member.engine.empty() ? "-" : member.engine, state_cell(row, status), version_text(row.live),
               version_text(row.shadow), format_age(row.heartbeat_age_ms) + " ago", row.software});
  }
  return table.render(console, width_of(console));
}

}  // namespace weightbus::cli
