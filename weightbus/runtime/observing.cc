#include "weightbus/runtime/observing.h"

#include <algorithm>
#include <map>
#include <set>

#include "weightbus/observe/catalogue.h"
#include "weightbus/observe/logs.h"
#include "weightbus/protocol/dispatch.h"
#include "weightbus/protocol/messages.h"

namespace weightbus::runtime {
namespace {

namespace catalogue = observe::catalogue;

observe::Level level_of(protocol::Level level) {
  switch (level) {
    case protocol::Level::kDebug: return observe::Level::kDebug;
    case protocol::Level::kInfo: return observe::Level::kInfo;
    case protocol::Level::kWarning: return observe::Level::kWarn;
    case protocol::Level::kError: return observe::Level::kError;
  }
  return observe::Level::kError;
}

double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

void record_update(const protocol::UpdateFinished& finished, observe::Metrics& metrics) {
  const auto& status = finished.status;
  const std::string& model = finished.model.value();
  const bool committed = status.phase == protocol::Phase::kCommitted;
  metrics
      .counter(
          catalogue::kUpdates,
          {{"model", model}, {"kind", update_kind_name(status.kind)}, {"result", committed ? "committed" : "aborted"}})
      .increment();
  for (const auto& phase : status.phases) {
    metrics.histogram(catalogue::kUpdatePhase, {{"model", model}, {"phase", phase_name(phase.phase)}})
        .observe(seconds(phase.duration_ns));
  }
  metrics.counter(catalogue::kDigestsCompared, {{"model", model}})
      .increment(static_cast<double>(status.digests_compared));
  for (const auto& engine : status.engines) {
    if (engine.committed)
      metrics.histogram(catalogue::kEnginePause, {{"model", model}}).observe(seconds(engine.pause_ns));
  }
  if (status.error) {
    metrics.counter(catalogue::kAborts, {{"model", model}, {"reason", base::error_code_name(status.error->code)}})
        .increment();
  }
  observe::log(committed ? observe::Level::kInfo : observe::Level::kWarn, "update.ended",
               {{"model", model},
                {"update", status.update.value()},
                {"kind", update_kind_name(status.kind)},
                {"target", status.target.value()},
                {"phase", phase_name(status.phase)},
                {"bytes", status.bytes_total},
                {"digests", status.digests_compared},
                {"error", status.error ? status.error->message : ""}});
}

}  // namespace

void record(const protocol::Observation& observation, observe::Metrics& metrics) {
  std::visit(protocol::Overloaded{
                 [&](const protocol::Note& note) {
                   observe::log(level_of(note.level), "note", {{"text", note.text}});
                 },
                 [&](const protocol::UpdateFinished& finished) { record_update(finished, metrics); },
                 [&](const protocol::DigestMismatch& mismatch) {
                   metrics.counter(catalogue::kDigestMismatches, {{"model", mismatch.model.value()}}).increment();
                   observe::log(observe::Level::kError, "digest.mismatch", {{"what", mismatch.what}});
                 },
                 [&](const protocol::StaleDropped& dropped) {
                   metrics.counter(catalogue::kFramesDropped, {{"reason", "stale"}}).increment();
                   observe::log(observe::Level::kDebug, "message.stale", {{"reason", dropped.reason}});
                 },
                 [&](const protocol::Resent& resent) {
                   metrics.counter(catalogue::kRetries, {{"message", resent.what}}).increment();
                 },
             },
             observation);
}

void record(const ControlLink::Counters& counters, const transport::Transport::Drops& drops,
            observe::Metrics& metrics) {
  const auto raise = [&](std::string_view reason, std::uint64_t total) {
    metrics.counter(catalogue::kFramesDropped, {{"reason", reason}}).raise_to(static_cast<double>(total));
  };
  raise("malformed", counters.malformed);
  raise("revision", counters.unsupported);
  raise("queue_full", counters.queue_full);
  raise("oversized", drops.oversized);
  metrics.counter(catalogue::kAuthenticationFailures).raise_to(static_cast<double>(drops.authentication));
}

void record(const std::vector<protocol::ModelStatus>& fleet, observe::Metrics& metrics) {
  for (const auto& status : fleet) {
    const std::string& model = status.model.value();
    metrics.gauge(catalogue::kEpoch).set(static_cast<double>(status.epoch.number));
    std::set<std::uint64_t> live;
    std::map<std::string, std::string> engines;
    for (const auto& member : status.members) {
      metrics.gauge(catalogue::kHeartbeatAge, {{"member", member.member.id.value()}})
          .set(static_cast<double>(member.heartbeat_age_ms) / 1e3);
      if (member.member.role != model::Role::kEngineAgent) continue;
      if (member.connected && member.live) live.insert(member.live->version.value());
      auto& state = engines[member.member.engine];
      if (!member.connected) {
        state = "lost";
      } else if (state != "lost") {
        state = member.quarantined ? "quarantined" : status.running ? "updating" : "serving";
      }
    }
    metrics.gauge(catalogue::kVersionSpread, {{"model", model}})
        .set(live.empty() ? 0 : static_cast<double>(*live.rbegin() - *live.begin()));
    for (const auto& [engine, state] : engines) {
      for (const char* each : {"serving", "updating", "quarantined", "lost"}) {
        metrics.gauge(catalogue::kEngineState, {{"model", model}, {"engine", engine}, {"state", each}})
            .set(state == each ? 1 : 0);
      }
    }
  }
}

}  // namespace weightbus::runtime
