// ModelFsm: which versions are kept, who holds which, and the report of it all.
#include <fmt/format.h>

#include <algorithm>

#include "weightbus/protocol/model_fsm.h"

namespace weightbus::protocol {

// The newest committed versions, the pinned ones, and those that an update names.
std::vector<model::WeightVersion> ModelFsm::kept_versions() const {
  std::set<model::WeightVersion> keep;
  std::uint32_t newest = 0;
  for (auto it = state_.versions.rbegin(); it != state_.versions.rend(); ++it) {
    if (newest++ < options_.retain_versions || it->second.pinned) keep.insert(it->first);
  }
  if (options_.retain_versions > 0 && state_.committed) keep.insert(*state_.committed);
  if (run_) keep.insert(run_->spec().target);
  for (const auto& queued : queue_)
    keep.insert(queued.target);
  return {keep.begin(), keep.end()};
}

void ModelFsm::retain_tick(Now now) {
  const auto keep = kept_versions();
  for (auto& [id, member] : members_) {
    if (!member.connected || member.info.role != model::Role::kEngineAgent) continue;
    if (member.retain_sent) {
      if (now.mono < member.retain_resend) continue;
      member.retain_resend = now.mono + options_.resend_interval * 5;
      send(id, std::nullopt, *member.retain_sent);
      continue;
    }
    Retain retain{keep, std::nullopt};
    const auto held = [&](model::WeightVersion version) {
      return std::any_of(member.held.begin(), member.held.end(),
                         [&](const HeldVersion& h) { return h.version == version; });
    };
    // Captured off the critical path, while no update runs: what is live, or what the next push left in the shadow.
    for (std::size_t half = 0; half < member.halves.size() && !run_ && !retain.capture; ++half) {
      const auto& tag = member.halves[half].tag;
      if (!tag || !serves(member, tag->version, half) || held(tag->version)) continue;
      if (options_.retain_versions > 0 && std::binary_search(keep.begin(), keep.end(), tag->version))
        retain.capture = tag->version;
    }
    const bool surplus = std::any_of(member.held.begin(), member.held.end(), [&](const HeldVersion& h) {
      return !std::binary_search(keep.begin(), keep.end(), h.version);
    });
    if (!retain.capture && !surplus) continue;
    if (now.mono < member.retain_resend) continue;  // after a failed capture, not at once again
    member.retain_sent = retain;
    member.retain_resend = now.mono + options_.resend_interval * 5;
    send(id, std::nullopt, retain);
  }
}

std::vector<std::pair<model::MemberId, SourceSpec>> ModelFsm::holders(model::WeightVersion version) const {
  std::vector<std::pair<model::MemberId, SourceSpec>> live;
  std::vector<std::pair<model::MemberId, SourceSpec>> snapshots;
  for (const auto& [name, engine] : engines_) {
    const auto ranks = complete(name);
    if (!ranks) continue;
    const auto all = [&](auto&& holds) { return std::all_of(ranks->begin(), ranks->end(), holds); };
    if (all([&](const model::MemberId& id) { return serves(members_.at(id), version, 0); })) {
      for (const auto& id : *ranks)
        live.emplace_back(id, LiveSource{version});
    }
    const auto in_snapshots = [&](const model::MemberId& id) {
      const auto& held = members_.at(id).held;
      const auto& retain = members_.at(id).retain_sent;  // it may be dropping the snapshot at this moment
      if (retain && std::find(retain->keep.begin(), retain->keep.end(), version) == retain->keep.end()) return false;
      return std::any_of(held.begin(), held.end(), [&](const HeldVersion& h) { return h.version == version; });
    };
    if (all(in_snapshots)) {
      for (const auto& id : *ranks)
        snapshots.emplace_back(id, SnapshotSource{version});
    }
  }
  return live.empty() ? snapshots : live;
}

std::optional<model::WeightVersion> ModelFsm::newest_available() const {
  for (auto it = state_.versions.rbegin(); it != state_.versions.rend(); ++it) {
    if (restore_spec(UpdateKind::kRollback, model::UpdateId{0}, it->first, {})) return it->first;
  }
  return std::nullopt;
}

ModelStatus ModelFsm::status(Now now) const {
  ModelStatus status{name_, epoch_, !foreign_.empty(), state_.committed};
  if (run_) status.running = run_->status(now);
  status.recent.assign(state_.recent.begin(), state_.recent.end());
  status.events.assign(events_.begin(), events_.end());
  for (const auto& [id, member] : members_) {
    MemberStatus row{member.info, member.connected};
    const auto engine = engines_.find(member.info.engine);
    row.quarantined =
        member.info.role == model::Role::kEngineAgent && engine != engines_.end() && engine->second.quarantined;
    row.heartbeat_age_ms = to_ms(now.mono - member.last_seen);
    row.readers = member.readers;
    if (!member.halves.empty()) row.live = member.halves[0].tag;
    if (member.halves.size() > 1) row.shadow = member.halves[1].tag;
    row.software = member.software;
    status.members.push_back(std::move(row));
  }
  for (auto it = state_.versions.rbegin(); it != state_.versions.rend(); ++it) {
    const auto& [version, record] = *it;
    VersionStatus row{version,
                      version == state_.committed,
                      false,
                      record.pinned,
                      record.decided.bytes,
                      record.decided.unix_ms,
                      record.decided.step,
                      record.decided.source};
    for (const auto& [id, member] : members_) {
      if (!member.connected) continue;
      if (serves(member, version, 0)) row.holders.push_back(id.value() + " live");
      if (serves(member, version, 1)) row.holders.push_back(id.value() + " shadow");
      for (const auto& held : member.held) {
        if (held.version == version) row.holders.push_back(id.value() + " snapshot");
      }
    }
    const auto spec = restore_spec(UpdateKind::kRollback, model::UpdateId{0}, version, {});
    row.available = spec.has_value();
    row.rollback_cost = row.committed ? "live" : !spec ? "unavailable" : spec->sources.empty() ? "instant" : "transfer";
    status.versions.push_back(std::move(row));
  }
  return status;
}

}  // namespace weightbus::protocol
