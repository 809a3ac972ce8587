// UpdateRun: what the members answer.
#include <fmt/format.h>

#include "weightbus/protocol/dispatch.h"
#include "weightbus/protocol/update_run.h"

namespace weightbus::protocol {

void UpdateRun::answer(Now now, const Envelope& message) {
  now_ = now.mono;
  const model::MemberId& from = message.from;
  if (std::holds_alternative<Aborted>(message.body)) {
    leaving_.erase(from);
    if (step_ == Step::kAbort) {
      answered(now, from, SessionRole::kSource);
      answered(now, from, SessionRole::kSink);
    }
    return;
  }
  if (const auto* body = std::get_if<Failed>(&message.body)) {
    const bool known = body->role == SessionRole::kSource ? find_source(from) != nullptr : find_sink(from) != nullptr;
    if (known && step_ != Step::kAbort) failed(now, from, body->role, body->error);
    return;
  }
  if (const auto* body = std::get_if<NeedPart>(&message.body)) return send_part(from, *body);
  if (std::holds_alternative<Committed>(message.body) || std::holds_alternative<CommitFailed>(message.body)) {
    return accept_commit(now, from, message.body);
  }
  if (!accept(now, from, message.body)) {
    context_.output().observe.push_back(
        StaleDropped{fmt::format("{} of {} while {}", body_name(message.body), from.value(), phase_name(phase_))});
  }
}

bool UpdateRun::accept(Now now, const model::MemberId& from, const Body& body) {
  const bool as_source = waiting_.contains({from, SessionRole::kSource});
  const bool as_sink = waiting_.contains({from, SessionRole::kSink});
  if (as_source && accept_source(*find_source(from), body)) {
    answered(now, from, SessionRole::kSource);
    return true;
  }
  if (as_sink && accept_sink(*find_sink(from), body)) {
    answered(now, from, SessionRole::kSink);
    return true;
  }
  return false;
}

bool UpdateRun::accept_source(Source& source, const Body& body) {
  if (const auto* opened = std::get_if<SourceOpened>(&body); opened && step_ == Step::kOpenSources) {
    source.manifest = std::make_shared<const model::SourceManifest>(opened->manifest);
    source.offers = opened->offers;
    return true;
  }
  if (const auto* prepared = std::get_if<Prepared>(&body); prepared && step_ == Step::kPrepare) {
    return prepared->role == SessionRole::kSource && prepared->plan_hash == plan_->plan->hash() &&
           prepared->part_hash == plan_->source_hashes[*plan_source(source.id)];
  }
  if (const auto* staged = std::get_if<SourceStaged>(&body); staged && step_ == Step::kStage) {
    source.units = staged->units;
    source.element = staged->element;
    return true;
  }
  return false;
}

bool UpdateRun::accept_sink(Sink& sink, const Body& body) {
  if (const auto* opened = std::get_if<SinkOpened>(&body); opened && step_ == Step::kOpenSinks) {
    context_.sink_opened(sink.id, *opened);
    return true;
  }
  if (const auto* prepared = std::get_if<Prepared>(&body); prepared && step_ == Step::kPrepare) {
    if (prepared->role != SessionRole::kSink || prepared->plan_hash != plan_->plan->hash()) return false;
    if (prepared->part_hash != plan_->sink_hashes[*plan_sink(sink.id)]) return false;
    sink.channels = prepared->channels;
    return true;
  }
  if (const auto* staged = std::get_if<Staged>(&body); staged && step_ == Step::kStage) {
    if (staged->tag != sink.tag) return false;
    sink.slots = staged->slots;
    sink.times = staged->times;
    return true;
  }
  return false;
}

void UpdateRun::send_part(const model::MemberId& member, const NeedPart& need) {
  if (step_ != Step::kPrepare || need.plan_hash != plan_->plan->hash()) return;
  if (need.role == SessionRole::kSource) {
    if (const auto i = plan_source(member))
      context_.send(member, spec_.id, SourcePartMessage{*plan_->source_parts[*i]});
  } else if (const auto i = plan_sink(member)) {
    context_.send(member, spec_.id, SinkPartMessage{*plan_->sink_parts[*i]});
  }
}

void UpdateRun::accept_commit(Now now, const model::MemberId& from, const Body& body) {
  Sink* sink = find_sink(from);
  if (step_ != Step::kCommit || !sink || !waiting_.contains({from, SessionRole::kSink})) return;
  Engine& engine = engines_[sink->engine];
  if (const auto* committed = std::get_if<Committed>(&body)) {
    if (committed->version != spec_.target) return;
    engine.committed = true;
    engine.pause_ns = committed->pause_ns;
    engine.way = committed->way;
  } else {
    engine.dropped = std::get<CommitFailed>(body).error;
    context_.event(fmt::format("update {}: engine {} did not commit: {}", spec_.id.value(), engine.spec.name,
                               engine.dropped->message));
  }
  answered(now, from, SessionRole::kSink);
}

}  // namespace weightbus::protocol
