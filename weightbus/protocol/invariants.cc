#include "weightbus/protocol/invariants.h"

#include <fmt/format.h>

#include <algorithm>

#include "weightbus/protocol/dispatch.h"

namespace weightbus::protocol {

Broken JournalChecker::add(const JournalRecord& record) {
  return std::visit(
      Overloaded{
          [&](const NumbersReserved& r) -> Broken {
            Numbers& numbers = models_[r.model];
            if (r.versions_to.value() < numbers.versions_to || r.updates_to.value() < numbers.updates_to) {
              return fmt::format("numbers are reserved twice: versions to {}, updates to {}", r.versions_to.value(),
                                 r.updates_to.value());
            }
            numbers.versions_to = r.versions_to.value();
            numbers.updates_to = r.updates_to.value();
            return std::nullopt;
          },
          [&](const Decided& r) -> Broken { return decided(models_[r.model], r); },
          [&](const Ended& r) -> Broken {
            Numbers& numbers = models_[r.model];
            if (!numbers.ended.insert(r.status.update.value()).second) {
              return fmt::format("update {} ends twice", r.status.update.value());
            }
            const bool was_decided = numbers.updates.contains(r.status.update.value());
            if (was_decided != (r.status.phase == Phase::kCommitted)) {
              return fmt::format("update {} ends as {}, against its decision", r.status.update.value(),
                                 phase_name(r.status.phase));
            }
            return std::nullopt;
          },
          [&](const Adopted& r) -> Broken {
            Numbers& numbers = models_[r.model];
            numbers.versions_to = std::max(numbers.versions_to, r.versions_to.value());
            numbers.updates_to = std::max(numbers.updates_to, r.updates_to.value());
            return std::nullopt;
          },
          [](const auto&) -> Broken { return std::nullopt; },
      },
      record);
}

Broken JournalChecker::decided(Numbers& numbers, const Decided& record) {
  const std::uint64_t update = record.update.value();
  if (update <= numbers.last_update)
    return fmt::format("update {} is decided after update {}", update, numbers.last_update);
  if (update > numbers.updates_to) return fmt::format("update {} was never reserved", update);
  if (record.base != numbers.committed)
    return fmt::format("update {} is based on another version than the committed one", update);
  if (record.kind == UpdateKind::kPush) {
    if (record.target.value() > numbers.versions_to)
      return fmt::format("version {} was never reserved", record.target.value());
    if (!numbers.versions.empty() && numbers.versions.rbegin()->first >= record.target) {
      return fmt::format("version {} is made after version {}", record.target.value(),
                         numbers.versions.rbegin()->first.value());
    }
  } else if (!numbers.versions.contains(record.target)) {
    return fmt::format("update {} goes to version {}, which was never committed", update, record.target.value());
  }
  auto& proven = numbers.versions[record.target];
  for (const auto& engine : record.engines) {
    for (const auto& rank : engine.ranks) {
      const bool known = rank.tag.update == record.update || proven.contains({rank.tag.update.value(), rank.rank});
      if (rank.tag.version != record.target || !known) {
        return fmt::format("update {} names a half of {} that does not hold version {}", update, rank.rank.value(),
                           record.target.value());
      }
    }
  }
  for (const auto& engine : record.engines) {
    for (const auto& rank : engine.ranks)
      proven.emplace(rank.tag.update.value(), rank.rank);
  }
  numbers.updates.insert(update);
  numbers.last_update = update;
  numbers.committed = record.target;
  return std::nullopt;
}

Broken check_agent_state(const AgentState& before, const AgentState& after) {
  if (before.known_epoch.journal == after.known_epoch.journal) {
    if (after.known_epoch.number < before.known_epoch.number) return "the epoch went back";
    if (after.pending_update < before.pending_update) return "an older Commit was taken up";
  }
  if (after.attempts < before.attempts) return "the attempts went back";
  if (!before.has_arena || !after.has_arena) return std::nullopt;
  if (after.live != before.live && !before.halves[after.live].tag) return "a half without a tag became live";
  const bool adopted = before.known_epoch.journal != after.known_epoch.journal;
  for (std::uint32_t half = 0; half < 2 && !adopted; ++half) {
    const auto& old_tag = before.halves[half].tag;
    const auto& new_tag = after.halves[half].tag;
    if (old_tag == new_tag) continue;
    if (half == before.live && old_tag) return "the tag of the live half was changed";
    if (old_tag && new_tag) return "a half was written before its tag was cleared";
  }
  return std::nullopt;
}

Broken check_decision(const Decided& record, const std::vector<std::string>& required, std::uint32_t require) {
  if (record.engines.empty() || record.engines.size() < require) {
    return fmt::format("update {} is decided for {} engines, {} are required", record.update.value(),
                       record.engines.size(), require);
  }
  for (const auto& name : required) {
    const bool found = std::any_of(record.engines.begin(), record.engines.end(),
                                   [&](const DecidedEngine& engine) { return engine.engine.value() == name; });
    if (!found)
      return fmt::format("update {} is decided without engine {}, which is required", record.update.value(), name);
  }
  return std::nullopt;
}

Broken check_step(const std::string& engine, const std::vector<std::optional<Tag>>& ranks) {
  for (const auto& tag : ranks) {
    if (!tag) return fmt::format("a rank of engine {} computes with a half that has no tag", engine);
    if (tag->version != ranks.front()->version) {
      return fmt::format("engine {} computes with version {} on one rank and {} on another", engine,
                         ranks.front()->version.value(), tag->version.value());
    }
  }
  return std::nullopt;
}

}  // namespace weightbus::protocol
