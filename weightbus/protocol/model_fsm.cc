#include "weightbus/protocol/model_fsm.h"

#include <fmt/format.h>

#include <algorithm>

#include "weightbus/protocol/dispatch.h"

namespace weightbus::protocol {
namespace {
constexpr std::size_t kEventsKept = 64;
constexpr std::size_t kPlansKept = 4;  // push, rollback and catch-up each repeat their own
}  // namespace

ModelFsm::ModelFsm(model::ModelName name, const CoordinatorOptions& options, ModelState& state,
                   CoordinatorOutput& output)
    : name_(std::move(name)),
      options_(options),
      state_(state),
      output_(output),
      last_version_(state.versions_reserved),
      last_update_(state.updates_reserved) {}

void ModelFsm::start(Now now, const model::Epoch& epoch) {
  now_ = now;
  epoch_ = epoch;
  reserve_numbers();
  if (state_.open) {
    event(fmt::format("update {} was decided before the restart: completing it", state_.open->update.value()));
    run_ = UpdateRun::recover(*this, *state_.open, now);
  }
}

void ModelFsm::step(Now now, const Envelope& message) {
  now_ = now;
  if (const auto* body = std::get_if<Hello>(&message.body)) return hello(now, message, *body);
  if (message.from != kCoordinator && message.request != 0) return admin(now, message);
  const auto it = members_.find(message.from);
  if (it == members_.end() || !it->second.connected) {
    // Also after our own restart: the member is to introduce itself.
    return send(message.from, std::nullopt, Rejected{{base::ErrorCode::kStale, "unknown here; say Hello"}});
  }
  if (message.epoch != epoch_) {
    output_.observe.push_back(
        StaleDropped{fmt::format("{} of epoch {}", body_name(message.body), message.epoch.number)});
    if (std::holds_alternative<Heartbeat>(message.body)) {
      send(message.from, std::nullopt, Rejected{{base::ErrorCode::kStale, "another epoch began; say Hello"}});
    }
    return;
  }
  it->second.last_seen = now.mono;
  if (const auto* body = std::get_if<Heartbeat>(&message.body)) return heartbeat(now, message, *body);
  if (const auto* body = std::get_if<Retained>(&message.body)) {
    it->second.held = body->held;
    it->second.retain_sent.reset();
    if (!body->error) it->second.retain_resend = {};
    if (body->error) event(fmt::format("{}: snapshot failed: {}", message.from.value(), body->error->message));
    return;
  }
  if (const auto* body = std::get_if<LiveDigests>(&message.body)) {
    for (auto& verify : verifies_) {
      if (auto answer = verify.answers.find(message.from); answer != verify.answers.end()) answer->second = *body;
    }
    return verify_tick(now);
  }
  if (const auto orphan = orphans_.find(message.from);
      orphan != orphans_.end() && orphan->second == message.update && std::holds_alternative<Aborted>(message.body)) {
    orphans_.erase(orphan);
    return;
  }
  if (std::holds_alternative<Released>(message.body)) {
    const auto released = releasing_.find(message.from);
    if (released != releasing_.end() && released->second == message.update) releasing_.erase(released);
    return;
  }
  if (run_ && message.update == run_->spec().id) {
    run_->answer(now, message);
    return end_run(now);
  }
  output_.observe.push_back(StaleDropped{fmt::format("{} of another update", body_name(message.body))});
}

void ModelFsm::tick(Now now) {
  now_ = now;
  std::vector<model::MemberId> silent;
  for (const auto& [id, member] : members_) {
    if (member.connected && now.mono - member.last_seen > options_.member_timeout) silent.push_back(id);
  }
  for (const auto& id : silent)
    lost(now, id, "silent for longer than its timeout");
  if (run_) {
    run_->tick(now);
    end_run(now);
  }
  if (!run_ && !queue_.empty()) {
    Queued next = std::move(queue_.front());
    queue_.pop_front();
    begin(now, std::move(next));
  }
  lift_quarantines(now);
  if (!run_ && queue_.empty()) catch_up(now);
  release_sources(now);
  retain_tick(now);
  verify_tick(now);
}

void ModelFsm::planned(Now now, model::UpdateId update, base::Result<std::shared_ptr<const PlanBundle>> result) {
  now_ = now;
  if (!run_ || run_->spec().id != update) return;
  run_->planned(now, std::move(result));
  end_run(now);
}

void ModelFsm::persisted(Now now, const JournalRecord& record, const base::Status& status) {
  now_ = now;
  if (const auto* decided = std::get_if<Decided>(&record); decided && run_ && run_->spec().id == decided->update) {
    run_->persisted(now, status);
    if (status) {
      for (const auto& [id, spec] : run_->spec().sources)
        releasing_.insert_or_assign(id, run_->spec().id);
      release_resend_ = {};
      release_sources(now);
      event(fmt::format("version {} decided by update {}", decided->target.value(), decided->update.value()));
    }
    end_run(now);
    return;
  }
  if (std::holds_alternative<Pinned>(record) || std::holds_alternative<Evicted>(record)) {
    WB_ASSERT(!unpersisted_.empty(), "every pin and eviction waits for its record");
    reply(unpersisted_.front(), status ? Body{Done{}} : Body{ErrorReply{status.error()}});
    unpersisted_.pop_front();
  }
  if (!status) {
    event("journal: " + status.error().message);
    asked_versions_ = state_.versions_reserved;  // ask again when the next number is needed
    asked_updates_ = state_.updates_reserved;
  }
}

// ---------------------------------------------------------------- RunContext

const RunMember* ModelFsm::member(const model::MemberId& id) const {
  const auto it = members_.find(id);
  return it == members_.end() || !it->second.connected ? nullptr : &it->second;
}

void ModelFsm::sink_opened(const model::MemberId& id, const SinkOpened& answer) {
  MemberState& member = members_.at(id);
  const auto layout = model::layout_hash(answer.manifest);
  if (!member.sink || member.layout != layout)
    member.sink = std::make_shared<const model::SinkManifest>(answer.manifest);
  member.layout = layout;
  member.halves = answer.halves;
}

void ModelFsm::send(const model::MemberId& to, std::optional<model::UpdateId> update, Body body) {
  output_.send.push_back(Envelope{epoch_, name_, update, kCoordinator, to, 0, std::move(body)});
}

void ModelFsm::event(std::string text) {
  output_.observe.push_back(Note{Level::kInfo, fmt::format("{}: {}", name_.value(), text)});
  events_.push_back(Event{++event_sequence_, now_.unix_ms, std::move(text)});
  if (events_.size() > kEventsKept) events_.pop_front();
}

std::shared_ptr<const PlanBundle> ModelFsm::cached_plan(const base::Hash128& key) const {
  for (const auto& [known, plan] : plans_) {
    if (known == key) return plan;
  }
  return nullptr;
}

void ModelFsm::cache_plan(const base::Hash128& key, std::shared_ptr<const PlanBundle> plan) {
  if (plans_.size() >= kPlansKept) plans_.erase(plans_.begin());
  plans_.emplace_back(key, std::move(plan));
}

}  // namespace weightbus::protocol
