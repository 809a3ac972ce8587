// What the three services share: common settings, logs, keys, HTTP, the keeper.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weightbus/observe/http.h"
#include "weightbus/observe/metrics.h"
#include "weightbus/runtime/config.h"
#include "weightbus/runtime/source_work.h"
#include "weightbus/transport/zmq/zmq_transport.h"

namespace weightbus::runtime {

// Settings that every service has: log_level, log_json, http, keys_file, allow_file.
std::vector<Setting> common_settings();
// Settings that both kinds of agents have: coordinator, coordinator_key, model, member, host, state_dir, bulk_listen,
// bulk_advertise, channels, threads.
std::vector<Setting> agent_settings();

// Runs a service's main(): reads the settings, becomes the keeper, or calls `work` as the worker. `shm_prefix` gives
// what the keeper is to remove in the end (empty: nothing).
int run_service(const ProgramInfo& program, int argc, char** argv,
                const std::function<std::string(const Settings&)>& shm_prefix,
                const std::function<int(const Settings&)>& work);

// Sets up logs and writes the effective configuration.
base::Status start_logs(const ProgramInfo& program, const Settings& settings, const std::string& member);

// The transport with this service's keys, or plain.
base::Result<std::unique_ptr<transport::ZmqTransport>> make_transport(const Settings& settings);
// The public key of keys_file; empty without one.
base::Result<std::string> own_public_key(const Settings& settings);
// Loads allow_file again (SIGHUP is not used: the file is looked at whenever it changes). Call now and then.
class AllowListWatch {
 public:
  AllowListWatch(const Settings& settings, transport::ZmqTransport& transport);
  void poll();

 private:
  std::string path_;
  transport::ZmqTransport& transport_;
  std::int64_t seen_ns_ = -1;
};

base::Result<std::unique_ptr<observe::HttpServer>> start_http(const Settings& settings, observe::Metrics& metrics,
                                                              observe::HealthCheck live, observe::HealthCheck ready);

// Equal in every process that can share memory with this one: the machine's boot and the tmpfs behind /dev/shm.
std::string default_host_id();
// A prefix for shared memory names that belongs to one member: "weightbus.<model>.<member>.".
std::string member_shm_prefix(const std::string& model, const std::string& member);
// The one list of channels. kInvalidArgument for a name in `channels` that does not exist.
base::Result<Channels> make_channels(const Settings& settings, const std::shared_ptr<device::Device>& device);
// A random identity of this start of the process.
model::BootId new_boot_id();
std::string software_name();  // "weightbus 0.1.0"

}  // namespace weightbus::runtime
