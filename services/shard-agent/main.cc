// weightbus-shard-agent: beside one trainer rank, serves its shards. main() composes; runtime/agent_loop.h runs.
#include <cstdio>

#include "weightbus/device/host/factory.h"
#include "weightbus/observe/logs.h"
#include "weightbus/runtime/agent_service.h"
#include "weightbus/runtime/keeper.h"
#include "weightbus/runtime/service.h"
#include "weightbus/runtime/shard_work.h"

namespace weightbus {
namespace {

using runtime::Setting;
using runtime::SettingType;

runtime::ProgramInfo program() {
  std::vector<Setting> settings = {
      {"trainer_rank", SettingType::kCount, "0", "Which trainer rank's shards this agent serves.", "", "", 0, 65'535},
      {"trainer_world", SettingType::kCount, "1", "How many trainer ranks there are.", "ranks", "", 1, 65'536},
  };
  for (auto& setting : runtime::agent_settings())
    settings.push_back(std::move(setting));
  for (auto& setting : runtime::common_settings())
    settings.push_back(std::move(setting));
  return {"weightbus-shard-agent", "Serves the weights of one trainer rank.", WEIGHTBUS_VERSION, std::move(settings),
          [](const runtime::Settings& s) -> base::Status {
            if (s.count("trainer_rank") < s.count("trainer_world")) return {};
            return base::fail(base::ErrorCode::kInvalidArgument, "trainer_rank must be below trainer_world");
          }};
}

std::string member_name(const runtime::Settings& s) {
  const std::string& name = s.text("member");
  return name.empty() ? "trainer-" + std::to_string(s.count("trainer_rank")) : name;
}

std::string shm_prefix(const runtime::Settings& s) {
  return runtime::member_shm_prefix(s.text("model"), member_name(s));
}

class Machine final : public runtime::AgentMachine {
 public:
  explicit Machine(protocol::ShardAgentFsm& fsm) : fsm_(fsm) {}
  void start(protocol::Now) override {}
  void step(protocol::Now now, const protocol::Envelope& message) override { fsm_.step(now, message); }
  void done(protocol::Now now, const protocol::AgentEvent& event) override { fsm_.done(now, event); }
  void tick(protocol::Now now) override { fsm_.tick(now); }
  protocol::AgentOutput take_output() override { return fsm_.take_output(); }
  protocol::Readiness readiness(protocol::Now now) const override { return fsm_.readiness(now); }
  const protocol::AgentState& state() const override { return fsm_.state(); }
  std::vector<model::Member> peers() const override { return {}; }

 private:
  protocol::ShardAgentFsm& fsm_;
};

int work(const runtime::Settings& settings) {
  const std::string name = member_name(settings);
  if (auto logs = runtime::start_logs(program(), settings, name); !logs) return runtime::kExitBadConfig;
  runtime::remove_shm_names(shm_prefix(settings));  // of an earlier start that was killed
  auto files = runtime::AgentFiles::open(settings.text("state_dir"));
  if (!files) return runtime::end_for_good("agent.state_dir", files.error());
  auto state = files->load_state();
  if (!state) return runtime::end_for_good("agent.state", state.error());
  auto key = runtime::own_public_key(settings);
  if (!key) return runtime::end_for_good("keys", key.error());
  auto transport = runtime::make_transport(settings);
  if (!transport) return runtime::end_for_good("transport", transport.error());
  observe::Metrics metrics;
  const std::shared_ptr<device::Device> device = device::make_host_device({});
  auto channels = runtime::make_channels(settings, device);
  if (!channels) return runtime::end_for_good("channels", channels.error());
  const std::string& host = settings.text("host");
  const model::Member self{model::MemberId{name},
                           model::Role::kShardAgent,
                           model::ModelName{settings.text("model")},
                           model::HostId{host.empty() ? runtime::default_host_id() : host},
                           "",
                           static_cast<std::uint32_t>(settings.count("trainer_rank")),
                           static_cast<std::uint32_t>(settings.count("trainer_world")),
                           "",
                           "",
                           *key};
  protocol::ShardAgentFsm fsm(self, runtime::new_boot_id(), runtime::software_name(), std::move(*state));
  Machine machine(fsm);
  runtime::ShardWork shard_work(self, shm_prefix(settings), device, *channels,
                                static_cast<unsigned>(settings.count("threads")));
  return runtime::run_agent(settings, self, **transport, machine, shard_work, *files, metrics);
}

}  // namespace
}  // namespace weightbus

int main(int argc, char** argv) {
  return weightbus::runtime::run_service(weightbus::program(), argc, argv, weightbus::shm_prefix, weightbus::work);
}
