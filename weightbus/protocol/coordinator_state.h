// The coordinator's durable state: what replaying its journal gives.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "weightbus/protocol/journal.h"

namespace weightbus::protocol {

inline constexpr std::size_t kRecentUpdates = 32;
inline constexpr std::uint64_t kNumbersBlock = 64;  // how many numbers are written ahead at a time

struct VersionRecord {
  Decided decided;  // the push that made it
  std::map<std::string, plan::Digest> digests;
  std::set<std::uint64_t> updates;  // that were decided for it
  // (update that staged it, rank): halves that a decision named. A rank that left its update before the decision may
  // hold the tag too, but nobody has compared its digests.
  std::set<std::pair<std::uint64_t, model::MemberId>> proven;
  bool pinned = false;
};

struct ModelState {
  std::uint64_t versions_reserved = 0;  // numbers up to these may have been used
  std::uint64_t updates_reserved = 0;
  std::map<model::WeightVersion, VersionRecord> versions;
  std::optional<model::WeightVersion> committed;  // of the last decision
  std::optional<Decided> open;                    // decided, not ended
  std::deque<UpdateStatus> recent;                // newest first
  std::map<model::MemberId, model::BootId> evicted;
  std::uint64_t adopted_epoch = 0;  // members of another journal with older epochs were taken over
};

struct CoordinatorState {
  std::map<model::ModelName, ModelState> models;
  bool empty = true;  // no update was ever decided, nothing adopted

  // Applies one record; the same whether replayed or just appended.
  void apply(const JournalRecord& record);
};

}  // namespace weightbus::protocol
