#include "cli/demo_fleet.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "weightbus/runtime/clock.h"

namespace weightbus::cli {
namespace {

constexpr base::Duration kStartDeadline = base::Millis(30'000);
constexpr base::Duration kStopDeadline = base::Millis(8'000);  // the services' own limit is 5 s
constexpr base::Duration kPoll = base::Millis(10);

std::string last_lines(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  return all.size() > 600 ? all.substr(all.size() - 600) : all;
}

bool is_alive(pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == 0; }

// In the child, between fork and exec: only calls that are safe there.
[[noreturn]] void become(const std::vector<char*>& arguments, int log) {
  ::setpgid(0, 0);                     // a Ctrl-C is the demo's to handle
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // nothing outlives the demo
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

std::vector<std::string> shared_memory_of(const std::string& model) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("weightbus." + model + ".")) names.push_back(name);
  }
  return names;
}

base::Status DemoFleet::spawn(const std::string& program, const std::string& name, std::vector<std::string> arguments) {
  const std::string path = options_.programs + "/" + program;
  if (::access(path.c_str(), X_OK) != 0) {
    return base::fail(base::ErrorCode::kNotFound,
                      "{} is not beside this program; build all of it (scripts/build release)", path);
  }
  const std::string log = options_.directory + "/" + name + ".log";
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return base::fail(base::ErrorCode::kUnavailable, "cannot write {}", log);
  arguments.insert(arguments.begin(), path);
  arguments.emplace_back("--log-json");
  std::vector<char*> raw;
  for (auto& argument : arguments)
    raw.push_back(argument.data());
  raw.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) become(raw, fd);
  ::close(fd);
  if (pid < 0) return base::fail(base::ErrorCode::kResourceExhausted, "cannot start {}", path);
  processes_.push_back({name, pid, log});
  return {};
}

base::Result<std::unique_ptr<DemoFleet>> DemoFleet::start(DemoFleetOptions options) {
  std::unique_ptr<DemoFleet> fleet(new DemoFleet(std::move(options)));
  const DemoFleetOptions& o = fleet->options_;
  WB_TRY(
      fleet->spawn("weightbus-coordinator", "coordinator",
                   {"--journal", o.directory + "/journal.db", "--listen", "tcp://127.0.0.1:0", "--heartbeat-interval",
                    "50ms", "--member-timeout", "20s", "--retain-versions", std::to_string(o.retain_versions)}));
  WB_TRY(fleet->wait_for_coordinator());
  for (std::uint32_t rank = 0; rank < o.trainers; ++rank) {
    const std::string name = fmt::format("trainer-{}", rank);
    WB_TRY(fleet->spawn("weightbus-shard-agent", name,
                        {"--coordinator", fleet->endpoint_, "--model", o.model, "--trainer-rank", std::to_string(rank),
                         "--trainer-world", std::to_string(o.trainers), "--state-dir", o.directory + "/" + name}));
  }
  for (std::uint32_t engine = 0; engine < o.engines; ++engine) {
    for (std::uint32_t rank = 0; rank < o.tp_size; ++rank) {
      const std::string name = fmt::format("engine-{}-tp{}", engine, rank);
      WB_TRY(fleet->spawn("weightbus-engine-agent", name,
                          {"--coordinator", fleet->endpoint_, "--model", o.model, "--engine",
                           fmt::format("engine-{}", engine), "--tp-rank", std::to_string(rank), "--tp-size",
                           std::to_string(o.tp_size), "--state-dir", o.directory + "/" + name}));
    }
  }
  return fleet;
}

// The coordinator took a free port and says in its log which.
base::Status DemoFleet::wait_for_coordinator() {
  const Process& coordinator = processes_.front();
  const base::Instant deadline = runtime::now() + kStartDeadline;
  while (runtime::now() < deadline) {
    std::ifstream log(coordinator.log);
    for (std::string line; std::getline(log, line);) {
      const auto entry = nlohmann::json::parse(line, nullptr, false);
      if (!entry.is_object() || entry.value("event", "") != "coordinator.listening") continue;
      const std::string bound = entry.value("endpoint", "");
      endpoint_ = "tcp://127.0.0.1:" + bound.substr(bound.rfind(':') + 1);
      return {};
    }
    if (!is_alive(coordinator.pid)) break;
    std::this_thread::sleep_for(kPoll);
  }
  return base::fail(base::ErrorCode::kUnavailable, "the coordinator did not start; its log ends so:\n{}",
                    last_lines(coordinator.log));
}

base::Result<pid_t> DemoFleet::worker(const std::string& member) const {
  const auto it =
      std::find_if(processes_.begin(), processes_.end(), [&](const Process& p) { return p.name == member; });
  if (it == processes_.end()) return base::fail(base::ErrorCode::kNotFound, "no process is called {}", member);
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", it->pid));
  pid_t pid = 0;
  if (!(children >> pid)) return base::fail(base::ErrorCode::kNotFound, "{} has no worker at the moment", member);
  return pid;
}

base::Status DemoFleet::stop() {
  for (const auto& process : processes_)
    ::kill(process.pid, SIGTERM);
  const base::Instant deadline = runtime::now() + kStopDeadline;
  std::string late;
  for (const auto& process : processes_) {
    while (is_alive(process.pid) && runtime::now() < deadline)
      std::this_thread::sleep_for(kPoll);
    if (!is_alive(process.pid)) continue;
    late += " " + process.name;
    ::kill(-process.pid, SIGKILL);
    ::kill(process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
  }
  processes_.clear();
  if (!late.empty()) return base::fail(base::ErrorCode::kDeadlineExceeded, "did not end by themselves:{}", late);
  const auto names = shared_memory_of(options_.model);
  if (!names.empty()) {
    return base::fail(base::ErrorCode::kInternal, "{} regions of shared memory were left behind, the first is {}",
                      names.size(), names[0]);
  }
  return {};
}

DemoFleet::~DemoFleet() {
  if (!processes_.empty()) static_cast<void>(stop());
}

}  // namespace weightbus::cli
