// The state machine of an engine agent: membership, sink role, source role (its live half and its snapshots), rank of
// an engine, and, on tp_rank 0, the driver.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "weightbus/protocol/agent_link.h"
#include "weightbus/protocol/driver_fsm.h"
#include "weightbus/protocol/rank_role.h"
#include "weightbus/protocol/sink_role.h"
#include "weightbus/protocol/source_role.h"

namespace weightbus::protocol {

// step/done/tick from one thread; take_output() after each. Pure: time comes in, output is handed out.
class EngineAgentFsm {
 public:
  // `manifest`: of the arena that state.has_arena says exists. `held`: snapshots found on disk.
  EngineAgentFsm(model::Member self, model::BootId boot, std::string software, AgentState state,
                 std::optional<model::SinkManifest> manifest, std::vector<HeldVersion> held);

  // Call once, first.
  void start(Now now);
  void step(Now now, const Envelope& message);
  void done(Now now, const AgentEvent& event);
  void tick(Now now);
  void reconnected() { link_.reconnected(); }
  void progress(std::uint64_t bytes_done, std::uint64_t readers) { bytes_done_ = bytes_done, readers_ = readers; }

  // Messages to this agent itself are delivered inside; none of them is in the output.
  AgentOutput take_output();

  // Ready: a whole version is live, the coordinator has lifted the quarantine and is not silent for too long.
  Readiness readiness(Now now) const;
  std::vector<Half> halves() const { return sink_.halves(); }
  // The same as the coordinator is told: while the rank is paused its live half does not count as verified, since the
  // exchange may not have been made yet.
  std::vector<Half> reported_halves() const;
  bool quarantined() const { return link_.quarantined(); }
  const std::vector<model::Member>& engine() const { return link_.engine(); }
  const AgentState& state() const { return context_.state; }

 private:
  void from_coordinator(Now now, const Envelope& message);
  void from_rank(Now now, const Envelope& message);
  bool is_rank_of_engine(const model::MemberId& member) const;
  bool is_driver(const model::MemberId& member) const;
  void deliver_to_self(Now now);
  void retain(const Retain& request);
  void digest_live();
  void settle();

  AgentContext context_;
  AgentLink link_{context_};
  SourceRole source_{context_};
  SinkRole sink_;
  RankRole rank_;
  DriverFsm driver_{context_};
  std::string software_;
  std::vector<HeldVersion> held_;
  std::uint64_t bytes_done_ = 0;
  std::uint64_t readers_ = 0;
  std::optional<model::UpdateId> aborting_;
  // Retention: one at a time, the newest request last.
  std::optional<Retain> retaining_;
  std::optional<Retain> retain_next_;
  std::optional<std::uint32_t> retain_lease_;
  // A running digest of the live half: which half, and what it held.
  std::optional<std::uint32_t> digest_lease_;
  std::optional<Tag> digest_tag_;
};

}  // namespace weightbus::protocol
