// ModelFsm: who is there, and which engines are quarantined.
#include <fmt/format.h>

#include <algorithm>

#include "weightbus/protocol/model_fsm.h"

namespace weightbus::protocol {

std::optional<base::Error> ModelFsm::refuse(const model::MemberId& from, const Hello& body) const {
  if (body.member.id != from || body.member.model != name_) {
    return base::Error{base::ErrorCode::kPermissionDenied, "this Hello speaks for another member"};
  }
  if (body.protocol_revision != kProtocolRevision) {
    return base::Error{base::ErrorCode::kUnsupported,
                       fmt::format("protocol revision {} here, {} at {}: install the same version of Weightbus",
                                   kProtocolRevision, body.protocol_revision, body.member.id.value())};
  }
  if (body.member.world == 0 || body.member.rank >= body.member.world || body.member.world > 65'536) {
    return base::Error{base::ErrorCode::kInvalidArgument,
                       fmt::format("rank {} of {} does not exist", body.member.rank, body.member.world)};
  }
  if (const auto it = state_.evicted.find(body.member.id); it != state_.evicted.end() && it->second == body.boot) {
    return base::Error{base::ErrorCode::kPermissionDenied, "evicted; start the agent anew to come back"};
  }
  for (const auto& [id, other] : members_) {
    const bool same_place = other.connected && id != body.member.id && other.info.role == body.member.role &&
                            other.info.engine == body.member.engine && other.info.rank == body.member.rank;
    if (same_place) {
      return base::Error{base::ErrorCode::kConflict,
                         fmt::format("{} already is rank {} of {}", id.value(), body.member.rank,
                                     body.member.engine.empty() ? "the trainer" : body.member.engine)};
    }
  }
  return std::nullopt;
}

void ModelFsm::hello(Now now, const Envelope& message, const Hello& body) {
  const model::MemberId& id = message.from;
  if (const auto error = refuse(id, body)) return send(id, std::nullopt, Rejected{*error});
  const bool adopted =
      body.known_epoch.number < state_.adopted_epoch && body.highest_version <= state_.versions_reserved;
  const bool foreign =
      body.known_epoch.journal != base::Hash128{} && body.known_epoch.journal != epoch_.journal && !adopted;
  if (foreign) {
    if (!foreign_.contains(id)) event(fmt::format("{} belongs to another journal: adopt to take it over", id.value()));
    std::uint64_t updates = body.running ? body.running->value() : 0;
    for (const auto& half : body.halves)
      updates = std::max(updates, half.tag ? half.tag->update.value() : 0);
    foreign_.insert_or_assign(id, Foreign{body.highest_version, updates, body.known_epoch.number});
    return send(id, std::nullopt,
                Rejected{{base::ErrorCode::kConflict,
                          "this coordinator has another journal than the one this agent obeyed; "
                          "check its journal path, or run `weightbus adopt`"}});
  }
  MemberState& member = members_.try_emplace(id, MemberState{RunMember{body.member}}).first->second;
  const bool returned = member.connected && member.boot != body.boot;
  const bool is_new = !member.connected || returned;
  if (returned) lost(now, id, "its process was restarted");
  member.info = body.member;
  member.boot = body.boot;
  member.software = body.software;
  member.last_seen = now.mono;
  member.connected = true;
  member.halves = body.halves;
  member.held = body.held;
  if (is_new) member.retain_sent.reset();
  if (body.sink) {
    member.sink = std::make_shared<const model::SinkManifest>(*body.sink);
    member.layout = model::layout_hash(*body.sink);
  } else {
    member.sink.reset();
    member.layout = {};
  }
  if (is_new) {
    returned_.insert(id);
    event(fmt::format("{} joined ({})", id.value(), body.software));
    if (body.member.role == model::Role::kEngineAgent && state_.committed) quarantine(body.member.engine, "joined");
  }
  welcome(id);
  if (body.running) end_orphan(id, *body.running);
}

bool ModelFsm::was_decided(model::UpdateId update) const {
  return std::any_of(state_.versions.begin(), state_.versions.end(),
                     [&](const auto& version) { return version.second.updates.contains(update.value()); });
}

// A member is in an update that is not the running one: it was given up by a restart of ours, or decided.
void ModelFsm::end_orphan(const model::MemberId& id, model::UpdateId update) {
  if (was_decided(update)) {
    releasing_.insert_or_assign(id, update);
  } else if (!run_ || run_->spec().id != update) {
    orphans_.insert_or_assign(id, update);
  }
  release_resend_ = {};
}

void ModelFsm::welcome(const model::MemberId& id) {
  const MemberState& member = members_.at(id);
  Welcome welcome{to_ms(options_.heartbeat_interval), to_ms(options_.serve_stale), false, {}};
  if (member.info.role == model::Role::kEngineAgent) {
    welcome.quarantined = engines_[member.info.engine].quarantined;
    for (const auto& [other, state] : members_) {
      // Also those that are silent here: its driver may hear them.
      if (state.info.role == model::Role::kEngineAgent && state.info.engine == member.info.engine) {
        welcome.engine.push_back(state.info);
      }
    }
  }
  send(id, std::nullopt, std::move(welcome));
}

void ModelFsm::heartbeat(Now, const Envelope& message, const Heartbeat& body) {
  MemberState& member = members_.at(message.from);
  if (member.boot != body.boot)
    return send(message.from, std::nullopt, Rejected{{base::ErrorCode::kStale, "say Hello"}});
  member.bytes_done = body.bytes_done;
  member.readers = body.readers;
  if (member.info.role == model::Role::kEngineAgent) member.halves = body.halves;
  welcome(message.from);
}

void ModelFsm::lost(Now now, const model::MemberId& id, const std::string& why) {
  MemberState& member = members_.at(id);
  member.connected = false;
  member.retain_sent.reset();
  releasing_.erase(id);
  orphans_.erase(id);
  event(fmt::format("{} was lost: {}", id.value(), why));
  if (member.info.role == model::Role::kEngineAgent && state_.committed) {
    quarantine(member.info.engine, fmt::format("{} was lost: {}", id.value(), why));
  }
  if (run_) {
    run_->member_lost(now, id, {base::ErrorCode::kUnavailable, "lost: " + why});
    end_run(now);
  }
}

void ModelFsm::quarantine(const std::string& engine, std::string why) {
  EngineState& state = engines_[engine];
  state.why = std::move(why);
  if (state.quarantined) return;
  state.quarantined = true;
  event(fmt::format("engine {} is quarantined: {}", engine, state.why));
  for (const auto& [id, member] : members_) {
    if (member.connected && member.info.engine == engine) send(id, std::nullopt, SetQuarantine{true});
  }
}

// Whether the half (0: live, 1: shadow) of a rank holds a version, and a decision named that half.
bool ModelFsm::serves(const MemberState& member, model::WeightVersion version, std::size_t half) const {
  if (half >= member.halves.size() || !member.halves[half].tag) return false;
  const Tag& tag = *member.halves[half].tag;
  const auto record = state_.versions.find(version);
  return tag.version == version && tag.layout == member.layout && record != state_.versions.end() &&
         record->second.proven.contains({tag.update.value(), member.info.id});
}

void ModelFsm::lift_quarantines(Now) {
  if (run_ || !state_.committed) return;
  for (auto& [name, engine] : engines_) {
    const auto ranks = complete(name);
    if (!engine.quarantined || !ranks) continue;
    const bool current = std::all_of(ranks->begin(), ranks->end(), [&](const model::MemberId& id) {
      const MemberState& member = members_.at(id);
      return serves(member, *state_.committed, 0) && member.halves[0].verified;  // not while it is paused
    });
    if (!current) continue;
    engine = EngineState{};
    event(fmt::format("engine {} serves version {}: quarantine lifted", name, state_.committed->value()));
    for (const auto& id : *ranks)
      send(id, std::nullopt, SetQuarantine{false});
  }
}

std::optional<std::vector<model::MemberId>> ModelFsm::complete(const std::string& engine) const {
  std::vector<std::pair<std::uint32_t, model::MemberId>> ranks;
  std::uint32_t world = 0;
  const model::Role role = engine.empty() ? model::Role::kShardAgent : model::Role::kEngineAgent;
  for (const auto& [id, member] : members_) {
    if (!member.connected || member.info.role != role || member.info.engine != engine) continue;
    if (world != 0 && member.info.world != world) return std::nullopt;
    world = member.info.world;
    ranks.emplace_back(member.info.rank, id);
  }
  if (world == 0 || ranks.size() != world) return std::nullopt;
  std::sort(ranks.begin(), ranks.end());
  std::vector<model::MemberId> ids;
  for (auto& [rank, id] : ranks)
    ids.push_back(std::move(id));
  return ids;
}

std::string ModelFsm::missing(const std::string& engine) const {
  const std::string what = engine.empty() ? "shard agents" : "engine " + engine;
  const model::Role role = engine.empty() ? model::Role::kShardAgent : model::Role::kEngineAgent;
  std::uint32_t world = 0;
  std::set<std::uint32_t> here;
  for (const auto& [id, member] : members_) {
    if (!member.connected || member.info.role != role || member.info.engine != engine) continue;
    if (world != 0 && world != member.info.world) return what + ": its ranks disagree on how many they are";
    world = member.info.world;
    here.insert(member.info.rank);
  }
  if (world == 0) return what + ": none is connected";
  std::string text;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    if (!here.contains(rank)) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  }
  return fmt::format("{}: rank {} of {} is missing", what, text, world);
}

}  // namespace weightbus::protocol
