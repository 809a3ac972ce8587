// A whole fleet of real processes in a folder of its own: coordinator, shard agents, engine agents. When it ends, every
// process is asked to stop, has to end with 0, and may leave nothing behind.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/service_process.h"
#include "weightbus/base/result.h"
#include "weightbus/protocol/messages.h"
#include "weightbus/protocol/status.h"
#include "weightbus/runtime/admin_client.h"

namespace weightbus::testing {

using Flags = std::map<std::string, std::string>;

struct FleetOptions {
  unsigned trainers = 2;
  std::vector<unsigned> engines{2, 2};  // ranks of "engine-0", "engine-1" and so on
  Flags coordinator;                    // besides short heartbeats, and timeouts that a busy machine keeps
  Flags trainer;
  Flags engine;
  bool keys = false;  // CURVE, each process with keys of its own
  bool start = true;  // all of it, and wait until everyone has joined
};

class Fleet {
 public:
  explicit Fleet(FleetOptions options = {});
  ~Fleet();  // ends(), unless it was called
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  const std::string& model() const { return model_; }
  const std::string& address() const { return address_; }  // a loopback address that no other fleet uses
  const std::string& endpoint() const { return endpoint_; }
  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  ServiceProcess& coordinator() { return *processes_.at("coordinator"); }
  ServiceProcess& trainer(unsigned rank) { return *processes_.at("trainer-" + std::to_string(rank)); }
  ServiceProcess& engine(unsigned number, unsigned rank) { return process(member(number, rank)); }
  ServiceProcess& process(const std::string& name) { return *processes_.at(name); }
  static std::string member(unsigned number, unsigned rank);  // "engine-0-tp1"
  std::string socket(unsigned number, unsigned rank) const;
  void start_coordinator();  // on the same endpoint each time, and waits until it listens
  void add_engine(unsigned number, unsigned ranks, const Flags& more = {});  // starts it too
  // Adds a process that belongs to no role; not started.
  ServiceProcess& add(const std::string& name, const std::string& program, Flags settings);
  Flags agent_settings(const std::string& name) const;
  void start_all();
  void kill_engine(unsigned number);  // keepers of all ranks
  void start_engine(unsigned number);

  // With `keys`: the keys file of a new name, which is on no list.
  std::string make_keys(const std::string& name);
  void allow(const std::string& name, model::Role role, const std::string& bound_to);
  runtime::AdminClientOptions client_options() const;

  // A checkpoint of made-up content, written at the first call; `size` as checkpoint::parse_synthetic_size takes it.
  std::string checkpoint(unsigned variant, const std::string& size = "tiny");

  template <class Reply>
  base::Result<Reply> ask(protocol::Body body) {
    return client().ask<Reply>(std::move(body), kPatience);
  }
  base::Result<protocol::UpdateAccepted> push(const std::string& directory, protocol::PublishRequest more = {});
  base::Result<protocol::UpdateAccepted> rollback(std::optional<std::uint64_t> to = std::nullopt);
  protocol::ModelStatus status();
  // Waits for a status that holds; the last one seen, after a failure of the test if none did.
  protocol::ModelStatus wait_for(const std::string& what,
                                 const std::function<bool(const protocol::ModelStatus&)>& holds);
  void wait_joined();                          // everyone that runs
  void wait_serving(std::uint64_t version);    // committed, and every engine serves it out of quarantine
  void wait_snapshots(std::uint64_t version);  // every engine rank holds one of it
  protocol::UpdateStatus end_of(model::UpdateId update);
  protocol::UpdateStatus end_of(const base::Result<protocol::UpdateAccepted>& accepted);  // a refusal fails the test
  protocol::UpdateStatus push_to_end(const std::string& directory, protocol::PublishRequest more = {});
  protocol::UpdateStatus rollback_to_end(std::optional<std::uint64_t> to = std::nullopt);
  std::uint64_t committed();  // 0: none
  // Version and digest of each rank's live half, by member.
  std::map<std::string, std::pair<std::uint64_t, std::string>> live_digests();

  // Stops every process that runs, and checks what is left.
  void ends();
  std::vector<std::string> shared_memory() const;  // names of this fleet in /dev/shm

 private:
  runtime::AdminClient& client();
  void define_trainer(unsigned rank);
  void define_engine(unsigned number, unsigned rank, unsigned ranks, const Flags& more);
  std::size_t engine_ranks() const;  // of all engines
  void dump_logs() const;

  FleetOptions options_;
  std::string directory_;
  std::string model_;
  std::string address_;
  std::string endpoint_;
  std::map<std::string, std::string> public_keys_;  // of names
  std::map<unsigned, unsigned> ranks_;              // of engines
  std::map<std::string, std::unique_ptr<ServiceProcess>> processes_;
  std::unique_ptr<runtime::AdminClient> client_;
  bool ended_ = false;
};

// For messages of failed assertions.
std::string describe(const protocol::UpdateStatus& update);

}  // namespace weightbus::testing
