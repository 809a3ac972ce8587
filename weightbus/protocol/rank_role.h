// What every rank of an engine does at a commit: pause, exchange, resume, on its driver's word.
#pragma once

#include <cstdint>
#include <optional>

#include "weightbus/protocol/agent_context.h"
#include "weightbus/protocol/sink_role.h"

namespace weightbus::protocol {

class RankRole {
 public:
  RankRole(AgentContext& context, SinkRole& sink) : context_(context), sink_(sink) {}

  // After a restart: clients that were paused stay so until the driver says what is to become of them.
  void start();
  // Who the driver is, for a rank that was restarted while paused and has heard of none since.
  void know_driver(const model::MemberId& driver) {
    if (!driver_) driver_ = driver;
  }
  void pause(const model::MemberId& driver, const RankPause& request);
  void exchange(const model::MemberId& driver, const RankExchange& request);
  void resume(const model::MemberId& driver, const RankResume& request);
  void done(const PauseDone& event);
  void done(const ExchangeDone& event);
  void done(const ResumeDone& event);
  // Whether the clients may be stopped, so that what is recorded as live may not be computed with yet.
  bool paused() const { return stage_ != Stage::kRunning; }
  // Repeats RankPaused while paused, so that a driver that forgot the attempt lets the rank go on.
  void tick(Now now);

 private:
  enum class Stage : std::uint8_t { kRunning, kPausing, kPaused, kExchanging, kResuming };

  void answer(Body body) {
    if (driver_) context_.send(*driver_, std::nullopt, std::move(body));
  }
  bool is_over(const model::MemberId& driver, std::uint64_t attempt, const char* what);
  void begin_pause(std::uint32_t deadline_ms);
  void fail(base::Error error);
  void do_exchange();
  void exchange_to(std::uint32_t half, const Tag& tag);
  bool synced() const { return !leased_[0] && !leased_[1]; }
  bool resync();
  void lease(std::uint32_t half);

  AgentContext& context_;
  SinkRole& sink_;
  Stage stage_ = Stage::kRunning;
  std::uint64_t attempt_ = 0;          // the newest seen
  std::uint64_t resumed_attempt_ = 0;  // the newest resumed
  std::optional<model::MemberId> driver_;
  std::optional<Tag> wanted_;  // exchange as soon as paused
  std::optional<base::Error> failed_;
  bool all_paused_ = false;  // every client has stopped
  // Halves that clients may have mapped beside the live one, until an exchange has succeeded: not to be written.
  bool leased_[2] = {false, false};
  base::Instant next_repeat_{};
  std::uint32_t deadline_ms_ = 0;
};

}  // namespace weightbus::protocol
