// A whole fleet in one thread, without chance: real state machines, codec and plans; memory is vectors, the network a
// queue, and time passes only when a test says so. A test says which action fails and which message is lost.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/toy_model.h"
#include "weightbus/protocol/coordinator_fsm.h"
#include "weightbus/protocol/engine_agent_fsm.h"
#include "weightbus/protocol/shard_agent_fsm.h"

namespace weightbus::field {

using simulation::Bytes;

struct Shape {
  std::uint32_t trainers = 2;
  std::uint32_t engines = 2;
  std::uint32_t tp = 2;
};

// What becomes of an action that an agent's state machine asks for.
enum class Fate : std::uint8_t {
  kDone,
  kFails,        // reports an error, having done nothing
  kNever,        // hangs until it is cancelled
  kHalfWritten,  // a pull: breaks off after half of its buckets
  kUnwritten,    // a pull: reports success without having written
};

struct Agent {
  explicit Agent(model::Member member) : self(std::move(member)) {}

  const model::Member self;
  std::unique_ptr<protocol::ShardAgentFsm> shard;
  std::unique_ptr<protocol::EngineAgentFsm> engine;
  std::uint64_t starts = 0;
  // What outlives the process.
  std::optional<protocol::AgentState> disk;
  Bytes halves[2];
  std::optional<std::uint32_t> mapped;  // the half that the engine computes with
  bool gate_closed = false;
  // What it was asked to do.
  std::uint64_t pulls = 0;
  std::uint64_t exchanges = 0;
  std::uint64_t resumes = 0;
  std::map<std::uint64_t, Bytes> serving;  // by update
  std::optional<model::UpdateId> hanging;  // pull

  bool alive() const { return shard || engine; }
};

class Fleet {
 public:
  explicit Fleet(Shape shape = {});

  // --- what a test may set
  std::function<Fate(const Agent&, const protocol::AgentAction&)> fate;
  std::function<bool(const protocol::Envelope&)> loses;
  // What a trainer rank holds of a content.
  std::function<std::pair<model::SourceManifest, Bytes>(std::uint64_t content, std::uint32_t rank)> trainer;

  // --- time
  void settle();                   // until nothing is under way
  void pass(base::Duration time);  // in steps of 25 ms

  // --- what an operator does; each settles, and `push` takes a content number
  protocol::Body request(protocol::Body body);
  protocol::Body push(std::uint64_t content, std::uint32_t require = 0);
  protocol::ModelStatus status() const;
  protocol::UpdateStatus last() const { return status().recent.at(0); }

  // --- processes: members are "shard-0", "engine-0/0"
  Agent& agent(const std::string& id) { return agents_.at(model::MemberId(id)); }
  std::map<model::MemberId, Agent>& agents() { return agents_; }
  void kill(const std::string& id);
  void start(const std::string& id);
  void lose_memory(const std::string& id);  // of an agent that was killed

  bool ready(const std::string& id);
  std::string why_not_ready(const std::string& id);
  // Whether the engine rank computes with exactly this content.
  bool serves(const std::string& id, std::uint64_t content);
  bool all_serve(std::uint64_t content);
  // A message from outside, as if it had just arrived; settles.
  void inject(const protocol::Envelope& envelope);
  // Messages that were dropped as of an older epoch, another update or a stranger.
  std::uint64_t dropped() const { return dropped_; }
  // Everything that was sent, in order.
  const std::vector<protocol::Envelope>& sent() const { return sent_; }

 private:
  template <class F>
  void with(Agent& agent, F&& f);
  void drain();
  void drain_agent(Agent& agent);
  void send(const protocol::Envelope& envelope);
  void perform(Agent& agent, const protocol::AgentAction& action);
  void observe(const std::vector<protocol::Observation>& observations);
  void report(Agent& agent, protocol::AgentEvent event);
  std::optional<protocol::AgentEvent> act(Agent& agent, const protocol::AgentAction& action);
  protocol::AgentEvent open_source(Agent& agent, const protocol::DoOpenSource& action);
  std::optional<protocol::AgentEvent> pull(Agent& agent, const protocol::DoPull& action, Fate how);

  const Shape shape_;
  simulation::ToyModel toy_;
  protocol::Now now_{base::Instant(base::Millis(3'600'000)), 1'700'000'000'000ULL};
  protocol::CoordinatorOptions options_;
  std::unique_ptr<protocol::CoordinatorFsm> coordinator_;
  std::map<model::MemberId, Agent> agents_;
  std::deque<std::function<void()>> queue_;
  std::vector<protocol::Envelope> sent_;
  std::uint64_t dropped_ = 0;
  std::uint64_t requests_ = 0;
  std::map<std::uint64_t, protocol::Body> replies_;
};

}  // namespace weightbus::field
