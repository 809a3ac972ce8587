// The loop of an agent's worker: messages, events and time into its state machine, and its output out: save, then send,
// perform, observe.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "weightbus/protocol/engine_agent_fsm.h"
#include "weightbus/protocol/shard_agent_fsm.h"
#include "weightbus/runtime/agent_files.h"
#include "weightbus/runtime/control_link.h"
#include "weightbus/runtime/mailbox.h"

namespace weightbus::runtime {

// What the loop needs of a state machine; the two kinds of agents differ only here.
class AgentMachine {
 public:
  virtual ~AgentMachine() = default;
  virtual void start(protocol::Now now) = 0;
  virtual void step(protocol::Now now, const protocol::Envelope& message) = 0;
  virtual void done(protocol::Now now, const protocol::AgentEvent& event) = 0;
  virtual void tick(protocol::Now now) = 0;
  virtual protocol::AgentOutput take_output() = 0;
  virtual protocol::Readiness readiness(protocol::Now now) const = 0;
  virtual const protocol::AgentState& state() const = 0;
  virtual std::vector<model::Member> peers() const = 0;  // to be connected to
};

// Carries actions out beside the loop. `post` may be called from any thread, once for each action that has a Done
// event.
class AgentWork {
 public:
  virtual ~AgentWork() = default;
  virtual void perform(protocol::AgentAction action, std::function<void(protocol::AgentEvent)> post) = 0;
  // Called before each tick, from the loop: progress into the machine, figures into the metrics.
  virtual void report() = 0;
  // Cancels what runs and waits for it; no post() is called any more when it returns. The loop calls it last.
  virtual void finish() = 0;
};

struct AgentLoopOptions {
  model::Member self;
  std::string coordinator_endpoint;
  std::string coordinator_key;  // Z85; empty: plain, loopback only
  std::function<void(const protocol::Observation&)> observe;
};

inline constexpr int kExitFatal = 64;       // another start would end alike (KeeperOptions::no_restart_exit_code)
inline constexpr int kExitCannotSave = 70;  // the state folder cannot be written

class AgentLoop {
 public:
  // Everything is borrowed and outlives the loop.
  AgentLoop(AgentLoopOptions options, transport::Transport& transport, AgentMachine& machine, AgentWork& work,
            AgentFiles& files);

  // Runs until stop() and returns the process's exit code.
  int run();
  // From any thread.
  void stop();
  protocol::Readiness readiness() const;
  const ControlLink::Counters& counters() const { return link_.counters(); }

 private:
  bool trusted(const Incoming& message) const;
  void carry_out();
  void connect_peers();

  AgentLoopOptions options_;
  transport::Transport& transport_;
  ControlLink link_;
  AgentMachine& machine_;
  AgentWork& work_;
  AgentFiles& files_;
  Mailbox mailbox_;
  std::map<model::MemberId, std::string> peers_;  // endpoint by member
  std::atomic<bool> stop_{false};
  std::optional<int> exit_code_;
  mutable std::mutex readiness_mutex_;
  protocol::Readiness readiness_{false, "starting"};
};

}  // namespace weightbus::runtime
