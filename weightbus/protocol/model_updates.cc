// ModelFsm: pushes, rollbacks and catch-ups: when each may start, and what follows its end.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weightbus/protocol/dispatch.h"
#include "weightbus/protocol/model_fsm.h"

namespace weightbus::protocol {
namespace {

constexpr std::size_t kQueueMax = 16;
constexpr base::Duration kCatchUpRetryMin = base::Millis(500);
constexpr std::uint32_t kCatchUpBackoffMax = 6;  // doublings: half a minute

std::string source_text(const SourceSpec& source) {
  return std::visit(
      Overloaded{
          [](const CheckpointSource& s) { return "checkpoint " + s.directory; },
          [](const TrainerSource&) { return std::string("trainer"); },
          [](const LiveSource& s) { return fmt::format("live version {}", s.version.value()); },
          [](const SnapshotSource& s) { return fmt::format("snapshot of version {}", s.version.value()); },
      },
      source);
}

}  // namespace

// ---------------------------------------------------------------- numbers

void ModelFsm::reserve_numbers() {
  const std::uint64_t versions = std::max(asked_versions_, state_.versions_reserved);
  const std::uint64_t updates = std::max(asked_updates_, state_.updates_reserved);
  if (last_version_ + kNumbersBlock / 4 <= versions && last_update_ + kNumbersBlock / 4 <= updates) return;
  asked_versions_ = last_version_ + kNumbersBlock;
  asked_updates_ = last_update_ + kNumbersBlock;
  output_.persist.push_back(
      NumbersReserved{name_, model::WeightVersion{asked_versions_}, model::UpdateId{asked_updates_}});
}

void ModelFsm::adopted() {
  foreign_.clear();
  last_version_ = state_.versions_reserved;
  last_update_ = state_.updates_reserved;
  reserve_numbers();
}

base::Result<model::UpdateId> ModelFsm::next_update() {
  if (last_update_ >= state_.updates_reserved) {
    reserve_numbers();
    return base::fail(base::ErrorCode::kUnavailable,
                      "the journal could not be written, so no update can start; see the "
                      "coordinator's log, free disk space, and try again");
  }
  ++last_update_;
  reserve_numbers();
  return model::UpdateId{last_update_};
}

base::Result<model::WeightVersion> ModelFsm::next_version() {
  if (last_version_ >= state_.versions_reserved) {
    reserve_numbers();
    return base::fail(base::ErrorCode::kUnavailable,
                      "the journal could not be written, so no version can be made; see the "
                      "coordinator's log, free disk space, and try again");
  }
  return model::WeightVersion{++last_version_};
}

// ---------------------------------------------------------------- requests

void ModelFsm::publish(Now now, const Envelope& message, const PublishRequest& body) {
  if (!foreign_.empty() && members_.empty()) {
    return reply(message, ErrorReply{{base::ErrorCode::kConflict,
                                      "this journal is empty and the members obeyed another one; "
                                      "restore it, or run `weightbus adopt`"}});
  }
  const bool busy_with_user = run_ && run_->spec().kind != UpdateKind::kCatchUp;
  if ((busy_with_user || !queue_.empty()) && !body.queue) {
    const std::string what = run_ ? fmt::format("update {} ({} to version {}) is {}", run_->spec().id.value(),
                                                update_kind_name(run_->spec().kind), run_->spec().target.value(),
                                                phase_name(run_->status(now).phase))
                                  : "another update waits in the queue";
    return reply(message,
                 ErrorReply{{base::ErrorCode::kConflict, what + "; wait for it, abort it, or push with --queue"}});
  }
  if (queue_.size() >= kQueueMax) {
    return reply(message, ErrorReply{{base::ErrorCode::kResourceExhausted, "16 updates wait already"}});
  }
  if (!complete("")) return reply(message, ErrorReply{{base::ErrorCode::kUnavailable, missing("")}});
  const auto engines = engines_for_update();
  if (engines.empty()) {
    std::string why;
    for (const auto& [name, engine] : engines_)
      why += "; " + missing(name);
    return reply(message, ErrorReply{{base::ErrorCode::kUnavailable, "no engine can take part" + why}});
  }
  if (body.require > engines.size()) {
    return reply(message,
                 ErrorReply{{base::ErrorCode::kUnavailable,
                             fmt::format("{} engines are required, {} can take part", body.require, engines.size())}});
  }
  auto update = next_update();
  if (!update) return reply(message, ErrorReply{update.error()});
  auto version = next_version();
  if (!version) return reply(message, ErrorReply{version.error()});
  Queued request{message.from, message.request, UpdateKind::kPush, body, std::nullopt, *update, *version};
  reply(message, UpdateAccepted{*update, *version, run_ != nullptr});
  if (run_ || !queue_.empty()) {
    queue_.push_back(std::move(request));
  } else {
    begin(now, std::move(request));
  }
}

void ModelFsm::rollback(Now now, const Envelope& message, const RollbackRequest& body) {
  if (!state_.committed) return reply(message, ErrorReply{{base::ErrorCode::kNotFound, "no version is committed yet"}});
  auto to = body.to;
  if (!to) {
    const auto current = state_.versions.find(*state_.committed);
    if (current == state_.versions.begin()) {
      return reply(message, ErrorReply{{base::ErrorCode::kNotFound, "there is no version before the committed one"}});
    }
    to = std::prev(current)->first;
  }
  if (!state_.versions.contains(*to)) {
    return reply(message,
                 ErrorReply{{base::ErrorCode::kNotFound, fmt::format("version {} was never committed; see `weightbus "
                                                                     "versions`",
                                                                     to->value())}});
  }
  const bool running = run_ && run_->spec().kind != UpdateKind::kCatchUp;
  if (*to == *state_.committed && !running) {
    return reply(message,
                 ErrorReply{{base::ErrorCode::kConflict, fmt::format("version {} is the committed one", to->value())}});
  }
  const auto spec = restore_spec(UpdateKind::kRollback, model::UpdateId{0}, *to, {});
  if (!spec) return reply(message, ErrorReply{spec.error()});
  auto update = next_update();
  if (!update) return reply(message, ErrorReply{update.error()});
  Queued request{message.from, message.request, UpdateKind::kRollback, {}, to, *update, *to};
  reply(message, UpdateAccepted{*update, *to, run_ != nullptr});
  // What was asked for before and is not decided is off, as the running update is: going back means not to go on.
  const base::Error reason{base::ErrorCode::kAborted,
                           fmt::format("a rollback to version {} was asked for", to->value())};
  for (const auto& queued : std::exchange(queue_, {}))
    drop_queued(queued, reason);
  if (!run_) return begin(now, std::move(request));
  queue_.push_back(std::move(request));
  if (run_->can_abort()) {
    run_->abort(now, reason);
    end_run(now);
  }
}

void ModelFsm::drop_queued(const Queued& queued, const base::Error& reason) {
  UpdateStatus status{queued.id, queued.kind, Phase::kAborted, state_.committed, queued.target, now_.unix_ms};
  status.error = reason;
  event(fmt::format("update {} aborted before it began: {}", queued.id.value(), reason.message));
  output_.observe.push_back(UpdateFinished{name_, status});
  output_.persist.push_back(Ended{name_, std::move(status)});
}

// ---------------------------------------------------------------- beginning

std::vector<RunEngine> ModelFsm::engines_for_update() const {
  std::vector<RunEngine> engines;
  for (const auto& [name, state] : engines_) {
    if (auto ranks = complete(name)) engines.push_back(RunEngine{name, *ranks, !state.quarantined});
  }
  return engines;
}

void ModelFsm::begin(Now now, Queued request) {
  if (request.kind == UpdateKind::kPush) return begin_push(now, request);
  begin_rollback(now, request);
}

void ModelFsm::begin_push(Now now, const Queued& request) {
  UpdateSpec spec{request.id, UpdateKind::kPush, request.target, state_.committed};
  spec.engines = engines_for_update();
  spec.require = request.publish.require;
  spec.step = request.publish.step;
  spec.dry_run = request.publish.dry_run;
  spec.deadline = from_ms(request.publish.deadline_ms);
  spec.source_text = source_text(request.publish.source);
  const auto trainers = complete("");
  if (trainers) {
    for (const auto& id : *trainers)
      spec.sources.emplace_back(id, request.publish.source);
  }
  launch(now, std::move(spec));
  if (!trainers) run_->abort(now, {base::ErrorCode::kUnavailable, missing("")});
  const std::size_t engines = run_ ? run_->spec().engines.size() : 0;
  if (run_ && (engines == 0 || engines < request.publish.require)) {
    run_->abort(now, {base::ErrorCode::kUnavailable, fmt::format("{} engines can take part, {} are required", engines,
                                                                 std::max(1U, request.publish.require))});
  }
  end_run(now);
}

void ModelFsm::begin_rollback(Now now, const Queued& request) {
  auto spec = restore_spec(UpdateKind::kRollback, request.id, *request.to, {});
  if (spec) return launch(now, std::move(*spec));
  launch(now, UpdateSpec{request.id, UpdateKind::kRollback, *request.to, state_.committed});
  run_->abort(now, spec.error());
  end_run(now);
}

// An update to a version that was committed before: for the named engines, or for all.
base::Result<UpdateSpec> ModelFsm::restore_spec(UpdateKind kind, model::UpdateId id, model::WeightVersion target,
                                                const std::vector<std::string>& engines) const {
  UpdateSpec spec{id, kind, target, state_.committed};
  spec.record = std::make_shared<const VersionRecord>(state_.versions.at(target));
  bool transfer = false;
  for (auto& engine : engines_for_update()) {
    if (!engines.empty() && std::find(engines.begin(), engines.end(), engine.name) == engines.end()) continue;
    engine.required = engine.required || kind == UpdateKind::kCatchUp;
    for (const auto& rank : engine.ranks) {
      const MemberState& member = members_.at(rank);
      transfer = transfer || !(serves(member, target, 0) || serves(member, target, 1));
    }
    spec.engines.push_back(std::move(engine));
  }
  if (spec.engines.empty()) return base::fail(base::ErrorCode::kUnavailable, "no engine can take part");
  spec.source_text = "the shadow half";
  if (!transfer) return spec;
  spec.sources = holders(target);
  if (spec.sources.empty()) {
    return base::fail(base::ErrorCode::kNotFound,
                      "version {} is unavailable: no engine and no snapshot holds it any more; see "
                      "`weightbus versions`",
                      target.value());
  }
  spec.source_text = source_text(spec.sources.front().second);
  return spec;
}

void ModelFsm::launch(Now now, UpdateSpec spec) {
  WB_ASSERT(!run_, "one update at a time");
  returned_.clear();
  event(fmt::format("update {} began: {} to version {} from {}", spec.id.value(), update_kind_name(spec.kind),
                    spec.target.value(), spec.source_text));
  RunContext& context = *this;
  run_ = std::make_unique<UpdateRun>(context, std::move(spec), now);
  if (!run_->spec().engines.empty() && !(run_->spec().kind == UpdateKind::kPush && run_->spec().sources.empty())) {
    run_->start(now);
  }
}

// ---------------------------------------------------------------- catching up

void ModelFsm::catch_up(Now now) {
  if (!state_.committed) return;
  std::vector<std::string> behind;
  for (const auto& [name, engine] : engines_) {
    if (engine.quarantined && now.mono >= engine.retry_at && complete(name)) behind.push_back(name);
  }
  if (behind.empty()) return;
  auto target = *state_.committed;
  auto kind = UpdateKind::kCatchUp;
  auto spec = restore_spec(kind, model::UpdateId{0}, target, behind);
  if (spec) {
    unavailable_since_.reset();
  } else {
    for (const auto& name : behind)
      engines_[name].retry_at = now.mono + kCatchUpRetryMin;
    // Nobody here holds it. Whoever does may only be restarting.
    if (!unavailable_since_) unavailable_since_ = now.mono;
    if (now.mono - *unavailable_since_ < options_.unavailable_grace) return;
    const auto newest = newest_available();
    if (!newest || *newest == target) return;
    unavailable_since_.reset();
    event(fmt::format("version {} is unavailable: nobody holds it any more; going to version {}, the newest that is",
                      target.value(), newest->value()));
    target = *newest;
    kind = UpdateKind::kRollback;
    spec = restore_spec(kind, model::UpdateId{0}, target, {});
    if (!spec) return;
  }
  const auto update = next_update();
  if (!update) return;
  spec->id = *update;
  launch(now, std::move(*spec));
  end_run(now);
}

// ---------------------------------------------------------------- ending

void ModelFsm::end_run(Now now) {
  if (!run_ || !run_->ended()) return;
  const std::unique_ptr<UpdateRun> run = std::move(run_);
  UpdateStatus status = run->status(now);
  const auto committed = run->committed_engines();
  for (const auto& name : committed)
    note_exchanged(*run, name);
  for (const auto& [name, error] : run->failed_engines()) {
    if (state_.committed) quarantine(name, error.message);
  }
  if (run->decided()) unavailable_since_.reset();
  if (run->decided() && run->spec().kind != UpdateKind::kCatchUp) {
    for (const auto& [name, engine] : engines_) {
      if (std::find(committed.begin(), committed.end(), name) == committed.end())
        quarantine(name, "it took no part in the last update");
    }
  }
  lift_quarantines(now);  // of those that took part and are still there
  if (run->spec().kind == UpdateKind::kCatchUp && status.phase != Phase::kCommitted) {
    for (const auto& engine : run->spec().engines) {
      EngineState& state = engines_[engine.name];
      state.retry_at = now.mono + kCatchUpRetryMin * (1U << std::min(state.failures, kCatchUpBackoffMax));
      ++state.failures;
    }
  }
  event(fmt::format("update {} {}{}", status.update.value(), phase_name(status.phase),
                    status.error ? ": " + status.error->message : ""));
  output_.observe.push_back(UpdateFinished{name_, status});
  output_.persist.push_back(Ended{name_, std::move(status)});
}

// The committed ranks hold the new version live and the version before in the shadow; heartbeats will say the same.
void ModelFsm::note_exchanged(const UpdateRun& run, const std::string& engine) {
  for (const auto& [id, tag] : run.tags(engine)) {
    const auto it = members_.find(id);
    if (it == members_.end() || it->second.halves.size() != 2 || returned_.contains(id)) continue;
    if (it->second.halves[0].tag == tag) {
      it->second.halves[0].verified = true;
      continue;
    }
    it->second.halves[1] = it->second.halves[0];
    it->second.halves[0] = Half{tag, true};
  }
}

void ModelFsm::release_sources(Now now) {
  if ((releasing_.empty() && orphans_.empty()) || now.mono < release_resend_) return;
  release_resend_ = now.mono + options_.resend_interval;
  for (const auto& [id, update] : orphans_) {
    send(id, update,
         Abort{{base::ErrorCode::kAborted, "the coordinator was restarted before this update was decided"}});
  }
  for (const auto& [id, update] : releasing_)
    send(id, update, Release{});
}

}  // namespace weightbus::protocol
