// What state machines report, into logs and metrics.
#pragma once

#include "weightbus/observe/metrics.h"
#include "weightbus/protocol/observation.h"
#include "weightbus/runtime/control_link.h"
#include "weightbus/transport/transport.h"

namespace weightbus::runtime {

void record(const protocol::Observation& observation, observe::Metrics& metrics);
// Frames that were dropped before any state machine saw them. One caller for each Metrics.
void record(const ControlLink::Counters& counters, const transport::Transport::Drops& drops, observe::Metrics& metrics);
// Gauges of the fleet, at the coordinator.
void record(const std::vector<protocol::ModelStatus>& fleet, observe::Metrics& metrics);

}  // namespace weightbus::runtime
