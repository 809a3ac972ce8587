// A coordinator: its state machine over the journal, and the loop's rule: persist, report, send, perform.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/world.h"

namespace weightbus::simulation {

class CoordinatorProcess {
 public:
  CoordinatorProcess(World& world, std::string name) : world_(world), name_(std::move(name)) {}

  // Takes the journal over, if nobody holds it; otherwise tries again later.
  void start();
  void kill();
  void stop_for(base::Duration time);  // SIGSTOP: goes on later, with what it knew
  bool alive() const { return fsm_ != nullptr; }
  void keep_down(bool down) { down_ = down; }
  void receive(const protocol::Envelope& message);
  const protocol::CoordinatorFsm* fsm() const { return fsm_.get(); }
  bool writer() const;  // alive, not fenced

 private:
  void tick();
  void drain();
  bool append(protocol::CoordinatorOutput& output);
  void perform(protocol::CoordinatorAction action);
  bool stopped() const { return world_.clock.now() < stopped_until_; }
  template <class F>
  void when_running(F f);

  World& world_;
  const std::string name_;
  std::uint64_t incarnation_ = 0;
  std::unique_ptr<store::MemoryStore> store_;
  std::unique_ptr<protocol::CoordinatorFsm> fsm_;
  base::Instant stopped_until_{};
  base::Instant renew_at_{};
  bool draining_ = false;
  bool down_ = false;
};

}  // namespace weightbus::simulation
