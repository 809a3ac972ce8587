#include "weightbus/runtime/service.h"

#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "weightbus/channel/shm/factory.h"
#include "weightbus/channel/tcp/factory.h"
#include "weightbus/observe/catalogue.h"
#include "weightbus/observe/logs.h"
#include "weightbus/runtime/agent_loop.h"
#include "weightbus/runtime/keeper.h"
#include "weightbus/runtime/signals.h"
#include "weightbus/runtime/state_file.h"
#include "weightbus/runtime/values.h"

namespace weightbus::runtime {

std::vector<Setting> common_settings() {
  return {
      {"log_level",
       SettingType::kText,
       "info",
       "How much is logged to stderr.",
       "",
       "",
       0,
       UINT64_MAX,
       {"debug", "info", "warn", "error"}},
      {"log_json", SettingType::kFlag, "false", "Log one JSON object a line, for log collectors."},
      {"http", SettingType::kHostPort, "127.0.0.1:0",
       "Where /metrics, /livez and /readyz are served. Port 0 takes a free one, which is logged. Read-only, without a "
       "password: bind other addresses only where the network may see them."},
      {"keys_file", SettingType::kPath, "",
       "This process's CURVE keys (`weightbus keys new`). Needed for every socket off loopback; empty for plain "
       "sockets on loopback."},
      {"allow_file", SettingType::kPath, "",
       "Who may connect to this process: lines of public key, role and member (`weightbus keys allow`). Read again "
       "when it changes. Needed with keys_file by every process that listens."},
  };
}

std::vector<Setting> agent_settings() {
  return {
      {"coordinator", SettingType::kEndpoint, "tcp://127.0.0.1:7070", "Where the coordinator listens."},
      {"coordinator_key", SettingType::kText, "",
       "The coordinator's public key (Z85); it is refused under any other. Needed with keys_file."},
      {"model", SettingType::kText, "default", "The model that this agent belongs to; one coordinator serves several."},
      {"member", SettingType::kText, "", "This agent's name, unique in its model. Empty: made from its rank."},
      {"host", SettingType::kText, "",
       "Agents of equal host share memory. Empty: found out; set it only to keep agents of one machine from using "
       "shared memory."},
      {"state_dir", SettingType::kPath, std::nullopt,
       "What this agent must remember over restarts. One folder for each agent, on a local disk.", "",
       "/var/lib/weightbus/agent"},
      {"bulk_listen", SettingType::kHostPort, "127.0.0.1:0",
       "Where the tcp channel listens for engine agents of other hosts. What it carries is authenticated and not "
       "encrypted."},
      {"bulk_advertise", SettingType::kText, "",
       "The host name or address that others connect to for bulk data. Empty: that of bulk_listen, or this host's "
       "name."},
      {"channels", SettingType::kTextList, "shm,tcp",
       "Ways for bulk bytes that may be used. Leave one out to forbid it."},
      {"threads", SettingType::kCount, "2",
       "Threads that copy and digest. More helps only where one core does not fill the memory bus.", "threads", "", 1,
       256},
  };
}

int run_service(const ProgramInfo& program, int argc, char** argv,
                const std::function<std::string(const Settings&)>& shm_prefix,
                const std::function<int(const Settings&)>& work) {
  const Launch launch = read_settings(program, argc, argv);
  if (launch.exit_code) {
    std::fputs(launch.text.c_str(), *launch.exit_code == 0 ? stdout : stderr);
    return *launch.exit_code;
  }
  for (const auto& warning : launch.warnings)
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), warning.c_str());
  if (launch.worker) {
    ignore_sigpipe();
    if (sodium_init() < 0) {
      std::fprintf(stderr, "%s: libsodium does not start\n", program.name.c_str());
      return kExitFatal;
    }
    return work(launch.settings);
  }
  KeeperOptions keeper;
  keeper.arguments.assign(argv + 1, argv + argc);
  keeper.arguments.emplace_back("--worker");
  keeper.no_restart_exit_code = kExitFatal;
  keeper.shm_prefix = shm_prefix(launch.settings);
  return run_keeper(keeper);
}

base::Status start_logs(const ProgramInfo& program, const Settings& settings, const std::string& member) {
  WB_ASSIGN(const auto level, observe::parse_level(settings.text("log_level")));
  observe::configure_logs({level, settings.flag("log_json"), {{"member", member}}, nullptr});
  observe::log(observe::Level::kInfo, "service.start",
               {{"program", program.name}, {"version", program.version}, {"settings", settings.effective()}});
  return {};
}

base::Result<std::string> own_public_key(const Settings& settings) {
  if (settings.text("keys_file").empty()) return std::string();
  WB_ASSIGN(const auto keys, transport::load_keys(settings.text("keys_file")));
  return keys.public_key;
}

base::Result<std::unique_ptr<transport::ZmqTransport>> make_transport(const Settings& settings) {
  transport::ZmqOptions options;
  if (!settings.text("keys_file").empty()) {
    WB_ASSIGN(options.keys, transport::load_keys(settings.text("keys_file")));
  }
  if (!settings.text("allow_file").empty()) {
    WB_ASSIGN(options.allow, transport::AllowList::load(settings.text("allow_file")));
  }
  return transport::ZmqTransport::create(std::move(options));
}

AllowListWatch::AllowListWatch(const Settings& settings, transport::ZmqTransport& transport)
    : path_(settings.text("allow_file")), transport_(transport) {}

void AllowListWatch::poll() {
  struct stat info {};
  if (path_.empty() || ::stat(path_.c_str(), &info) != 0) return;
  const std::int64_t changed = info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec;
  if (changed == seen_ns_) return;
  const bool first = seen_ns_ < 0;
  seen_ns_ = changed;
  if (first) return;  // read when the transport was made
  auto list = transport::AllowList::load(path_);
  if (!list) {
    observe::log(observe::Level::kError, "keys.allow_file",
                 {{"error", list.error().message}, {"effect", "the list before stays in force"}});
    return;
  }
  observe::log(observe::Level::kInfo, "keys.allow_file", {{"keys", list->size()}});
  transport_.set_allow_list(std::move(*list));
}

base::Result<std::unique_ptr<observe::HttpServer>> start_http(const Settings& settings, observe::Metrics& metrics,
                                                              observe::HealthCheck live, observe::HealthCheck ready) {
  WB_ASSIGN(const auto address, parse_host_port(settings.text("http")));
  metrics.gauge(observe::catalogue::kBuildInfo, {{"version", WEIGHTBUS_VERSION}, {"commit", "unknown"}}).set(1);
  observe::HttpOptions options;
  options.host = address.host.empty() ? "::" : address.host;
  options.port = address.port;
  WB_ASSIGN(auto server,
            observe::HttpServer::start(options, observe::standard_routes(metrics, std::move(live), std::move(ready))));
  observe::log(observe::Level::kInfo, "http.listening", {{"url", server->url()}});
  return server;
}

std::string default_host_id() {
  struct stat info {};
  const auto boot = read_file("/proc/sys/kernel/random/boot_id", 256);
  std::string id = boot ? *boot : std::string("unknown");
  std::erase_if(id, [](char c) { return c == '\n'; });
  if (::stat("/dev/shm", &info) == 0) id += fmt::format(":{:x}", static_cast<std::uint64_t>(info.st_dev));
  return id;
}

std::string member_shm_prefix(const std::string& model, const std::string& member) {
  std::string name = fmt::format("{}.{}", model, member);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/'; }, '_');
  return "weightbus." + name + ".";
}

base::Result<Channels> make_channels(const Settings& settings, const std::shared_ptr<device::Device>& device) {
  Channels channels;
  const auto threads = static_cast<unsigned>(settings.count("threads"));
  for (const auto& name : settings.list("channels")) {
    if (name == "shm") {
      channel::ShmOptions options;
      options.threads = threads;
      channels.emplace_back(channel::make_shm_channel(device, options));
    } else if (name == "tcp") {
      channel::TcpOptions options;
      options.listen = settings.text("bulk_listen");
      options.advertise = settings.text("bulk_advertise");
      channels.emplace_back(channel::make_tcp_channel(options));
    } else {
      return base::fail(base::ErrorCode::kInvalidArgument, "channels: there is no channel {}; known are shm and tcp",
                        name);
    }
    const auto viable = channels.back()->viability();
    if (!viable.usable)
      observe::log(observe::Level::kWarn, "channel.unusable", {{"channel", name}, {"reason", viable.reason}});
  }
  return channels;
}

model::BootId new_boot_id() {
  std::uint64_t id = 0;
  randombytes_buf(&id, sizeof id);
  return model::BootId{id};
}

std::string software_name() { return "weightbus " WEIGHTBUS_VERSION; }

}  // namespace weightbus::runtime
