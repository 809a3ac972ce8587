// What must hold whatever happens (design section 2, "Invariants"), as checks of values. Pure and cheap: the simulator
// runs them at every step, and the services assert them where they append to the journal, save an agent's state and
// replay.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "weightbus/protocol/agent_output.h"
#include "weightbus/protocol/journal.h"

namespace weightbus::protocol {

// Each check returns what is wrong, or nothing.
using Broken = std::optional<std::string>;

// Fed with a journal's records in order, from the first. Not thread safe.
//  - one decision for each update id; update ids of decisions and new versions only grow
//  - numbers are used only after they were reserved
//  - a rollback or catch-up goes to a version that was decided before; `base` is what was committed before
//  - every half that a decision names holds its target, staged by this update, or named by an earlier decision
class JournalChecker {
 public:
  Broken add(const JournalRecord& record);

 private:
  struct Numbers {
    std::uint64_t versions_to = 0;
    std::uint64_t updates_to = 0;
    std::uint64_t last_update = 0;  // decided
    std::optional<model::WeightVersion> committed;
    std::map<model::WeightVersion, std::set<std::pair<std::uint64_t, model::MemberId>>>
        versions;                     // what decisions named
    std::set<std::uint64_t> updates;  // decided
    std::set<std::uint64_t> ended;
  };
  static Broken decided(Numbers& numbers, const Decided& record);
  std::map<model::ModelName, Numbers> models_;
};

// Between two saves of one agent's state:
//  - epochs of one journal, attempts and the update of the pending Commit only grow
//  - the live half's tag is not touched while it is live; a half becomes live only with a tag
//  - a half goes from one tag to another only through having none
Broken check_agent_state(const AgentState& before, const AgentState& after);

// What a decision rests on: every required engine's every rank has staged and verified the half that is named.
// `required`: engines that must be in the decision; empty when `require` counts them.
Broken check_decision(const Decided& record, const std::vector<std::string>& required, std::uint32_t require);

// The versions that the ranks of one engine compute with in one step.
Broken check_step(const std::string& engine, const std::vector<std::optional<Tag>>& ranks);

}  // namespace weightbus::protocol
