// The loop of the coordinator: messages and time into its state machine, and its output out: persist, then send,
// perform, observe. It also holds the journal's lease, and ends when another coordinator has taken it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weightbus/protocol/coordinator_fsm.h"
#include "weightbus/runtime/control_link.h"
#include "weightbus/runtime/mailbox.h"
#include "weightbus/runtime/worker_pool.h"
#include "weightbus/store/state_store.h"

namespace weightbus::runtime {

struct CoordinatorLoopOptions {
  protocol::CoordinatorOptions protocol;
  std::string holder;  // of the journal's lease, for people: host and process
  base::Duration lease = base::Millis(10'000);
  std::function<void(const protocol::Observation&)> observe;
  std::function<void(const std::vector<protocol::ModelStatus>&)> report;  // every second or so
  std::function<void(base::Duration)> appended;                           // how long a journal append took
  std::function<void(const std::string& reason)> dropped;                 // a frame that was refused
};

inline constexpr int kExitFenced = 64;        // another coordinator has the journal
inline constexpr int kExitJournal = 74;       // an append whose outcome is unknown, or a journal that cannot be read
inline constexpr int kExitNewerJournal = 64;  // written by a newer version: another start would end alike

// Reads a whole journal. kUnsupported: a newer version wrote it.
base::Result<protocol::CoordinatorState> replay(store::StateStore& store);

class CoordinatorLoop {
 public:
  // Both are borrowed and outlive the loop.
  CoordinatorLoop(CoordinatorLoopOptions options, transport::Transport& transport, store::StateStore& store);
  ~CoordinatorLoop();

  // Acquires the journal, replays it and runs until stop(). Returns the process's exit code.
  int run();
  void stop();                                        // from any thread
  std::vector<protocol::ModelStatus> status() const;  // from any thread: as last reported
  bool serving() const { return serving_; }
  const ControlLink::Counters& counters() const { return link_.counters(); }

 private:
  std::optional<base::Error> admit(const Incoming& message);
  bool begin();
  void carry_out();
  bool persist(const std::vector<protocol::JournalRecord>& records);
  void perform(protocol::CoordinatorAction action);
  void keep_lease();
  void publish_status();

  CoordinatorLoopOptions options_;
  transport::Transport& transport_;
  store::StateStore& store_;
  ControlLink link_;
  Mailbox mailbox_;
  std::unique_ptr<protocol::CoordinatorFsm> fsm_;
  std::unique_ptr<WorkerPool> planner_;
  std::map<std::string, model::MemberId> senders_;  // who spoke first on a connection
  std::atomic<bool> stop_{false};
  std::atomic<bool> serving_{false};
  std::optional<int> exit_code_;
  base::Instant next_renew_{};
  base::Instant next_report_{};
  mutable std::mutex status_mutex_;
  std::vector<protocol::ModelStatus> status_;
};

}  // namespace weightbus::runtime
