#include "weightbus/protocol/update_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "weightbus/protocol/dispatch.h"

namespace weightbus::protocol {

UpdateRun::UpdateRun(RunContext& context, UpdateSpec spec, Now now)
    : context_(context), spec_(std::move(spec)), phase_began_(now.mono), started_unix_ms_(now.unix_ms), now_(now.mono) {
  deadline_ =
      now.mono + (spec_.deadline > base::Duration::zero() ? spec_.deadline : context_.options().update_deadline);
  for (const auto& [id, source] : spec_.sources)
    sources_.push_back(Source{id, source});
  for (const auto& engine : spec_.engines) {
    Engine run{engine};
    for (const auto& rank : engine.ranks) {
      run.sinks.push_back(sinks_.size());
      sinks_.push_back(Sink{rank, engines_.size()});
    }
    engines_.push_back(std::move(run));
  }
}

std::unique_ptr<UpdateRun> UpdateRun::recover(RunContext& context, const Decided& decided, Now now) {
  UpdateSpec spec{decided.update, decided.kind, decided.target, decided.base};
  spec.step = decided.step;
  spec.source_text = decided.source;
  for (const auto& engine : decided.engines) {
    RunEngine run{engine.engine.value()};
    for (const auto& rank : engine.ranks)
      run.ranks.push_back(rank.rank);
    spec.engines.push_back(std::move(run));
  }
  auto run = std::make_unique<UpdateRun>(context, std::move(spec), now);
  for (std::size_t e = 0; e < decided.engines.size(); ++e) {
    for (std::size_t r = 0; r < decided.engines[e].ranks.size(); ++r) {
      run->sinks_[run->engines_[e].sinks[r]].tag = decided.engines[e].ranks[r].tag;
    }
  }
  run->decided_ = true;
  run->decision_ = decided;
  run->enter(now, Step::kCommit);
  return run;
}

// ---------------------------------------------------------------- steps

void UpdateRun::start(Now now) {
  now_ = now.mono;
  choose_modes();
  enter(now, any_transfer() ? Step::kOpenSources : Step::kOpenSinks);
}

bool UpdateRun::any_transfer() const {
  return std::any_of(sinks_.begin(), sinks_.end(), [&](const Sink& sink) { return transfers(sink); });
}

// The sinks have said what their halves hold *now*; what was known before may be older than their last stage.
void UpdateRun::after_opening(Now now) {
  choose_modes();
  if (!any_transfer()) return enter(now, Step::kDecide);
  if (!sources_.empty()) return enter(now, Step::kPlan);
  abort(now, {base::ErrorCode::kUnavailable,
              fmt::format("not every rank holds version {} any more; ask again", spec_.target.value())});
}

// Which engines need bytes: where every rank has a half that holds the target already, it is exchanged in, or is live.
// An engine of which one rank needs bytes is staged whole, since only whole tensors have a digest to be compared with
// the version's.
void UpdateRun::choose_modes() {
  if (spec_.kind == UpdateKind::kPush || !spec_.record) return;
  for (auto& sink : sinks_) {
    const RunMember* member = context_.member(sink.id);
    sink.mode = Mode::kTransfer;
    sink.tag.reset();
    if (!member) continue;
    for (std::size_t half = 0; half < member->halves.size(); ++half) {
      const auto& tag = member->halves[half].tag;
      if (!tag || tag->version != spec_.target || tag->layout != member->layout) continue;
      if (!spec_.record->proven.contains({tag->update.value(), sink.id})) continue;
      sink.mode = half == 0 ? Mode::kLive : Mode::kInstant;
      sink.tag = tag;
      break;
    }
  }
  // The recorded digests are of whole tensors, which only all ranks of an engine cover together.
  for (const auto& engine : engines_) {
    const bool whole = std::all_of(engine.sinks.begin(), engine.sinks.end(),
                                   [&](std::size_t sink) { return sinks_[sink].tag.has_value(); });
    if (whole) continue;
    for (auto sink : engine.sinks) {
      sinks_[sink].mode = Mode::kTransfer;
      sinks_[sink].tag.reset();
    }
  }
}

void UpdateRun::enter(Now now, Step step) {
  step_ = step;
  waiting_.clear();
  next_resend_ = now.mono + context_.options().resend_interval;
  switch (step) {
    case Step::kOpenSources:
      set_phase(now, Phase::kAnnounced);
      wait_for_sources();
      break;
    case Step::kOpenSinks:
      // Also those that hold the target: none is decided on by what an old heartbeat said.
      for (const auto& sink : sinks_) {
        if (!engines_[sink.engine].dropped) waiting_.emplace(sink.id, SessionRole::kSink);
      }
      break;
    case Step::kPlan: set_phase(now, Phase::kPlanned); return make_plan(now);
    case Step::kPrepare:
      set_phase(now, Phase::kAccepted);
      wait_for_sources();
      wait_for_sinks();
      break;
    case Step::kStage:
      set_phase(now, Phase::kStaging);
      wait_for_sources();
      wait_for_sinks();
      break;
    case Step::kDecide: set_phase(now, Phase::kStaged); return decide(now);
    case Step::kCommit:
      set_phase(now, Phase::kCommitting);
      step_deadline_ = now.mono + context_.options().commit_deadline;
      for (const auto& engine : engines_) {
        if (!engine.dropped) waiting_.emplace(engine.spec.ranks.front(), SessionRole::kSink);
      }
      break;
    case Step::kAbort:
      set_phase(now, Phase::kAborting);
      step_deadline_ = now.mono + context_.options().abort_deadline;
      for (const auto& source : sources_)
        waiting_.emplace(source.id, SessionRole::kSource);
      for (const auto& sink : sinks_) {
        // One Abort a member: one that has both roles answers for both.
        if (sink.mode == Mode::kTransfer && !find_source(sink.id)) waiting_.emplace(sink.id, SessionRole::kSink);
      }
      std::erase_if(waiting_, [&](const auto& entry) { return context_.member(entry.first) == nullptr; });
      break;
    case Step::kEnded: return;
  }
  for (const auto& [member, role] : Waiting(waiting_))
    request(member, role);
  if (waiting_.empty()) advance(now);
}

void UpdateRun::wait_for_sources() {
  for (const auto& source : sources_)
    waiting_.emplace(source.id, SessionRole::kSource);
}

void UpdateRun::wait_for_sinks() {
  for (const auto& sink : sinks_) {
    if (transfers(sink)) waiting_.emplace(sink.id, SessionRole::kSink);
  }
}

void UpdateRun::advance(Now now) {
  switch (step_) {
    case Step::kOpenSources: return enter(now, Step::kOpenSinks);
    case Step::kOpenSinks: return after_opening(now);
    case Step::kPrepare:
      report_channels();
      // A dry run ends here: every member has reserved its memory and mapped its sources, and nothing was written.
      if (spec_.dry_run) return abort(now, {base::ErrorCode::kAborted, "a dry run"});
      return enter(now, Step::kStage);
    case Step::kStage:
      if (auto mismatch = compare()) return abort(now, *mismatch);
      return enter(now, Step::kDecide);
    case Step::kCommit: return finish(now, Phase::kCommitted);
    case Step::kAbort: return finish(now, spec_.dry_run && !error_ ? Phase::kPlanned : Phase::kAborted);
    case Step::kPlan:
    case Step::kDecide:
    case Step::kEnded: return;
  }
}

// What a member that is waited for is asked in this step.
void UpdateRun::request(const model::MemberId& member, SessionRole role) {
  const bool source = role == SessionRole::kSource;
  const std::uint32_t deadline = remaining_ms(Now{now_});
  switch (step_) {
    case Step::kOpenSources: return context_.send(member, spec_.id, OpenSource{find_source(member)->spec, deadline});
    case Step::kOpenSinks: {
      OpenSink open{{}, {}, deadline};
      std::set<std::string> names;
      for (const auto& s : sources_) {
        for (const auto& tensor : s.manifest->tensors) {
          if (names.insert(tensor.name).second) open.tensors.push_back(tensor);
        }
        if (open.aliases.empty()) open.aliases = s.manifest->aliases;
      }
      return context_.send(member, spec_.id, std::move(open));
    }
    case Step::kPrepare: {
      if (source) {
        const std::size_t i = *plan_source(member);
        return context_.send(member, spec_.id, PrepareSource{plan_->plan->hash(), plan_->source_hashes[i], deadline});
      }
      PrepareSink prepare{
          plan_->plan->hash(), plan_->sink_hashes[*plan_sink(member)], *find_sink(member)->tag, {}, deadline};
      for (const auto& s : sources_) {
        const RunMember* peer = context_.member(s.id);
        if (peer) prepare.sources.push_back(SourcePeer{s.id, peer->info.host, peer->info.device_uuid, s.offers});
      }
      return context_.send(member, spec_.id, std::move(prepare));
    }
    case Step::kStage:
      if (source) return context_.send(member, spec_.id, StageSource{deadline});
      return context_.send(member, spec_.id, StageSink{deadline});
    case Step::kCommit: {
      Commit commit{spec_.target, {}, to_ms(context_.options().pause_deadline)};
      for (auto sink : engines_[find_sink(member)->engine].sinks)
        commit.ranks.push_back({sinks_[sink].id, *sinks_[sink].tag});
      return context_.send(member, spec_.id, std::move(commit));
    }
    case Step::kAbort:
      return context_.send(member, spec_.id,
                           Abort{error_.value_or(base::Error{base::ErrorCode::kAborted, "a dry run"})});
    case Step::kPlan:
    case Step::kDecide:
    case Step::kEnded: return;
  }
}

void UpdateRun::answered(Now now, const model::MemberId& member, SessionRole role) {
  if (waiting_.erase({member, role}) > 0 && waiting_.empty()) advance(now);
}

// ---------------------------------------------------------------- what goes wrong

void UpdateRun::failed(Now now, const model::MemberId& member, SessionRole role, base::Error error) {
  if (!can_abort()) return;
  error = error.with(member.value());
  if (role == SessionRole::kSource) return abort(now, std::move(error));
  drop_engine(now, find_sink(member)->engine, std::move(error));
}

void UpdateRun::drop_engine(Now now, std::size_t index, base::Error error) {
  Engine& engine = engines_[index];
  if (engine.dropped) return;
  engine.dropped = error;
  std::uint32_t left = 0;
  for (const auto& other : engines_)
    left += other.dropped ? 0 : 1;
  const bool all_required = spec_.require == 0 && engine.spec.required;
  if (all_required || left == 0 || left < spec_.require) return abort(now, error.with("engine " + engine.spec.name));
  context_.event(fmt::format("update {}: engine {} left: {}", spec_.id.value(), engine.spec.name, error.message));
  for (auto sink : engine.sinks) {
    waiting_.erase({sinks_[sink].id, SessionRole::kSink});
    leaving_.insert(sinks_[sink].id);
    context_.send(sinks_[sink].id, spec_.id, Abort{error});
  }
  if (waiting_.empty()) advance(now);
}

void UpdateRun::member_lost(Now now, const model::MemberId& member, const base::Error& why) {
  now_ = now.mono;
  leaving_.erase(member);
  if (step_ == Step::kAbort) {
    answered(now, member, SessionRole::kSource);  // a dead process writes nothing any more
    return answered(now, member, SessionRole::kSink);
  }
  if (!can_abort()) return;  // after the decision it may come back until the commit deadline
  if (find_source(member)) return failed(now, member, SessionRole::kSource, why);
  if (const Sink* sink = find_sink(member); sink && !engines_[sink->engine].dropped) {
    failed(now, member, SessionRole::kSink, why);
  }
}

void UpdateRun::abort(Now now, base::Error reason) {
  if (!can_abort()) return;
  now_ = now.mono;
  if (!(spec_.dry_run && reason.code == base::ErrorCode::kAborted)) error_ = std::move(reason);
  enter(now, Step::kAbort);
}

void UpdateRun::persisted(Now now, const base::Status& status) {
  if (step_ != Step::kDecide) return;
  now_ = now.mono;
  if (!status) {
    step_ = Step::kStage;  // nothing was written: the update can still be aborted
    return abort(now, status.error().with("the decision could not be journaled"));
  }
  decided_ = true;
  enter(now, Step::kCommit);
}

void UpdateRun::tick(Now now) {
  now_ = now.mono;
  if (step_ == Step::kEnded) return;
  if (can_abort() && now.mono >= deadline_) {
    std::string names;
    for (const auto& [member, role] : waiting_)
      names += (names.empty() ? "" : ", ") + member.value();
    return abort(now, {base::ErrorCode::kDeadlineExceeded,
                       fmt::format("the update's deadline is over while {}; waited for: {}", phase_name(phase_),
                                   names.empty() ? "the planner" : names)});
  }
  if ((step_ == Step::kCommit || step_ == Step::kAbort) && now.mono >= step_deadline_) {
    for (const auto& [member, role] : waiting_) {
      Sink* sink = find_sink(member);
      if (!sink || engines_[sink->engine].dropped) continue;
      engines_[sink->engine].dropped = base::Error{
          base::ErrorCode::kDeadlineExceeded,
          fmt::format("{} did not answer {} in time", member.value(), step_ == Step::kCommit ? "Commit" : "Abort")};
    }
    waiting_.clear();
    return advance(now);
  }
  if (now.mono < next_resend_) return;
  next_resend_ = now.mono + context_.options().resend_interval;
  for (const auto& [member, role] : Waiting(waiting_)) {
    context_.output().observe.push_back(Resent{"request"});
    request(member, role);
  }
  for (const auto& member : leaving_) {
    context_.send(member, spec_.id, Abort{{base::ErrorCode::kAborted, "its engine left this update"}});
  }
}

// ---------------------------------------------------------------- small things

UpdateRun::Source* UpdateRun::find_source(const model::MemberId& id) {
  const auto it = std::find_if(sources_.begin(), sources_.end(), [&](const Source& source) { return source.id == id; });
  return it == sources_.end() ? nullptr : &*it;
}

UpdateRun::Sink* UpdateRun::find_sink(const model::MemberId& id) {
  const auto it = std::find_if(sinks_.begin(), sinks_.end(), [&](const Sink& sink) { return sink.id == id; });
  return it == sinks_.end() ? nullptr : &*it;
}

bool UpdateRun::uses(const model::MemberId& member) const {
  auto* self = const_cast<UpdateRun*>(this);
  return self->find_source(member) != nullptr || self->find_sink(member) != nullptr;
}

std::uint32_t UpdateRun::remaining_ms(Now now) const {
  return to_ms(std::max(deadline_ - now.mono, base::Duration::zero()));
}

void UpdateRun::set_phase(Now now, Phase phase) {
  if (phase == phase_) return;
  phases_.push_back({phase_, static_cast<std::uint64_t>((now.mono - phase_began_).count())});
  phase_ = phase;
  phase_began_ = now.mono;
}

void UpdateRun::finish(Now now, Phase phase) {
  set_phase(now, phase);
  step_ = Step::kEnded;
}

std::map<std::string, base::Error> UpdateRun::failed_engines() const {
  std::map<std::string, base::Error> failed;
  for (const auto& engine : engines_) {
    if (engine.dropped) failed.emplace(engine.spec.name, *engine.dropped);
  }
  return failed;
}

std::vector<std::string> UpdateRun::committed_engines() const {
  std::vector<std::string> names;
  for (const auto& engine : engines_) {
    if (engine.committed) names.push_back(engine.spec.name);
  }
  return names;
}

std::vector<RankTag> UpdateRun::tags(const std::string& engine) const {
  std::vector<RankTag> tags;
  for (const auto& run : engines_) {
    if (run.spec.name != engine) continue;
    for (auto sink : run.sinks)
      tags.push_back({sinks_[sink].id, *sinks_[sink].tag});
  }
  return tags;
}

}  // namespace weightbus::protocol
