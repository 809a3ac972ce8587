// The state machine of a shard agent: membership and the source role.
#pragma once

#include "weightbus/protocol/agent_link.h"
#include "weightbus/protocol/source_role.h"

namespace weightbus::protocol {

// step/done/tick from one thread; take_output() after each. Pure: time comes in, output is handed out.
class ShardAgentFsm {
 public:
  ShardAgentFsm(model::Member self, model::BootId boot, std::string software, AgentState state);

  void step(Now now, const Envelope& message);
  void done(Now now, const AgentEvent& event);
  void tick(Now now);
  void reconnected() { link_.reconnected(); }
  // Bytes of the running update that have been read or sent, for heartbeats.
  void progress(std::uint64_t bytes_done) { bytes_done_ = bytes_done; }

  AgentOutput take_output();
  Readiness readiness(Now now) const;
  const AgentState& state() const { return context_.state; }

 private:
  AgentContext context_;
  AgentLink link_{context_};
  SourceRole source_{context_};
  std::string software_;
  std::uint64_t bytes_done_ = 0;
  std::optional<model::UpdateId> aborting_;
};

}  // namespace weightbus::protocol
