// The inference engine behind the engine agents of one name: one process with a rank a GPU, which compute in lock step.
#pragma once

#include <string>
#include <vector>

#include "tests/simulation/world.h"

namespace weightbus::simulation {

class EngineProcess {
 public:
  EngineProcess(World& world, std::string name, std::vector<model::MemberId> ranks);

  void start();
  void kill();
  bool alive() const { return alive_; }
  bool stepping() const { return stepping_; }
  base::Instant step_ends() const { return step_ends_; }
  const std::string& name() const { return name_; }
  const std::vector<model::MemberId>& ranks() const { return ranks_; }

  // What an agent asks of its client.
  bool attached(std::uint32_t rank) const { return alive_ && clients_[rank].attached; }
  void close_gate(std::uint32_t rank) { clients_[rank].closed = true; }
  void open_gate(std::uint32_t rank) { clients_[rank].closed = false; }
  bool gate_closed(std::uint32_t rank) const { return clients_[rank].closed; }
  void map(std::uint32_t rank, std::uint32_t half) { clients_[rank].mapped = static_cast<int>(half); }
  int mapped(std::uint32_t rank) const { return clients_[rank].mapped; }

 private:
  struct Client {
    bool attached = false;
    bool closed = false;  // the launch gate
    int mapped = -1;      // which half; -1: none
  };
  void turn();
  void attach(std::uint32_t rank);
  void begin_step();
  void end_step();
  Bytes seen() const;  // by all ranks

  World& world_;
  const std::string name_;
  const std::vector<model::MemberId> ranks_;
  std::vector<Client> clients_;
  std::uint64_t incarnation_ = 0;
  bool alive_ = false;
  bool stepping_ = false;
  base::Instant step_ends_{};
  Bytes at_begin_;
};

}  // namespace weightbus::simulation
