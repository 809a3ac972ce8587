#include "cli/update_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/format.h"
#include "cli/table.h"

namespace weightbus::cli {
namespace {

constexpr int kBarMin = 10;
constexpr int kBarMax = 40;
constexpr int kWidthMax = 100;
constexpr std::size_t kLinksShown = 24;

std::string bar_of(double fraction, int columns) {
  const int inside = columns - 2;
  const int done = std::clamp(static_cast<int>(fraction * inside), 0, inside);
  std::string bar(static_cast<std::size_t>(done), '=');
  if (done < inside) bar += '>';
  bar.resize(static_cast<std::size_t>(inside), ' ');
  return "[" + bar + "]";
}

std::string headline(const protocol::UpdateStatus& update, const Console& console) {
  const std::string what = fmt::format("{} {} to version {}", protocol::update_kind_name(update.kind),
                                       update.update.value(), update.target.value());
  if (update.phase == protocol::Phase::kCommitted) {
    return console.paint(Style::kGood, "committed") + "  " + what + (update.instant ? ", instant: no transfer" : "");
  }
  if (update.phase == protocol::Phase::kAborted) return console.paint(Style::kBad, "aborted") + "  " + what;
  return console.paint(Style::kBold, protocol::phase_name(update.phase)) + "  " + what;
}

std::string phases_text(const protocol::UpdateStatus& update) {
  std::string text;
  for (const auto& phase : update.phases) {
    if (has_ended(phase.phase)) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", protocol::phase_name(phase.phase), format_nanos(phase.duration_ns));
  }
  return text;
}

std::string engines_table(const protocol::UpdateStatus& update, const Console& console, int width) {
  Table table(
      {{"engine"}, {"result"}, {"bytes", Align::kRight}, {"pause", Align::kRight}, {"channel"}, {"way"}, {"note"}});
  for (const auto& engine : update.engines) {
    const bool good = engine.committed;
    const std::string result = good ? "committed" : engine.error.empty() ? "unchanged" : "failed";
    table.add({engine.engine,
               Cell(result, good                   ? Style::kGood
                            : engine.error.empty() ? Style::kNone
                                                   : Style::kBad),
               engine.instant ? "none" : format_size(engine.bytes_total), good ? format_nanos(engine.pause_ns) : "-",
               engine.channels.empty() ? "-" : engine.channels, engine.way.empty() ? "-" : engine.way,
               !engine.error.empty() ? engine.error
               : engine.required     ? ""
                                     : "was not required"});
  }
  return table.render(console, width);
}

}  // namespace

const char* role_text(model::Role role) noexcept {
  switch (role) {
    case model::Role::kShardAgent: return "shard agent";
    case model::Role::kEngineAgent: return "engine agent";
    case model::Role::kAdmin: return "admin";
    case model::Role::kCoordinator: return "coordinator";
  }
  return "unknown";
}

bool has_ended(protocol::Phase phase) noexcept {
  return phase == protocol::Phase::kCommitted || phase == protocol::Phase::kAborted;
}

std::uint64_t time_in(const protocol::UpdateStatus& update, protocol::Phase phase) noexcept {
  std::uint64_t total = 0;
  for (const auto& entry : update.phases) {
    if (entry.phase == phase) total += entry.duration_ns;
  }
  return total;
}

double staging_rate(const protocol::UpdateStatus& update) noexcept {
  return rate_of(update.bytes_done, time_in(update, protocol::Phase::kStaging));
}

std::string progress_line(const protocol::UpdateStatus& update, int width) {
  const auto limit = static_cast<std::size_t>(std::max(width, 1));
  std::string line = fmt::format("{:<10}", protocol::phase_name(update.phase));
  if (update.bytes_total == 0) return fit_text(line, limit);
  const double fraction =
      std::min(1.0, static_cast<double>(update.bytes_done) / static_cast<double>(update.bytes_total));
  std::vector<std::string> parts = {
      fmt::format("{:3.0f}%", fraction * 100),
      fmt::format("{} of {}", format_size(update.bytes_done), format_size(update.bytes_total)),
  };
  const double rate = staging_rate(update);
  if (rate > 0) {
    parts.push_back(format_rate(rate));
    if (update.phase == protocol::Phase::kStaging && update.bytes_done < update.bytes_total) {
      parts.push_back(format_left(static_cast<double>(update.bytes_total - update.bytes_done) / rate) + " left");
    }
  }
  std::string tail;
  for (const auto& part : parts) {
    const std::size_t with_bar = line.size() + kBarMin + tail.size() + 2 + part.size();
    if (with_bar > limit) break;
    tail += "  " + part;
  }
  const auto room = static_cast<int>(limit) - static_cast<int>(line.size() + tail.size());
  if (room >= kBarMin) line += bar_of(fraction, std::min(room, kBarMax));
  return fit_text(line + tail, limit);
}

std::string phase_line(const protocol::UpdateStatus& update) {
  std::string line = fmt::format("{} {} to version {}: {}", protocol::update_kind_name(update.kind),
                                 update.update.value(), update.target.value(), protocol::phase_name(update.phase));
  if (update.phase >= protocol::Phase::kPlanned && update.bytes_total > 0) {
    line += fmt::format(", {} of {}", format_size(update.bytes_done), format_size(update.bytes_total));
  }
  return line;
}

std::string update_result(const protocol::UpdateStatus& update, const Console& console) {
  const int width = std::min(console.width(), kWidthMax);
  const auto columns = static_cast<std::size_t>(width);
  std::string out = headline(update, console) + "\n";
  if (!update.source.empty()) out += fit_text("  from     " + update.source, columns) + "\n";
  const double rate = update.phase == protocol::Phase::kCommitted ? staging_rate(update) : 0;
  if (update.bytes_total > 0) {
    out +=
        fmt::format("  bytes    {}{}\n", format_size(update.bytes_total), rate > 0 ? " at " + format_rate(rate) : "");
  }
  if (update.digests_compared > 0) {
    out += fmt::format("  digests  {} compared{}\n", update.digests_compared,
                       update.phase == protocol::Phase::kCommitted ? ", all equal" : "");
  }
  if (const std::string phases = phases_text(update); !phases.empty()) {
    const std::string wrapped = wrap_text(phases, columns, 11);
    out += "  phases   " + wrapped.substr(std::min<std::size_t>(11, wrapped.size()));
  }
  if (!update.engines.empty()) out += "\n" + engines_table(update, console, width);
  if (update.error && update.phase != protocol::Phase::kCommitted) {
    const std::string text = wrap_text(update.error->message, columns, 2);
    out += "\n" + console.paint(Style::kBad, std::string("Error: ") + base::error_code_name(update.error->code)) +
           "\n" + text;
    out += "Nothing changed: the engines serve what they served before.\n";
  }
  return out;
}

std::string plan_result(const protocol::UpdateStatus& update, const Console& console) {
  const int width = std::min(console.width(), kWidthMax);
  if (!update.plan || update.error) return update_result(update, console);
  const auto& plan = *update.plan;
  std::string out = fmt::format("plan {}  {}, {} tensors, into {} engines\n", plan.hash.to_string().substr(0, 12),
                                format_size(plan.bytes), plan.tensors, update.engines.size());
  out += fmt::format("  memory   {} in the arenas of all ranks (both halves)\n", format_size(plan.arena_bytes));
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> channels;
  for (const auto& link : plan.links) {
    auto& [bytes, buckets] = channels[link.channel.empty() ? "-" : link.channel];
    bytes += link.bytes;
    buckets += link.buckets;
  }
  for (const auto& [name, sums] : channels) {
    out += fmt::format("  {:<8} {} in {} buckets\n", name, format_size(sums.first), sums.second);
  }
  out += "  coverage every byte of every slot is written exactly once\n";
  Table table({{"from"}, {"to"}, {"channel"}, {"bytes", Align::kRight}, {"buckets", Align::kRight}});
  for (std::size_t i = 0; i < std::min(plan.links.size(), kLinksShown); ++i) {
    const auto& link = plan.links[i];
    table.add({link.source.value(), link.sink.value(), link.channel.empty() ? "-" : link.channel,
               format_size(link.bytes), std::to_string(link.buckets)});
  }
  if (!table.empty()) out += "\n" + table.render(console, width);
  if (plan.links.size() > kLinksShown) {
    out += fmt::format("and {} links more; --json shows all\n", plan.links.size() - kLinksShown);
  }
  for (const auto& warning : plan.warnings) {
    const std::string text = wrap_text("warning: " + warning, static_cast<std::size_t>(width), 0);
    out += console.paint(Style::kWarn, text.substr(0, text.size() - std::min<std::size_t>(1, text.size()))) + "\n";
  }
  return out;
}

}  // namespace weightbus::cli
