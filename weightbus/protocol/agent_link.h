// An agent's membership: Hello, Welcome, epochs, heartbeats, and when it may report ready.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weightbus/protocol/agent_context.h"

namespace weightbus::protocol {

struct Readiness {
  bool ready;
  std::string reason;  // why not; empty when ready
};

class AgentLink {
 public:
  explicit AgentLink(AgentContext& context) : context_(context) {}

  // Whether a coordinator's message may be obeyed: not of an older epoch, and (Welcome apart) of the epoch that
  // welcomed this agent. Handles Welcome, Rejected and SetQuarantine itself and returns false for them.
  bool admit(Now now, const Envelope& message);
  // True when it is time to send Hello; the owner fills and sends it.
  bool hello_due(Now now);
  bool heartbeat_due(Now now);
  // The connection was made anew: say Hello again.
  void reconnected() { welcomed_ = false, next_hello_ = {}; }

  // True once after a coordinator of another journal took this agent over (adopt).
  bool take_new_journal() { return std::exchange(new_journal_, false); }

  bool welcomed() const { return welcomed_; }
  bool quarantined() const { return quarantined_; }
  // Every rank of this agent's engine that the coordinator knows, this one included.
  const std::vector<model::Member>& engine() const { return engine_; }
  // Whether the last word of the coordinator is recent enough to serve by.
  bool fresh(Now now) const;

 private:
  void welcome(Now now, const Envelope& message, const Welcome& body);
  void rejected(Now now, const Envelope& message, const Rejected& body);
  void change_journal();

  AgentContext& context_;
  bool welcomed_ = false;
  bool new_journal_ = false;
  bool quarantined_ = true;  // until a coordinator says otherwise
  std::vector<model::Member> engine_;
  base::Duration heartbeat_interval_ = base::Millis(500);
  base::Duration serve_stale_{};  // zero: no bound
  base::Instant next_hello_{};
  base::Instant next_heartbeat_{};
  base::Instant last_heard_{};
};

}  // namespace weightbus::protocol
