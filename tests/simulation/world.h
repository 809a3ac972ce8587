// One simulated fleet: real state machines, codec, store and plan; simulated network, clock, disks, memory, engines.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/simulation/scheduler.h"
#include "tests/simulation/toy_model.h"
#include "weightbus/base/prng.h"
#include "weightbus/protocol/coordinator_fsm.h"
#include "weightbus/protocol/invariants.h"
#include "weightbus/store/memory/memory_store.h"

namespace weightbus::simulation {

// What may go wrong, drawn from the seed. All chances are in percent unless named otherwise.
struct Faults {
  std::uint64_t loss = 0;
  std::uint64_t replay = 0;
  std::uint64_t delay_us_max = 2'000;
  std::uint64_t late = 0;            // delivered up to seconds late
  std::uint64_t death_per_100k = 0;  // at each point between two outputs
  std::uint64_t corruption = 0;      // of a pull
  std::uint64_t work_failure = 0;    // of any action of an agent
  std::uint64_t pause_failure = 0;
  std::uint64_t exchange_failure = 0;
  std::uint64_t append_failure = 0;
  std::uint64_t disaster_ms = 0;  // mean time between kills, reboots, partitions, rivals; 0: none

  static Faults draw(base::Prng& random);
};

// An invariant does not hold.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class AgentProcess;
class CoordinatorProcess;
class EngineProcess;
class AdminClient;

inline const model::ModelName kModel{"toy"};

class World {
 public:
  // `trace`: how many of the last events to keep.
  World(std::uint64_t seed, bool with_faults, std::size_t trace);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void run();  // throws Violation

  // --- for the processes
  base::Prng random;
  Scheduler clock;
  ToyModel toy;
  Faults faults;
  protocol::CoordinatorOptions options;
  std::shared_ptr<store::MemoryJournal> journal;

  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + random.below(high - low + 1); }
  bool dies() { return faults.death_per_100k > 0 && random.below(100'000) < faults.death_per_100k; }
  model::BootId next_boot() { return model::BootId{++boots_}; }
  void send(const protocol::Envelope& envelope);
  AgentProcess* agent(const model::MemberId& id);
  EngineProcess& engine(const std::string& name) { return *engines_.at(name); }
  bool tracing() const { return trace_ > 0; }
  void note(std::string text);
  const std::deque<std::string>& events() const { return events_; }

  // --- what the checks know
  void staged(const model::MemberId& member, const protocol::Tag& tag, bool whole);
  void before_decision(const protocol::Decided& record, const protocol::UpdateRun* run);
  void journal_grew();
  std::optional<std::uint64_t> content_of(model::WeightVersion version) const;
  bool decided(const model::MemberId& rank, const protocol::Tag& tag) const {
    return decided_.contains({rank.value(), tag.update.value()});
  }

  struct Counts {
    std::uint64_t updates = 0, commits = 0, rollbacks = 0, catch_ups = 0, aborts = 0, steps = 0, messages = 0,
                  deaths = 0, corruptions = 0, fenced = 0, lost = 0;
  };
  Counts counts;

 private:
  friend class Scenario;
  void deliver(const model::MemberId& to, const std::string& frame);
  bool cut(const model::MemberId& from, const model::MemberId& to) const;
  void make_fleet();
  void disaster();
  void heal();
  bool converged(std::string& why) const;
  bool lost_all() const;
  void check_runs();

  std::size_t trace_;
  std::uint64_t boots_ = 0;
  std::uint64_t stream_ = 0;
  std::deque<std::string> events_;
  std::set<std::pair<std::string, std::string>> cuts_;  // (from, to), one direction each
  std::map<model::MemberId, std::unique_ptr<AgentProcess>> agents_;
  std::map<std::string, std::unique_ptr<EngineProcess>> engines_;
  std::vector<std::unique_ptr<CoordinatorProcess>> coordinators_;
  std::unique_ptr<AdminClient> admin_;

  protocol::JournalChecker journal_checker_;
  std::size_t journal_checked_ = 0;
  std::set<std::uint64_t> ended_;                                 // versions whose push has ended
  std::map<std::uint64_t, std::uint64_t> contents_;               // committed version -> content number
  std::set<std::pair<std::string, std::uint64_t>> decided_;       // halves that decisions named: (rank, update)
  std::map<std::pair<std::string, std::uint64_t>, bool> staged_;  // (member, update) -> every byte was right
  std::map<std::pair<std::uint64_t, std::uint64_t>, base::Instant> run_began_;  // (epoch, update)
};

}  // namespace weightbus::simulation
