// weightbus-engine-agent: beside one rank of an inference engine, holds its arena. main() composes;
// runtime/agent_loop.h runs.
#include <cstdio>
#include <filesystem>

#include "weightbus/checkpoint/checkpoint_folder.h"
#include "weightbus/checkpoint/layout_file.h"
#include "weightbus/device/host/factory.h"
#include "weightbus/observe/logs.h"
#include "weightbus/runtime/agent_service.h"
#include "weightbus/runtime/engine_work.h"
#include "weightbus/runtime/keeper.h"
#include "weightbus/runtime/service.h"
#include "weightbus/runtime/state_file.h"

namespace weightbus {
namespace {

using runtime::Setting;
using runtime::SettingType;

runtime::ProgramInfo program() {
  std::vector<Setting> settings = {
      {"engine", SettingType::kText, "engine-0",
       "The engine that this rank belongs to: ranks that share a step are one engine."},
      {"tp_rank", SettingType::kCount, "0", "Which rank of the engine this is; rank 0 is the driver.", "", "", 0,
       65'535},
      {"tp_size", SettingType::kCount, "1", "How many ranks the engine has.", "ranks", "", 1, 65'536},
      {"layout", SettingType::kText, "llama",
       "How tensors lie in the arena: llama (Llama, Qwen2, Qwen3), qwen3_moe, deepseek_v3, replicate, or the path of a "
       "layout file (docs/LAYOUTS.md)."},
      {"config_json", SettingType::kPath, "",
       "The model's config.json, for layouts that name its numbers (head_dim and the like). Empty: they are read off "
       "the tensors' shapes."},
      {"listen", SettingType::kEndpoint, "tcp://127.0.0.1:0",
       "Where the other ranks of the engine reach this one at a commit."},
      {"attach_socket", SettingType::kPath, "",
       "The Unix socket that inference processes attach to. Empty: attach.sock in state_dir."},
      {"snapshot_dir", SettingType::kPath, "",
       "Where committed versions are kept for rollback. Empty: snapshots in state_dir; \"none\" keeps none."},
  };
  for (auto& setting : runtime::agent_settings())
    settings.push_back(std::move(setting));
  for (auto& setting : runtime::common_settings())
    settings.push_back(std::move(setting));
  return {"weightbus-engine-agent", "Receives weights for one rank of an inference engine.", WEIGHTBUS_VERSION,
          std::move(settings), [](const runtime::Settings& s) -> base::Status {
            if (s.count("tp_rank") >= s.count("tp_size")) {
              return base::fail(base::ErrorCode::kInvalidArgument, "tp_rank must be below tp_size");
            }
            auto layout = checkpoint::load_layout(s.text("layout"));
            if (!layout) return base::fail(layout.error());
            return {};
          }};
}

std::string member_name(const runtime::Settings& s) {
  const std::string& name = s.text("member");
  return name.empty() ? s.text("engine") + "-tp" + std::to_string(s.count("tp_rank")) : name;
}

std::string shm_prefix(const runtime::Settings& s) {
  return runtime::member_shm_prefix(s.text("model"), member_name(s));
}

class Machine final : public runtime::AgentMachine {
 public:
  explicit Machine(protocol::EngineAgentFsm& fsm) : fsm_(fsm) {}
  void start(protocol::Now now) override { fsm_.start(now); }
  void step(protocol::Now now, const protocol::Envelope& message) override { fsm_.step(now, message); }
  void done(protocol::Now now, const protocol::AgentEvent& event) override { fsm_.done(now, event); }
  void tick(protocol::Now now) override { fsm_.tick(now); }
  protocol::AgentOutput take_output() override { return fsm_.take_output(); }
  protocol::Readiness readiness(protocol::Now now) const override { return fsm_.readiness(now); }
  const protocol::AgentState& state() const override { return fsm_.state(); }
  std::vector<model::Member> peers() const override { return fsm_.engine(); }

 private:
  protocol::EngineAgentFsm& fsm_;
};

// What an earlier start left: the arena's memory if it is still there, else a state without one.
struct Found {
  std::shared_ptr<runtime::Arena> arena;
  std::optional<model::SinkManifest> manifest;
};
Found find_arena(protocol::AgentState& state, const runtime::AgentFiles& files, device::Device& device,
                 const std::string& prefix) {
  if (!state.has_arena) return {};
  auto manifest = files.load_manifest();
  auto arena = manifest ? runtime::Arena::open(device, prefix, *manifest)
                        : base::Result<std::shared_ptr<runtime::Arena>>(base::fail(manifest.error()));
  if (arena) return {*arena, *manifest};
  observe::log(observe::Level::kWarn, "arena.lost", {{"error", arena.error().message}});
  state.has_arena = false;
  state.live = 0;
  state.halves[0] = state.halves[1] = protocol::Half{};
  return {};
}

base::Status tell_clients(runtime::AttachServer& attach, const protocol::AgentState& state, const Found& found) {
  // Clients that had paused stay paused: their peers may have exchanged already. The driver says how it goes on.
  if (state.paused_attempt != 0) static_cast<void>(attach.pause(base::Duration::zero()));
  if (!found.arena) return {};
  auto info = found.arena->info();
  info.live = state.live;
  info.tag = state.halves[state.live].tag;
  return attach.set_arena(std::move(info));
}

base::Result<model::LayoutNumbers> layout_numbers(const std::string& path) {
  if (path.empty()) return model::LayoutNumbers{};
  WB_ASSIGN(const auto text, runtime::read_file(path, 16U << 20));
  auto config = checkpoint::parse_config(text);
  if (!config) return base::fail(config.error().with(path));
  return config->numbers;
}

base::Result<std::unique_ptr<checkpoint::SnapshotStore>> open_snapshots(const runtime::Settings& settings) {
  std::string directory = settings.text("snapshot_dir");
  if (directory == "none") return std::unique_ptr<checkpoint::SnapshotStore>();
  if (directory.empty()) directory = settings.text("state_dir") + "/snapshots";
  WB_ASSIGN(auto snapshots, checkpoint::SnapshotStore::open(directory));
  for (const auto& damaged : snapshots->damaged()) {
    observe::log(observe::Level::kError, "snapshot.damaged", {{"error", damaged.message}});
  }
  return snapshots;
}

int work(const runtime::Settings& settings) {
  const std::string name = member_name(settings);
  if (auto logs = runtime::start_logs(program(), settings, name); !logs) return runtime::kExitBadConfig;
  auto files = runtime::AgentFiles::open(settings.text("state_dir"));
  if (!files) return runtime::end_for_good("agent.state_dir", files.error());
  auto state = files->load_state();
  if (!state) return runtime::end_for_good("agent.state", state.error());
  auto layout = checkpoint::load_layout(settings.text("layout"));
  if (!layout) return runtime::end_for_good("agent.layout", layout.error());
  auto numbers = layout_numbers(settings.text("config_json"));
  if (!numbers) return runtime::end_for_good("agent.config_json", numbers.error());
  auto key = runtime::own_public_key(settings);
  if (!key) return runtime::end_for_good("keys", key.error());
  auto transport = runtime::make_transport(settings);
  if (!transport) return runtime::end_for_good("transport", transport.error());
  auto endpoint = (*transport)->bind(settings.text("listen"));
  if (!endpoint) return runtime::end_for_good("transport.bind", endpoint.error());
  auto snapshots = open_snapshots(settings);
  if (!snapshots) return runtime::end_for_good("snapshots", snapshots.error());
  observe::Metrics metrics;
  const std::shared_ptr<device::Device> device = device::make_host_device({});
  auto channels = runtime::make_channels(settings, device);
  if (!channels) return runtime::end_for_good("channels", channels.error());
  const Found found = find_arena(*state, *files, *device, shm_prefix(settings));
  std::string socket = settings.text("attach_socket");
  if (socket.empty()) socket = settings.text("state_dir") + "/attach.sock";
  auto attach = runtime::AttachServer::listen({socket});
  if (!attach) return runtime::end_for_good("attach", attach.error());
  if (auto told = tell_clients(**attach, *state, found); !told)
    return runtime::end_for_good("attach.arena", told.error());

  const std::string& host = settings.text("host");
  const model::Member self{model::MemberId{name},
                           model::Role::kEngineAgent,
                           model::ModelName{settings.text("model")},
                           model::HostId{host.empty() ? runtime::default_host_id() : host},
                           "",
                           static_cast<std::uint32_t>(settings.count("tp_rank")),
                           static_cast<std::uint32_t>(settings.count("tp_size")),
                           settings.text("engine"),
                           *endpoint,
                           *key};
  std::vector<protocol::HeldVersion> held;
  if (*snapshots) held = (*snapshots)->list();
  protocol::EngineAgentFsm fsm(self, runtime::new_boot_id(), runtime::software_name(), std::move(*state),
                               found.manifest, held);
  Machine machine(fsm);
  runtime::EngineWork engine_work(
      {self, *layout, *numbers, shm_prefix(settings), static_cast<unsigned>(settings.count("threads"))}, device,
      *channels, found.arena, **attach, *files, std::move(*snapshots), metrics);
  engine_work.set_machine(fsm);
  return runtime::run_agent(settings, self, **transport, machine, engine_work, *files, metrics);
}

}  // namespace
}  // namespace weightbus

int main(int argc, char** argv) {
  return weightbus::runtime::run_service(weightbus::program(), argc, argv, weightbus::shm_prefix, weightbus::work);
}
