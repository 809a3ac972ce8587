#include "weightbus/protocol/agent_link.h"

#include <fmt/format.h>

namespace weightbus::protocol {
namespace {
constexpr base::Duration kHelloInterval = base::Millis(250);
constexpr base::Duration kAdoptWait = base::Millis(1000);
constexpr int kSilentHeartbeats = 6;  // without any answer: say Hello again
}  // namespace

bool AgentLink::admit(Now now, const Envelope& message) {
  const model::Epoch& known = context_.state.known_epoch;
  if (message.epoch.journal == known.journal && message.epoch.number < known.number) {
    context_.stale(
        fmt::format("{} of epoch {}, now in {}", body_name(message.body), message.epoch.number, known.number));
    return false;
  }
  if (const auto* body = std::get_if<Welcome>(&message.body)) {
    welcome(now, message, *body);
    return false;
  }
  if (const auto* body = std::get_if<Rejected>(&message.body)) {
    rejected(now, message, *body);
    return false;
  }
  if (!welcomed_ || message.epoch != known) {
    context_.stale(fmt::format("{} before the Welcome of its epoch", body_name(message.body)));
    if (message.epoch != known) welcomed_ = false;
    return false;
  }
  last_heard_ = now.mono;
  if (const auto* body = std::get_if<SetQuarantine>(&message.body)) {
    quarantined_ = body->quarantined;
    return false;
  }
  return true;
}

void AgentLink::welcome(Now now, const Envelope& message, const Welcome& body) {
  if (context_.state.known_epoch != message.epoch) {
    const auto none = base::Hash128{};
    if (context_.state.known_epoch.journal != none && context_.state.known_epoch.journal != message.epoch.journal)
      change_journal();
    context_.state.known_epoch = message.epoch;
    context_.save();
  }
  welcomed_ = true;
  quarantined_ = body.quarantined;
  engine_ = body.engine;
  if (body.heartbeat_interval_ms > 0) heartbeat_interval_ = from_ms(body.heartbeat_interval_ms);
  serve_stale_ = from_ms(body.serve_stale_ms);
  last_heard_ = now.mono;
}

// Another journal counts updates by itself: no tag of the former one may pass for one of its own. No update has number
// 0.
void AgentLink::change_journal() {
  AgentState& state = context_.state;
  for (auto& half : state.halves) {
    if (half.tag) half.tag->update = model::UpdateId{0};
  }
  if (state.pending_commit) {
    for (auto& rank : state.pending_commit->ranks)
      rank.tag.update = model::UpdateId{0};
  }
  state.pending_update = 0;
  state.over_update = 0;
  new_journal_ = true;
}

void AgentLink::rejected(Now now, const Envelope&, const Rejected& body) {
  welcomed_ = false;
  if (body.error.code == base::ErrorCode::kStale) {
    next_hello_ = now.mono;
  } else if (body.error.code == base::ErrorCode::kConflict || body.error.code == base::ErrorCode::kUnavailable) {
    context_.note(Level::kWarning, "the coordinator refuses this agent for now: " + body.error.message);
    next_hello_ = now.mono + kAdoptWait;
  } else {
    context_.out.fatal = body.error.with("the coordinator refused this agent");
  }
}

bool AgentLink::hello_due(Now now) {
  if (welcomed_ && now.mono - last_heard_ > heartbeat_interval_ * kSilentHeartbeats) welcomed_ = false;
  if (welcomed_ || now.mono < next_hello_) return false;
  next_hello_ = now.mono + kHelloInterval;
  return true;
}

bool AgentLink::heartbeat_due(Now now) {
  if (!welcomed_ || now.mono < next_heartbeat_) return false;
  next_heartbeat_ = now.mono + heartbeat_interval_;
  return true;
}

bool AgentLink::fresh(Now now) const {
  return serve_stale_ == base::Duration::zero() || now.mono - last_heard_ <= serve_stale_;
}

}  // namespace weightbus::protocol
