// The driver: pauses, exchanges and resumes all ranks of one engine, and needs no coordinator once Commit has arrived.
//
//   idle -> pausing --(all paused)--> exchanging --(all exchanged)--> resuming --(all resumed)--> idle: Committed
//              `--(a rank failed, deadline)--> resuming, nothing exchanged --------------------> idle: CommitFailed
// Once exchanging it never goes back: some ranks may have the new half already, so the engine stays paused until all
// do, or until a later Commit (a catch-up) names other halves. That it is so (`torn`) is kept over restarts.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "weightbus/protocol/agent_context.h"

namespace weightbus::protocol {

class DriverFsm {
 public:
  explicit DriverFsm(AgentContext& context) : context_(context) {}

  // After a restart: goes on with the Commit that was saved as pending.
  void start(Now now);
  void commit(Now now, model::UpdateId update, const Commit& request);
  void paused(Now now, const model::MemberId& rank, const RankPaused& message);
  void exchanged(Now now, const model::MemberId& rank, const RankExchanged& message);
  void resumed(Now now, const model::MemberId& rank, const RankResumed& message);
  void failed(Now now, const model::MemberId& rank, const RankFailed& message);
  void tick(Now now);
  // The coordinator has gone on to a newer update: Commits of older ones are given up, as far as they can be.
  void give_up_older(Now now, model::UpdateId newer);
  void forget() { floor_ = 0, last_update_.reset(), last_answer_.reset(); }
  bool idle() const { return stage_ == Stage::kIdle; }

 private:
  enum class Stage : std::uint8_t { kIdle, kPausing, kExchanging, kResuming };

  bool mine(Now now, const model::MemberId& rank, std::uint64_t attempt);
  void begin(Now now);
  void enter(Now now, Stage stage);
  void send_to_waiting();
  void finish(Now now);
  void report_failure(base::Error error);

  AgentContext& context_;
  Stage stage_ = Stage::kIdle;
  std::set<model::MemberId> answered_;  // of this stage
  std::optional<base::Error> error_;    // why nothing was exchanged
  bool failure_reported_ = false;
  base::Instant began_{};
  base::Instant deadline_{};
  base::Instant next_resend_{};
  // The last answer, for a Commit that is repeated.
  std::uint64_t floor_ = 0;  // Commits of updates below are over
  std::optional<model::UpdateId> last_update_;
  std::optional<Body> last_answer_;
};

}  // namespace weightbus::protocol
