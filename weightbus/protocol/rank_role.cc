#include "weightbus/protocol/rank_role.h"

#include <fmt/format.h>

#include <utility>

namespace weightbus::protocol {
namespace {
constexpr base::Duration kRepeatInterval = base::Millis(500);
constexpr std::uint32_t kLatePauseDeadlineMs = 10'000;  // for a rank that has to pause again after its restart
}  // namespace

void RankRole::fail(base::Error error) {
  failed_ = std::move(error);
  answer(RankFailed{attempt_, *failed_});
}

void RankRole::start() {
  resumed_attempt_ = context_.state.resumed_attempt;
  if (context_.state.paused_attempt == 0) return;
  attempt_ = context_.state.paused_attempt;
  // The exchange that was recorded may not have been made. Where nothing was recorded nothing is mapped.
  if (context_.state.has_arena && context_.state.halves[sink_.live()].tag) lease(1 - sink_.live());
  begin_pause(kLatePauseDeadlineMs);
}

void RankRole::begin_pause(std::uint32_t deadline_ms) {
  stage_ = Stage::kPausing;
  all_paused_ = false;
  failed_.reset();
  context_.state.paused_attempt = attempt_;
  context_.save();  // before any client stops: a restart must not let it go on alone
  context_.perform(DoPause{attempt_, deadline_ms});
}

// What an older attempt asks for changes nothing. A driver that lost its counter learns how far it had counted.
bool RankRole::is_over(const model::MemberId& driver, std::uint64_t attempt, const char* what) {
  if (attempt >= attempt_ && attempt > resumed_attempt_) return false;
  context_.stale(fmt::format("{} of attempt {}, now at {}", what, attempt, attempt_));
  if (attempt <= resumed_attempt_) context_.send(driver, std::nullopt, RankResumed{resumed_attempt_});
  return true;
}

void RankRole::pause(const model::MemberId& driver, const RankPause& request) {
  if (is_over(driver, request.attempt, "RankPause")) return;
  if (request.attempt > attempt_) {
    failed_.reset();
    wanted_.reset();
  }
  driver_ = driver;
  attempt_ = request.attempt;
  deadline_ms_ = request.deadline_ms;
  if (stage_ == Stage::kPaused && all_paused_) return answer(RankPaused{attempt_});
  if (stage_ != Stage::kRunning && stage_ != Stage::kPaused) return;  // the Done event answers, with the newest attempt
  begin_pause(deadline_ms_);
}

void RankRole::done(const PauseDone& event) {
  if (stage_ != Stage::kPausing) return;
  stage_ = Stage::kPaused;  // also after a failure: some clients may have stopped, and RankResume lets them go on
  if (!event.result) return fail(event.result.error());
  all_paused_ = true;
  if (wanted_) return do_exchange();
  if (resync()) return;
  answer(RankPaused{attempt_});
}

void RankRole::lease(std::uint32_t half) {
  if (leased_[half]) return;
  leased_[half] = true;
  sink_.lease(half);
}

// Makes the clients map what is recorded as live, if they may not; true while that is under way.
bool RankRole::resync() {
  const auto halves = sink_.halves();
  if (synced() || halves.empty() || !halves[0].tag) return false;
  exchange_to(sink_.live(), *halves[0].tag);
  return true;
}

void RankRole::exchange_to(std::uint32_t half, const Tag& tag) {
  stage_ = Stage::kExchanging;
  context_.perform(DoExchange{attempt_, half, tag});
}

void RankRole::exchange(const model::MemberId& driver, const RankExchange& request) {
  if (is_over(driver, request.attempt, "RankExchange")) return;
  driver_ = driver;
  attempt_ = request.attempt;
  wanted_ = request.tag;
  if (stage_ == Stage::kPaused && all_paused_) return do_exchange();  // once more, if it failed before
  // This process was restarted after it had paused. All other ranks are paused; so must this one be.
  if (stage_ == Stage::kRunning || stage_ == Stage::kPaused) begin_pause(kLatePauseDeadlineMs);
}

void RankRole::do_exchange() {
  const auto half = sink_.find(*wanted_);
  if (!half) {
    return fail(
        {base::ErrorCode::kNotFound, fmt::format("no half holds version {} of update {}; it was lost or overwritten",
                                                 wanted_->version.value(), wanted_->update.value())});
  }
  if (*half != sink_.live()) lease(1 - *half);
  sink_.make_live(*half);  // recorded before the exchange: after a restart clients are told to map this half
  exchange_to(*half, *wanted_);
}

void RankRole::done(const ExchangeDone& event) {
  if (stage_ != Stage::kExchanging) return;
  stage_ = Stage::kPaused;
  if (!event.result) return fail(event.result.error());
  for (std::uint32_t half = 0; half < 2; ++half) {
    if (std::exchange(leased_[half], false)) sink_.end_lease(half);
  }
  failed_.reset();
  if (event.attempt != attempt_) return;  // a newer attempt asks for its own half
  if (!wanted_ || context_.state.halves[sink_.live()].tag != *wanted_) return answer(RankPaused{attempt_});
  sink_.committed(*wanted_);
  answer(RankExchanged{attempt_});
}

void RankRole::resume(const model::MemberId& driver, const RankResume& request) {
  if (request.attempt < attempt_) return context_.stale("RankResume of an older attempt");
  driver_ = driver;
  attempt_ = request.attempt;
  if (attempt_ <= resumed_attempt_) return answer(RankResumed{attempt_});
  if (stage_ != Stage::kPaused && stage_ != Stage::kRunning) return;  // busy; the driver repeats
  if (!synced()) {                                                    // the driver repeats
    if (all_paused_ && stage_ == Stage::kPaused && resync()) return;
    return begin_pause(kLatePauseDeadlineMs);
  }
  stage_ = Stage::kResuming;
  const auto halves = sink_.halves();
  std::optional<model::WeightVersion> version;
  if (!halves.empty() && halves[0].tag) version = halves[0].tag->version;
  context_.perform(DoResume{attempt_, version});
}

void RankRole::done(const ResumeDone& event) {
  if (stage_ != Stage::kResuming) return;
  stage_ = Stage::kRunning;
  resumed_attempt_ = std::max(resumed_attempt_, event.attempt);
  context_.state.paused_attempt = 0;
  context_.state.resumed_attempt = resumed_attempt_;
  context_.save();
  wanted_.reset();
  failed_.reset();
  answer(RankResumed{event.attempt});
}

void RankRole::tick(Now now) {
  if (stage_ != Stage::kPaused || now.mono < next_repeat_) return;
  next_repeat_ = now.mono + kRepeatInterval;
  if (failed_) return answer(RankFailed{attempt_, *failed_});
  answer(RankPaused{attempt_});
}

}  // namespace weightbus::protocol
