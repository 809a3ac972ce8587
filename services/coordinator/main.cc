// weightbus-coordinator: sequences versioned updates. main() composes; runtime/coordinator_loop.h runs.
#include <unistd.h>

#include <cstdio>

#include "weightbus/observe/catalogue.h"
#include "weightbus/observe/logs.h"
#include "weightbus/runtime/agent_loop.h"
#include "weightbus/runtime/coordinator_loop.h"
#include "weightbus/runtime/observing.h"
#include "weightbus/runtime/service.h"
#include "weightbus/runtime/signals.h"
#include "weightbus/store/sqlite/sqlite_store.h"

namespace weightbus {
namespace {

using runtime::Setting;
using runtime::SettingType;

runtime::ProgramInfo program() {
  std::vector<Setting> settings = {
      {"listen", SettingType::kEndpoint, "tcp://127.0.0.1:7070",
       "Where agents and the command line connect. Off loopback it needs keys_file and allow_file. Name a port: with "
       "port 0 a restarted coordinator listens elsewhere."},
      {"journal", SettingType::kPath, std::nullopt,
       "The SQLite file that holds every decision. On a local disk, backed up; without it the fleet has to be adopted "
       "anew.",
       "", "/var/lib/weightbus/journal.db"},
      {"lease", SettingType::kDuration, "10s",
       "How long the journal stays ours without renewal; another coordinator can take it over after that.", "", "",
       1'000'000'000},
      {"heartbeat_interval", SettingType::kDuration, "500ms", "How often members report. Progress bars move as often.",
       "", "", 10'000'000},
      {"member_timeout", SettingType::kDuration, "5s",
       "A member silent for longer is lost: an update that needs it aborts. Several heartbeats.", "", "", 100'000'000},
      {"update_deadline", SettingType::kDuration, "10m",
       "From the beginning of an update to its decision; then it aborts. As long as reading a checkpoint may take.", "",
       "", 1'000'000},
      {"pause_deadline", SettingType::kDuration, "10s",
       "How long the ranks of an engine may take to pause at a step; longer than the longest step.", "", "", 1'000'000},
      {"commit_deadline", SettingType::kDuration, "30s",
       "From the decision to the commit of each engine; one that takes longer is quarantined and catches up.", "", "",
       1'000'000},
      {"serve_stale", SettingType::kDuration, "0",
       "An engine that has not heard of the coordinator for this long reports that it is not ready. 0: no bound."},
      {"bucket_bytes", SettingType::kBytes, "512MiB",
       "The unit of sending and retrying. Agreed by all; a larger tensor is split.", "", "", 4096},
      {"retain_versions", SettingType::kCount, "4",
       "How many committed versions are kept as snapshots, besides pinned ones. 0: only what the shadows hold.",
       "versions", "", 0, 10'000},
  };
  for (auto& setting : runtime::common_settings())
    settings.push_back(std::move(setting));
  return {"weightbus-coordinator", "Sequences versioned updates of model weights.", WEIGHTBUS_VERSION,
          std::move(settings), [](const runtime::Settings& s) -> base::Status {
            if (s.duration("member_timeout") < 2 * s.duration("heartbeat_interval")) {
              return base::fail(base::ErrorCode::kInvalidArgument,
                                "member_timeout must be at least two heartbeat_intervals");
            }
            return {};
          }};
}

protocol::CoordinatorOptions protocol_options(const runtime::Settings& s) {
  protocol::CoordinatorOptions options;
  options.heartbeat_interval = s.duration("heartbeat_interval");
  options.member_timeout = s.duration("member_timeout");
  options.update_deadline = s.duration("update_deadline");
  options.pause_deadline = s.duration("pause_deadline");
  options.commit_deadline = s.duration("commit_deadline");
  options.serve_stale = s.duration("serve_stale");
  options.bucket_bytes = s.bytes("bucket_bytes");
  options.retain_versions = static_cast<std::uint32_t>(s.count("retain_versions"));
  return options;
}

int end_with(std::string_view event, const base::Error& error, int code) {
  observe::log(observe::Level::kError, event, {{"code", base::error_code_name(error.code)}, {"error", error.message}});
  return code;
}

int work(const runtime::Settings& settings) {
  if (auto logs = runtime::start_logs(program(), settings, "coordinator"); !logs) return runtime::kExitBadConfig;
  auto store = store::SqliteStore::open(settings.text("journal"));
  if (!store) {
    const bool for_good = store.error().code != base::ErrorCode::kUnavailable;
    return end_with("journal.open", store.error(), for_good ? runtime::kExitFatal : runtime::kExitJournal);
  }
  auto transport = runtime::make_transport(settings);
  if (!transport) return end_with("transport", transport.error(), runtime::kExitFatal);
  observe::Metrics metrics;
  runtime::AllowListWatch allow(settings, **transport);
  runtime::CoordinatorLoop* running = nullptr;
  runtime::CoordinatorLoopOptions options;
  options.protocol = protocol_options(settings);
  options.holder = "pid " + std::to_string(::getpid());
  options.lease = settings.duration("lease");
  options.observe = [&](const protocol::Observation& observation) { runtime::record(observation, metrics); };
  options.appended = [&](base::Duration took) {
    metrics.histogram(observe::catalogue::kStoreAppend).observe(base::to_seconds(took));
  };
  options.dropped = [&](const std::string& reason) {
    metrics.counter(observe::catalogue::kFramesDropped, {{"reason", reason}}).increment();
  };
  options.report = [&](const std::vector<protocol::ModelStatus>& fleet) {
    runtime::record(fleet, metrics);
    runtime::record(running->counters(), (*transport)->drops(), metrics);
    allow.poll();
  };
  runtime::CoordinatorLoop loop(std::move(options), **transport, **store);
  running = &loop;
  const auto bound = (*transport)->bind(settings.text("listen"));
  if (!bound) return end_with("transport.bind", bound.error(), runtime::kExitFatal);
  observe::log(observe::Level::kInfo, "coordinator.listening", {{"endpoint", *bound}});
  const auto ready = [&loop] {
    return loop.serving() ? observe::Health{true, ""} : observe::Health{false, "reading the journal"};
  };
  auto http = runtime::start_http(
      settings, metrics, [] { return observe::Health{}; }, ready);
  if (!http) return end_with("http", http.error(), runtime::kExitFatal);
  runtime::StopSignals signals([&loop] { loop.stop(); }, base::Millis(5'000));
  const int code = loop.run();
  observe::log(observe::Level::kInfo, "service.end", {{"code", code}});
  return code;
}

}  // namespace
}  // namespace weightbus

int main(int argc, char** argv) {
  return weightbus::runtime::run_service(
      weightbus::program(), argc, argv, [](const weightbus::runtime::Settings&) { return std::string(); },
      weightbus::work);
}
