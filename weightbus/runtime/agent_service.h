// What the main() of both kinds of agents ends with: the loop, its HTTP server and its signals.
#pragma once

#include <string_view>

#include "weightbus/runtime/agent_loop.h"
#include "weightbus/runtime/service.h"

namespace weightbus::runtime {

// Logs the error and returns kExitFatal: another start would end alike.
int end_for_good(std::string_view event, const base::Error& error);

// Runs the agent's loop until a signal or a fatal error, and returns the process's exit code. Everything is borrowed.
int run_agent(const Settings& settings, const model::Member& self, transport::Transport& transport,
              AgentMachine& machine, AgentWork& work, AgentFiles& files, observe::Metrics& metrics);

}  // namespace weightbus::runtime
