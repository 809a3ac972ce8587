#include "weightbus/protocol/sink_role.h"

#include <fmt/format.h>

#include "weightbus/base/assert.h"

namespace weightbus::protocol {

SinkRole::SinkRole(AgentContext& context, std::optional<model::SinkManifest> manifest)
    : context_(context), manifest_(std::move(manifest)) {
  WB_ASSERT(context_.state.has_arena == manifest_.has_value(), "an arena and its manifest come together");
  if (manifest_) layout_ = model::layout_hash(*manifest_);
  over_ = context_.state.over_update;
}

void SinkRole::forget() {
  if (session_) {
    const bool busy =
        session_->stage == Stage::kJoining || session_->stage == Stage::kPulling || session_->stage == Stage::kLeaving;
    if (busy) {
      leave();
    } else {
      drop_session(true);
    }
  }
  over_ = 0;
  open_asked_by_.reset();
}

std::vector<Half> SinkRole::halves() const {
  if (!context_.state.has_arena) return {};
  return {context_.state.halves[live()], context_.state.halves[shadow()]};
}

std::optional<model::UpdateId> SinkRole::running() const {
  if (!session_) return std::nullopt;
  return session_->update;
}

std::optional<std::uint32_t> SinkRole::find(const Tag& tag) const {
  for (std::uint32_t half = 0; half < 2; ++half) {
    if (context_.state.has_arena && context_.state.halves[half].tag == tag) return half;
  }
  return std::nullopt;
}

void SinkRole::make_live(std::uint32_t half) {
  WB_ASSERT(context_.state.halves[half].tag.has_value(), "only a tagged half is exchanged in");
  context_.state.live = half;
  context_.state.halves[half].verified = true;
  context_.state.highest_version =
      std::max(context_.state.highest_version, context_.state.halves[half].tag->version.value());
  context_.save();
}

void SinkRole::committed(const Tag& tag) {
  if (session_ && session_->stage == Stage::kStaged && session_->wanted.tag == tag) {
    over_ = std::max(over_, session_->update.value());
    context_.perform(DoLeave{session_->update});
    session_.reset();
  }
}

// ---------------------------------------------------------------- opening

void SinkRole::answer_opened(model::UpdateId update) {
  context_.answer(update, SinkOpened{*manifest_, halves(), CommitWay::kRemap});
}

void SinkRole::open(model::UpdateId update, const OpenSink& request) {
  if (update.value() <= over_) return context_.stale("OpenSink of an update that is over");
  supersede(update);
  if (!manifest_ && request.tensors.empty()) {
    return context_.answer(update,
                           Failed{SessionRole::kSink, {base::ErrorCode::kNotFound, "this rank has no arena any more"}});
  }
  if (manifest_) return answer_opened(update);
  open_asked_by_ = update;
  if (opening_) return;
  opening_ = true;
  context_.perform(DoOpenSink{request.tensors, request.aliases});
}

void SinkRole::done(const SinkOpenDone& event) {
  opening_ = false;
  if (!event.result) {
    if (open_asked_by_) context_.answer(open_asked_by_, Failed{SessionRole::kSink, event.result.error()});
    return;
  }
  manifest_ = *event.result;
  layout_ = model::layout_hash(*manifest_);
  context_.state.has_arena = true;
  context_.state.live = 0;
  context_.state.halves[0] = Half{};
  context_.state.halves[1] = Half{};
  context_.save();
  if (open_asked_by_ && open_asked_by_->value() > over_) answer_opened(*open_asked_by_);
}

// ---------------------------------------------------------------- preparing

SinkRole::Session* SinkRole::current(model::UpdateId update, const char* what) {
  if (!session_ || session_->update != update || session_->stage == Stage::kLeaving) {
    context_.stale(fmt::format("{} for update {}, which is not open here", what, update.value()));
    return nullptr;
  }
  if (session_->failed) {
    context_.answer(update, Failed{SessionRole::kSink, *session_->failed});
    return nullptr;
  }
  return &*session_;
}

void SinkRole::fail(base::Error error) {
  session_->failed = std::move(error);
  context_.answer(session_->update, Failed{SessionRole::kSink, *session_->failed});
}

void SinkRole::prepare(model::UpdateId update, const PrepareSink& request) {
  if (update.value() <= over_) return context_.stale("PrepareSink of an update that is over");
  supersede(update);
  if (session_ && session_->update != update) return;  // drains first; the request is repeated
  if (!session_) {
    session_ = Session{update, request};
    if (!manifest_) return fail({base::ErrorCode::kConflict, "no arena: OpenSink comes before PrepareSink"});
    if (request.tag.layout != layout_) {
      return fail({base::ErrorCode::kConflict, fmt::format("the plan is for layout {}, this rank has {}; push again",
                                                           request.tag.layout.to_string(), layout_.to_string())});
    }
    context_.state.highest_version = std::max(context_.state.highest_version, request.tag.version.value());
  }
  Session* session = current(update, "PrepareSink");
  if (!session) return;
  if (session->stage >= Stage::kPrepared) {
    context_.answer(update, Prepared{SessionRole::kSink, request.plan_hash, request.part_hash, session->channels});
    return;
  }
  if (session->stage == Stage::kJoining) return;
  if (part_ && part_->plan_hash == request.plan_hash && part_->hash() == request.part_hash) return join();
  context_.answer(update, NeedPart{SessionRole::kSink, request.plan_hash});
}

void SinkRole::part(model::UpdateId update, const SinkPartMessage& message) {
  Session* session = current(update, "SinkPart");
  if (!session || session->stage != Stage::kWanted) return;
  if (message.part.plan_hash != session->wanted.plan_hash || message.part.hash() != session->wanted.part_hash) {
    return fail({base::ErrorCode::kCorrupted, "the plan part that arrived does not have the hash that was announced"});
  }
  part_ = std::make_shared<const plan::SinkPart>(message.part);
  join();
}

void SinkRole::join() {
  session_->part = part_;
  session_->stage = Stage::kJoining;
  context_.perform(DoJoin{session_->update, session_->part, session_->wanted.sources, session_->wanted.deadline_ms});
}

void SinkRole::done(const SinkJoinDone& event) {
  if (!session_ || session_->update != event.update) return;
  if (session_->stage == Stage::kLeaving) return drop_session(false);
  if (session_->stage != Stage::kJoining) return;
  if (!event.channels) {
    session_->stage = Stage::kPrepared;  // nothing runs any more
    return fail(event.channels.error());
  }
  session_->stage = Stage::kPrepared;
  session_->channels = *event.channels;
  context_.answer(event.update, Prepared{SessionRole::kSink, session_->wanted.plan_hash, session_->wanted.part_hash,
                                         session_->channels});
}

// ---------------------------------------------------------------- staging

void SinkRole::stage(model::UpdateId update, const StageSink& request) {
  Session* session = current(update, "StageSink");
  if (!session) return;
  if (session->stage == Stage::kStaged) {
    context_.answer(update, Staged{session->wanted.tag, session->result->slots, session->result->times});
    return;
  }
  if (session->stage != Stage::kPrepared) return;
  session->deadline_ms = request.deadline_ms;
  if (leases_[shadow()] > 0) {
    session->stage = Stage::kWaitingForLease;  // the copy that this retires is still being read
    return;
  }
  start_pull();
}

void SinkRole::end_lease(std::uint32_t half) {
  WB_ASSERT(leases_[half] > 0, "a lease ends once");
  --leases_[half];
  if (session_ && session_->stage == Stage::kWaitingForLease && leases_[shadow()] == 0) start_pull();
}

void SinkRole::start_pull() {
  session_->stage = Stage::kPulling;
  session_->half = shadow();
  context_.state.halves[session_->half] = Half{};
  context_.state.over_update = std::max(context_.state.over_update, session_->update.value());
  context_.save();  // before the first byte: a restart must find the half untagged
  context_.perform(DoPull{session_->update, session_->part, session_->half, session_->deadline_ms});
}

void SinkRole::done(const SinkPullDone& event) {
  if (!session_ || session_->update != event.update) return;
  if (session_->stage == Stage::kLeaving) return drop_session(false);
  if (session_->stage != Stage::kPulling) return;
  if (!event.result) {
    session_->stage = Stage::kStaged;  // drained; `failed` keeps it from being committed
    return fail(event.result.error());
  }
  session_->stage = Stage::kStaged;
  session_->result = *event.result;
  WB_ASSERT(session_->half == shadow(), "a half without a tag is never exchanged in, so this is still the shadow");
  context_.state.halves[session_->half] = Half{session_->wanted.tag, false};
  context_.save();
  context_.answer(event.update, Staged{session_->wanted.tag, session_->result->slots, session_->result->times});
}

// ---------------------------------------------------------------- ending

// An update is asked for: older ones are over, whatever became of them. Their tags stay, since one may have been
// decided.
void SinkRole::supersede(model::UpdateId update) {
  if (update.value() > 0) over_ = std::max(over_, update.value() - 1);
  if (!session_ || session_->update >= update || session_->stage == Stage::kLeaving) return;
  const bool busy = session_->stage == Stage::kJoining || session_->stage == Stage::kPulling;
  if (busy) return leave();
  drop_session(false);
}

void SinkRole::begin_end(model::UpdateId update) {
  over_ = std::max(over_, update.value());
  if (!active(update) || session_->stage == Stage::kLeaving) return;
  const bool busy = session_->stage == Stage::kJoining || session_->stage == Stage::kPulling;
  if (busy) return leave();
  drop_session(session_->update == update);
}

void SinkRole::leave() {
  if (session_->stage == Stage::kLeaving) return;
  context_.perform(DoCancel{session_->update});
  session_->stage = Stage::kLeaving;  // until the Done event says that the last write has been made
}

void SinkRole::drop_session(bool aborted) {
  Half& half = context_.state.halves[session_->half];
  if (aborted && half.tag && half.tag->update == session_->update && session_->half == shadow() && !half.verified) {
    half = Half{};
    context_.save();
  }
  context_.perform(DoLeave{session_->update});
  session_.reset();
}

}  // namespace weightbus::protocol
