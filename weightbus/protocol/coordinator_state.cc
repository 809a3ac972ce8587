#include "weightbus/protocol/coordinator_state.h"

#include <algorithm>

#include "weightbus/protocol/dispatch.h"

namespace weightbus::protocol {
namespace {

void apply_decided(ModelState& model, const Decided& record) {
  model.committed = record.target;
  model.open = record;
  // A target without a push of ours is a version of an adopted fleet.
  const auto entry = model.versions.try_emplace(record.target, VersionRecord{record, {}, {}, {}, false}).first;
  if (record.kind == UpdateKind::kPush) entry->second.digests = {record.digests.begin(), record.digests.end()};
  entry->second.updates.insert(record.update.value());
  for (const auto& engine : record.engines) {
    for (const auto& rank : engine.ranks)
      entry->second.proven.emplace(rank.tag.update.value(), rank.rank);
  }
}

}  // namespace

void CoordinatorState::apply(const JournalRecord& record) {
  std::visit(Overloaded{
                 [&](const NumbersReserved& r) {
                   ModelState& model = models[r.model];
                   model.versions_reserved = std::max(model.versions_reserved, r.versions_to.value());
                   model.updates_reserved = std::max(model.updates_reserved, r.updates_to.value());
                 },
                 [&](const Decided& r) {
                   empty = false;
                   apply_decided(models[r.model], r);
                 },
                 [&](const Ended& r) {
                   ModelState& model = models[r.model];
                   if (model.open && model.open->update == r.status.update) model.open.reset();
                   model.recent.push_front(r.status);
                   if (model.recent.size() > kRecentUpdates) model.recent.pop_back();
                 },
                 [&](const Pinned& r) {
                   auto& versions = models[r.model].versions;
                   if (auto it = versions.find(r.version); it != versions.end()) it->second.pinned = r.pinned;
                 },
                 [&](const Adopted& r) {
                   empty = false;
                   ModelState& model = models[r.model];
                   model.versions_reserved = std::max(model.versions_reserved, r.versions_to.value());
                   model.updates_reserved = std::max(model.updates_reserved, r.updates_to.value());
                   model.adopted_epoch = std::max(model.adopted_epoch, r.epoch);
                 },
                 [&](const Evicted& r) { models[r.model].evicted.insert_or_assign(r.member, r.boot); },
             },
             record);
}

}  // namespace weightbus::protocol
