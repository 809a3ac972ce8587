// A shard agent or an engine agent: its state machine, its disk and memory, and the work that the state machine asks
// for.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "tests/simulation/world.h"
#include "weightbus/protocol/engine_agent_fsm.h"
#include "weightbus/protocol/shard_agent_fsm.h"

namespace weightbus::simulation {

struct Snapshot {
  model::Hash128 layout;
  Bytes bytes;
};

class AgentProcess {
 public:
  AgentProcess(World& world, model::Member self);

  void start();
  void kill();    // the process; its memory, disk and clients stay
  void reboot();  // the host: memory is lost as well
  void wipe();    // and the disk
  bool alive() const { return shard_ || engine_; }
  void receive(const protocol::Envelope& message);

  const model::Member& self() const { return self_; }
  const protocol::EngineAgentFsm* engine_fsm() const { return engine_.get(); }
  bool ready() const { return engine_ && engine_->readiness(world_.clock.protocol_now()).ready; }
  // --- what outlives the process
  const std::optional<protocol::AgentState>& disk() const { return disk_; }
  bool has_arena() const { return !halves_[0].empty(); }
  const Bytes& half(std::size_t index) const { return halves_[index]; }
  // Memory that an update's sink may read, while this process serves it; nullptr otherwise.
  const Bytes* served(model::UpdateId update);

 private:
  struct Serving {
    const Bytes* memory = nullptr;
    std::shared_ptr<const Bytes> owned;  // a snapshot that was read
    std::optional<model::WeightVersion> snapshot;
    bool told = false;  // what to serve
  };

  template <class F>
  void with(F&& f);  // f(state machine), then its outputs
  void tick();
  void drain();
  protocol::AgentOutput take_output();
  void save(const protocol::AgentState& state);
  void check_send(const protocol::Envelope& envelope);
  void enqueue(protocol::AgentAction action);
  void start_next();
  void finish(protocol::AgentEvent event);  // of the action that runs: the next may start
  void report(protocol::AgentEvent event);
  void later(std::uint64_t us_max, std::function<void()> action);

  // The actions; each ends with finish() or report().
  void perform(const protocol::DoOpenSource& action);
  void perform(const protocol::DoServe& action);
  void perform(const protocol::DoDigestSource& action);
  void perform(const protocol::DoReleaseSource& action);
  void perform(const protocol::DoOpenSink& action);
  void perform(const protocol::DoJoin& action);
  void perform(const protocol::DoPull& action);
  void pull_bucket(const protocol::DoPull& action, std::size_t bucket, base::Instant deadline);
  void perform(const protocol::DoCancel&) {}
  void perform(const protocol::DoLeave& action);
  void perform(const protocol::DoPause& action);
  void perform(const protocol::DoExchange& action);
  void perform(const protocol::DoResume& action);
  void perform(const protocol::DoRetain& action);
  void perform(const protocol::DoDigestLive& action);
  base::Error failure() const { return {base::ErrorCode::kUnavailable, "a simulated failure"}; }

  World& world_;
  const model::Member self_;
  std::optional<protocol::AgentState> disk_;
  std::map<model::WeightVersion, Snapshot> snapshots_;
  Bytes halves_[2];
  Bytes trainer_memory_;

  // --- of the process
  std::uint64_t incarnation_ = 0;
  std::unique_ptr<protocol::ShardAgentFsm> shard_;
  std::unique_ptr<protocol::EngineAgentFsm> engine_;
  std::deque<protocol::AgentAction> queue_;
  bool busy_ = false;
  bool draining_ = false;
  std::set<std::uint64_t> cancelled_;
  std::map<std::uint64_t, Serving> serving_;
  std::map<std::uint64_t, std::vector<model::MemberId>> joined_;
};

}  // namespace weightbus::simulation
