#include "weightbus/runtime/agent_service.h"

#include "weightbus/observe/logs.h"
#include "weightbus/runtime/observing.h"
#include "weightbus/runtime/signals.h"

namespace weightbus::runtime {

int end_for_good(std::string_view event, const base::Error& error) {
  observe::log(observe::Level::kError, event, {{"code", base::error_code_name(error.code)}, {"error", error.message}});
  return kExitFatal;
}

int run_agent(const Settings& settings, const model::Member& self, transport::Transport& transport,
              AgentMachine& machine, AgentWork& work, AgentFiles& files, observe::Metrics& metrics) {
  AgentLoop loop({self, settings.text("coordinator"), settings.text("coordinator_key"),
                  [&](const protocol::Observation& o) { record(o, metrics); }},
                 transport, machine, work, files);
  const auto ready = [&loop] { return observe::Health{loop.readiness().ready, loop.readiness().reason}; };
  auto http = start_http(
      settings, metrics, [] { return observe::Health{}; }, ready);
  if (!http) return end_for_good("http", http.error());
  StopSignals signals([&loop] { loop.stop(); }, base::Millis(5'000));
  const int code = loop.run();
  observe::log(observe::Level::kInfo, "service.end", {{"code", code}});
  return code;
}

}  // namespace weightbus::runtime
