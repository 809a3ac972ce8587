// Small helpers of the state machines.
#pragma once

#include <optional>

#include "weightbus/base/assert.h"
#include "weightbus/protocol/agent_context.h"

namespace weightbus::protocol {

// A visitor made of lambdas.
template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

// Answers Aborted for `aborting` once nothing of that update is active any more, and clears it.
inline void answer_abort(AgentContext& context, std::optional<model::UpdateId>& aborting, bool active) {
  if (!aborting || active) return;
  context.answer(aborting, Aborted{});
  aborting.reset();
}

}  // namespace weightbus::protocol
