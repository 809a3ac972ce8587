#include "weightbus/protocol/driver_fsm.h"

#include <fmt/format.h>

#include <algorithm>

namespace weightbus::protocol {
namespace {
constexpr base::Duration kResendInterval = base::Millis(100);
}

// Whether an answer belongs to the attempt that runs. A rank that is ahead was told so by this driver before it lost
// its state: it counts on from there.
bool DriverFsm::mine(Now now, const model::MemberId& rank, std::uint64_t attempt) {
  if (attempt > context_.state.attempts) {
    context_.state.attempts = attempt;
    context_.save();
    if (stage_ != Stage::kIdle) begin(now);
    return false;
  }
  if (stage_ == Stage::kIdle || attempt != context_.state.attempts) return false;
  for (const auto& entry : context_.state.pending_commit->ranks) {
    if (entry.rank == rank) return true;
  }
  return false;
}

void DriverFsm::start(Now now) {
  if (context_.state.pending_commit) begin(now);
}

void DriverFsm::commit(Now now, model::UpdateId update, const Commit& request) {
  AgentState& state = context_.state;
  if (update.value() < std::max(state.pending_update, floor_)) return context_.stale("Commit of an older update");
  if (request.ranks.empty() || request.ranks.front().rank != context_.self.id)
    return context_.stale("Commit for another driver");
  if (update.value() == state.pending_update) {
    const bool known = last_answer_ && last_update_ == update;
    if (state.pending_commit && !failure_reported_) return;
    if (known) return context_.answer(update, *last_answer_);
    if (state.pending_commit) return;
    // Answered before a restart that forgot the answer: doing it again changes nothing.
  }
  state.pending_commit = request;
  state.pending_update = update.value();
  begin(now);
}

void DriverFsm::give_up_older(Now now, model::UpdateId newer) {
  floor_ = std::max(floor_, newer.value());
  if (stage_ != Stage::kPausing || context_.state.torn || context_.state.pending_update >= newer.value()) return;
  error_ = base::Error{base::ErrorCode::kAborted, "a newer update began"};
  enter(now, Stage::kResuming);
}

void DriverFsm::begin(Now now) {
  ++context_.state.attempts;
  context_.save();
  error_.reset();
  failure_reported_ = false;
  last_answer_.reset();
  began_ = now.mono;
  deadline_ = now.mono + from_ms(context_.state.pending_commit->pause_deadline_ms);
  enter(now, Stage::kPausing);
}

void DriverFsm::enter(Now now, Stage stage) {
  stage_ = stage;
  answered_.clear();
  next_resend_ = now.mono + kResendInterval;
  send_to_waiting();
}

void DriverFsm::send_to_waiting() {
  const Commit& commit = *context_.state.pending_commit;
  const std::uint64_t attempt = context_.state.attempts;
  for (const auto& entry : commit.ranks) {
    if (answered_.contains(entry.rank)) continue;
    if (stage_ == Stage::kPausing)
      context_.send(entry.rank, std::nullopt, RankPause{attempt, commit.pause_deadline_ms});
    if (stage_ == Stage::kExchanging) context_.send(entry.rank, std::nullopt, RankExchange{attempt, entry.tag});
    if (stage_ == Stage::kResuming) context_.send(entry.rank, std::nullopt, RankResume{attempt});
  }
}

void DriverFsm::paused(Now now, const model::MemberId& rank, const RankPaused& message) {
  if (!mine(now, rank, message.attempt)) {
    if (stage_ == Stage::kIdle) context_.send(rank, std::nullopt, RankResume{message.attempt});
    return;
  }
  if (stage_ != Stage::kPausing) return;
  answered_.insert(rank);
  if (answered_.size() != context_.state.pending_commit->ranks.size()) return;
  context_.state.torn = true;  // before the first rank is told: from here on a restart must not resume a mixed engine
  context_.save();
  enter(now, Stage::kExchanging);
}

void DriverFsm::exchanged(Now now, const model::MemberId& rank, const RankExchanged& message) {
  if (!mine(now, rank, message.attempt) || stage_ != Stage::kExchanging) return;
  answered_.insert(rank);
  if (answered_.size() != context_.state.pending_commit->ranks.size()) return;
  context_.state.torn = false;
  context_.save();
  enter(now, Stage::kResuming);
}

void DriverFsm::resumed(Now now, const model::MemberId& rank, const RankResumed& message) {
  if (!mine(now, rank, message.attempt) || stage_ != Stage::kResuming) return;
  answered_.insert(rank);
  if (answered_.size() == context_.state.pending_commit->ranks.size()) finish(now);
}

void DriverFsm::failed(Now now, const model::MemberId& rank, const RankFailed& message) {
  if (!mine(now, rank, message.attempt)) {
    if (stage_ == Stage::kIdle) context_.send(rank, std::nullopt, RankResume{message.attempt});
    return;
  }
  const base::Error error = message.error.with(rank.value());
  if (stage_ == Stage::kPausing && !context_.state.torn) {
    error_ = error;
    enter(now, Stage::kResuming);
  } else if (stage_ != Stage::kResuming) {
    report_failure(error);  // stays paused: see the top of driver_fsm.h
  }
}

void DriverFsm::report_failure(base::Error error) {
  if (failure_reported_) return;
  failure_reported_ = true;
  last_update_ = model::UpdateId{context_.state.pending_update};
  last_answer_ = CommitFailed{std::move(error)};
  context_.answer(last_update_, *last_answer_);
}

void DriverFsm::finish(Now now) {
  const auto pause = static_cast<std::uint64_t>((now.mono - began_).count());
  last_update_ = model::UpdateId{context_.state.pending_update};
  if (error_) {
    last_answer_ = CommitFailed{*error_};
  } else {
    last_answer_ = Committed{context_.state.pending_commit->version, pause, CommitWay::kRemap};
  }
  context_.state.pending_commit.reset();
  context_.save();
  stage_ = Stage::kIdle;
  context_.answer(last_update_, *last_answer_);
}

void DriverFsm::tick(Now now) {
  if (stage_ == Stage::kIdle) return;
  if (now.mono >= deadline_ && stage_ == Stage::kPausing && !context_.state.torn) {
    std::string waiting;
    for (const auto& entry : context_.state.pending_commit->ranks) {
      if (!answered_.contains(entry.rank)) waiting += (waiting.empty() ? "" : ", ") + entry.rank.value();
    }
    error_ = base::Error{base::ErrorCode::kDeadlineExceeded,
                         fmt::format("{} did not pause within {} ms; nothing was exchanged", waiting,
                                     context_.state.pending_commit->pause_deadline_ms)};
    return enter(now, Stage::kResuming);
  }
  if (now.mono >= deadline_ && !failure_reported_) {
    if (error_) {
      report_failure(*error_);
    } else {
      report_failure(
          {base::ErrorCode::kDeadlineExceeded, "not every rank exchanged its half in time; the engine stays paused"});
    }
  }
  if (now.mono >= next_resend_) {
    next_resend_ = now.mono + kResendInterval;
    context_.out.observe.push_back(Resent{"rank request"});
    send_to_waiting();
  }
}

}  // namespace weightbus::protocol
