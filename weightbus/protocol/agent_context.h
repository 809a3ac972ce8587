// What the roles of one agent share: who it is, what it keeps, and the output being gathered.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "weightbus/protocol/agent_output.h"
#include "weightbus/protocol/time.h"

namespace weightbus::protocol {

// Not thread safe; lives as long as its agent's state machine.
struct AgentContext {
  model::Member self;
  model::BootId boot;
  AgentState state;
  AgentOutput out;

  void send(const model::MemberId& to, std::optional<model::UpdateId> update, Body body) {
    out.send.push_back(Envelope{state.known_epoch, self.model, update, self.id, to, 0, std::move(body)});
  }
  void answer(std::optional<model::UpdateId> update, Body body) { send(kCoordinator, update, std::move(body)); }
  void perform(AgentAction action) { out.perform.push_back(std::move(action)); }
  void save() { out.save = state; }
  void note(Level level, std::string text) { out.observe.push_back(Note{level, std::move(text)}); }
  void stale(std::string reason) { out.observe.push_back(StaleDropped{std::move(reason)}); }
};

}  // namespace weightbus::protocol
