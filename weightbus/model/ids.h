// Identifiers. Ranks are always qualified (design: "Words"); numbers that only grow are 64 bits wide.
#pragma once

#include <cstdint>
#include <string>

#include "weightbus/base/hash.h"
#include "weightbus/base/tagged.h"

namespace weightbus::model {

using base::Hash128;

using TrainerRank = base::Tagged<struct TrainerRankTag, std::uint32_t>;
using TpRank = base::Tagged<struct TpRankTag, std::uint32_t>;
using GroupRank = base::Tagged<struct GroupRankTag, std::uint32_t>;

using WeightVersion = base::Tagged<struct WeightVersionTag, std::uint64_t>;  // only grows, never reused
using UpdateId = base::Tagged<struct UpdateIdTag, std::uint64_t>;            // one attempt; never reused

using ModelName = base::Tagged<struct ModelNameTag, std::string>;    // namespace of versions and members
using MemberId = base::Tagged<struct MemberIdTag, std::string>;      // one agent, the coordinator, or one command line
using EngineName = base::Tagged<struct EngineNameTag, std::string>;  // engine agents that share a step
using HostId = base::Tagged<struct HostIdTag, std::string>;          // equal where shared memory can be shared
using BootId = base::Tagged<struct BootIdTag, std::uint64_t>;        // one start of one process

// One incarnation of the coordinator on one journal.
struct Epoch {
  Hash128 journal;           // the journal's UUID
  std::uint64_t number = 0;  // grows with each start on that journal
  friend auto operator<=>(const Epoch&, const Epoch&) = default;
};

}  // namespace weightbus::model
