#include "weightbus/protocol/source_role.h"

#include <fmt/format.h>

namespace weightbus::protocol {

SourceRole::Session* SourceRole::current(model::UpdateId update, const char* what) {
  if (!session_ || session_->update != update || session_->stage == Stage::kReleasing) {
    context_.stale(fmt::format("{} for update {}, which is not open here", what, update.value()));
    return nullptr;
  }
  if (session_->failed) {
    context_.answer(update, Failed{SessionRole::kSource, *session_->failed});
    return nullptr;
  }
  return &*session_;
}

void SourceRole::fail(Session& session, base::Error error) {
  session.failed = std::move(error);
  context_.answer(session.update, Failed{SessionRole::kSource, *session.failed});
}

void SourceRole::open(model::UpdateId update, const OpenSource& request) {
  if (update.value() <= over_) return context_.stale("OpenSource of an update that is over");
  if (session_ && session_->update != update) {
    // A coordinator that restarted has given the older update up. Memory is drained first; the request is repeated.
    if (session_->update < update) begin_end(session_->update);
    return;
  }
  if (session_) {
    Session* session = current(update, "OpenSource");
    if (session && session->opened) context_.answer(update, *session->opened);
    return;
  }
  session_ = Session{update, request.source};
  context_.perform(DoOpenSource{update, request.source});
}

void SourceRole::prepare(model::UpdateId update, const PrepareSource& request) {
  Session* session = current(update, "PrepareSource");
  if (!session || !session->opened) return;
  if (session->stage >= Stage::kPrepared) {
    context_.answer(update, Prepared{SessionRole::kSource, request.plan_hash, session->wanted->part_hash, {}});
    return;
  }
  if (session->stage == Stage::kServing) return;
  session->wanted = request;
  if (part_ && part_->plan_hash == request.plan_hash && part_->hash() == request.part_hash) {
    session->part = part_;
    return start_serving(*session);
  }
  context_.answer(update, NeedPart{SessionRole::kSource, request.plan_hash});
}

void SourceRole::part(model::UpdateId update, const SourcePartMessage& message) {
  Session* session = current(update, "SourcePart");
  if (!session || session->stage != Stage::kOpen || !session->wanted) return;
  if (message.part.plan_hash != session->wanted->plan_hash || message.part.hash() != session->wanted->part_hash) {
    return fail(*session,
                {base::ErrorCode::kCorrupted, "the plan part that arrived does not have the hash that was announced"});
  }
  part_ = std::make_shared<const plan::SourcePart>(message.part);
  session->part = part_;
  start_serving(*session);
}

void SourceRole::start_serving(Session& session) {
  session.stage = Stage::kServing;
  context_.perform(DoServe{session.update, session.part});
}

void SourceRole::stage(model::UpdateId update) {
  Session* session = current(update, "StageSource");
  if (!session) return;
  if (session->stage == Stage::kStaged) return context_.answer(update, *session->staged);
  if (session->stage != Stage::kPrepared) return;
  session->stage = Stage::kDigesting;
  context_.perform(DoDigestSource{update, session->part});
}

void SourceRole::release(model::UpdateId update) {
  if (session_ && session_->update == update) return end(true);
  context_.answer(update, Released{});  // nothing of it is open here (any more)
}

void SourceRole::begin_end(model::UpdateId update) {
  over_ = std::max(over_, update.value());
  if (active(update)) end(false);
}

void SourceRole::end(bool answer_released) {
  session_->answer_released |= answer_released;
  over_ = std::max(over_, session_->update.value());
  if (session_->stage == Stage::kReleasing) return;
  session_->stage = Stage::kReleasing;
  context_.perform(DoReleaseSource{session_->update});
}

void SourceRole::done(const SourceOpenDone& event) {
  if (!session_ || session_->update != event.update || session_->stage != Stage::kOpening) return;
  if (!event.result) return fail(*session_, event.result.error());
  session_->stage = Stage::kOpen;
  session_->opened = *event.result;
  context_.answer(event.update, *session_->opened);
}

void SourceRole::done(const SourceServeDone& event) {
  if (!session_ || session_->update != event.update || session_->stage != Stage::kServing) return;
  if (!event.result) return fail(*session_, event.result.error());
  session_->stage = Stage::kPrepared;
  context_.answer(event.update,
                  Prepared{SessionRole::kSource, session_->wanted->plan_hash, session_->wanted->part_hash, {}});
}

void SourceRole::done(const SourceDigestDone& event) {
  if (!session_ || session_->update != event.update || session_->stage != Stage::kDigesting) return;
  if (!event.result) return fail(*session_, event.result.error());
  session_->stage = Stage::kStaged;
  session_->staged = *event.result;
  context_.answer(event.update, *session_->staged);
}

void SourceRole::done(const SourceReleaseDone& event) {
  if (!session_ || session_->update != event.update) return;
  const bool answer = session_->answer_released;
  session_.reset();
  if (answer) context_.answer(event.update, Released{});
}

std::optional<model::WeightVersion> SourceRole::snapshot() const {
  const auto* source = session_ ? std::get_if<SnapshotSource>(&session_->spec) : nullptr;
  if (!source) return std::nullopt;
  return source->version;
}

void SourceRole::forget() {
  if (session_) end(false);
  over_ = 0;
}

std::optional<model::UpdateId> SourceRole::running() const {
  if (!session_) return std::nullopt;
  return session_->update;
}

}  // namespace weightbus::protocol
