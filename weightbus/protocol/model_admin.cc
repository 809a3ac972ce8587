// ModelFsm: what the command line and trainers ask for.
#include <fmt/format.h>

#include <algorithm>

#include "weightbus/protocol/dispatch.h"
#include "weightbus/protocol/model_fsm.h"

namespace weightbus::protocol {
namespace {
constexpr std::size_t kRepliesKept = 256;
constexpr std::size_t kVerifiesMax = 8;
constexpr base::Duration kVerifyDeadline = base::Millis(120'000);
constexpr base::Duration kVerifyResend = base::Millis(1'000);
}  // namespace

void ModelFsm::reply(const Envelope& message, Body body) {
  if (!std::holds_alternative<StatusRequest>(message.body)) {
    replies_.emplace_back(std::pair{message.from, message.request}, body);
    if (replies_.size() > kRepliesKept) replies_.pop_front();
  }
  reply_to(message.from, message.request, std::move(body));
}

void ModelFsm::reply_to(const model::MemberId& to, std::uint64_t request, Body body) {
  output_.send.push_back(Envelope{epoch_, name_, std::nullopt, kCoordinator, to, request, std::move(body)});
}

void ModelFsm::admin(Now now, const Envelope& message) {
  for (const auto& [key, body] : replies_) {
    if (key == std::pair{message.from, message.request}) return reply_to(message.from, message.request, body);
  }
  std::visit(Overloaded{
                 [&](const StatusRequest&) { reply(message, status(now)); },
                 [&](const PublishRequest& body) { publish(now, message, body); },
                 [&](const RollbackRequest& body) { rollback(now, message, body); },
                 [&](const PinRequest& body) { pin(message, body); },
                 [&](const EvictRequest& body) { evict(now, message, body); },
                 [&](const VerifyRequest&) { verify(now, message); },
                 [&](const DiffRequest& body) { diff(message, body); },
                 [&](const AbortRequest&) {
                   if (!run_) return reply(message, ErrorReply{{base::ErrorCode::kNotFound, "no update is running"}});
                   if (!run_->can_abort()) {
                     return reply(message,
                                  ErrorReply{{base::ErrorCode::kConflict,
                                              fmt::format("update {} is decided and will be completed; roll back "
                                                          "instead",
                                                          run_->spec().id.value())}});
                   }
                   run_->abort(now, {base::ErrorCode::kAborted, "aborted by " + message.from.value()});
                   reply(message, Done{});
                   end_run(now);
                 },
                 [&](const auto&) {
                   reply(message, ErrorReply{{base::ErrorCode::kInvalidArgument,
                                              std::string(body_name(message.body)) + " is not a request"}});
                 },
             },
             message.body);
}

void ModelFsm::pin(const Envelope& message, const PinRequest& body) {
  if (!state_.versions.contains(body.version)) {
    return reply(message, ErrorReply{{base::ErrorCode::kNotFound,
                                      fmt::format("version {} was never committed", body.version.value())}});
  }
  output_.persist.push_back(Pinned{name_, body.version, body.pinned});
  unpersisted_.push_back(message);
}

void ModelFsm::evict(Now now, const Envelope& message, const EvictRequest& body) {
  const auto it = members_.find(body.member);
  if (it == members_.end()) {
    return reply(message,
                 ErrorReply{{base::ErrorCode::kNotFound,
                             fmt::format("no member is called {}; see `weightbus members`", body.member.value())}});
  }
  output_.persist.push_back(Evicted{name_, body.member, it->second.boot});
  send(body.member, std::nullopt, Rejected{{base::ErrorCode::kPermissionDenied, "evicted by " + message.from.value()}});
  if (it->second.connected) lost(now, body.member, "evicted by " + message.from.value());
  members_.erase(body.member);
  unpersisted_.push_back(message);
}

// ---------------------------------------------------------------- verify

void ModelFsm::verify(Now now, const Envelope& message) {
  const bool running = std::any_of(verifies_.begin(), verifies_.end(), [&](const Verify& v) {
    return v.from == message.from && v.request == message.request;
  });
  if (running) return;
  if (verifies_.size() >= kVerifiesMax) {
    return reply(message, ErrorReply{{base::ErrorCode::kResourceExhausted, "8 verifications run already"}});
  }
  Verify verify{message.from, message.request, {}, now.mono + kVerifyDeadline, now.mono + kVerifyResend};
  for (const auto& [id, member] : members_) {
    if (!member.connected || member.info.role != model::Role::kEngineAgent) continue;
    verify.answers.emplace(id, std::nullopt);
    send(id, std::nullopt, DigestLive{});
  }
  verifies_.push_back(std::move(verify));
  verify_tick(now);
}

void ModelFsm::verify_tick(Now now) {
  std::vector<Verify> open;
  for (auto& verify : verifies_) {
    std::erase_if(verify.answers, [&](const auto& entry) { return !entry.second && !member(entry.first); });
    const bool all =
        std::all_of(verify.answers.begin(), verify.answers.end(), [](const auto& e) { return e.second.has_value(); });
    if (!all && now.mono < verify.deadline) {
      if (now.mono >= verify.resend) {
        verify.resend = now.mono + kVerifyResend;
        for (const auto& [id, answer] : verify.answers) {
          if (!answer) send(id, std::nullopt, DigestLive{});
        }
      }
      open.push_back(std::move(verify));
      continue;
    }
    if (!all) {
      reply_to(verify.from, verify.request,
               ErrorReply{{base::ErrorCode::kDeadlineExceeded, "not every engine agent answered in time"}});
      continue;
    }
    VerifyReply answer;
    for (auto& [id, digests] : verify.answers) {
      answer.engines.push_back(
          EngineDigests{id, members_.at(id).info.engine, digests->live, std::move(digests->slots)});
    }
    reply_to(verify.from, verify.request, std::move(answer));
  }
  verifies_ = std::move(open);
}

// ---------------------------------------------------------------- diff

void ModelFsm::diff(const Envelope& message, const DiffRequest& body) {
  for (auto version : {body.from, body.to}) {
    const auto it = state_.versions.find(version);
    if (it == state_.versions.end() || it->second.digests.empty()) {
      return reply(message, ErrorReply{{base::ErrorCode::kNotFound,
                                        fmt::format("no digests of version {} are recorded", version.value())}});
    }
  }
  const auto& from = state_.versions.at(body.from).digests;
  const auto& to = state_.versions.at(body.to).digests;
  DiffReply answer;
  for (const auto& [name, digest] : to) {
    const auto it = from.find(name);
    if (it == from.end()) {
      answer.added.push_back(name);
    } else if (it->second == digest) {
      ++answer.unchanged;
    } else {
      answer.changed.push_back(name);
    }
  }
  for (const auto& [name, digest] : from) {
    if (!to.contains(name)) answer.removed.push_back(name);
  }
  reply(message, std::move(answer));
}

}  // namespace weightbus::protocol
