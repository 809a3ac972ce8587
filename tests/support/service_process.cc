#include "tests/support/service_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

namespace weightbus::testing {
namespace {

std::string read_all(const std::string& path, std::uint64_t from = 0) {
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(from));
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// 'R', 'S', 'T', 'Z' and so on; 0: no such process.
char state_of(pid_t pid) {
  const auto text = read_all("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '\0' : text[name_end + 2];
}

bool is_gone(pid_t pid) {
  ::waitpid(pid, nullptr, WNOHANG);  // if it has become ours
  const char state = state_of(pid);
  return state == '\0' || state == 'Z';
}

std::vector<std::string> command_line(const std::string& program, const std::map<std::string, std::string>& settings) {
  std::vector<std::string> arguments{program};
  for (const auto& [name, value] : settings) {
    std::string flag = "--" + name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    arguments.push_back(flag);
    arguments.push_back(value);
  }
  arguments.emplace_back("--log-json");
  return arguments;
}

}  // namespace

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds bound) {
  const auto until = std::chrono::steady_clock::now() + bound;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

ServiceProcess::ServiceProcess(std::string program, std::map<std::string, std::string> settings, std::string log)
    : program_(std::move(program)), settings_(std::move(settings)), log_(std::move(log)) {}

ServiceProcess::~ServiceProcess() {
  if (keeper_ <= 0) return;
  ::kill(-keeper_, SIGKILL);
  wait();
  leftovers();
}

void ServiceProcess::start() {
  // Workers of killed keepers become ours, so that we can see them end.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (keeper_ > 0) leftovers();
  struct stat info {};
  log_start_ = ::stat(log_.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
  const int log = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) throw std::runtime_error("cannot write " + log_);
  auto arguments = command_line(program_, settings_);
  std::vector<char*> argv;
  for (auto& argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  status_.reset();
  const pid_t parent = ::getpid();
  keeper_ = ::fork();
  if (keeper_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::setpgid(0, 0);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    if (file_size_) {
      const rlimit limit{*file_size_, *file_size_};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ::signal(SIGXFSZ, SIG_IGN);
    }
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(log);
  if (keeper_ < 0) throw std::runtime_error("cannot start " + program_);
  ::setpgid(keeper_, keeper_);
}

bool ServiceProcess::running() {
  if (keeper_ <= 0) return false;
  if (!status_) {
    int status = 0;
    if (::waitpid(keeper_, &status, WNOHANG) == keeper_) status_ = status;
  }
  return !status_.has_value();
}

pid_t ServiceProcess::worker() const {
  const auto path = "/proc/" + std::to_string(keeper_) + "/task/" + std::to_string(keeper_) + "/children";
  pid_t pid = -1;
  eventually([&] {
    const auto children = read_all(path);
    if (!children.empty()) pid = std::stoi(children);
    return (pid > 0 && state_of(pid) != 'Z') || state_of(keeper_) == '\0';
  });
  return pid;
}

void ServiceProcess::signal_worker(int number) {
  const pid_t pid = worker();
  if (pid <= 0) throw std::runtime_error(program_ + " has no worker");
  ::kill(pid, number);
  if (number == SIGSTOP) eventually([&] { return state_of(pid) == 'T' || is_gone(pid); });
}

void ServiceProcess::kill_worker() {
  const pid_t pid = worker();
  if (pid <= 0) throw std::runtime_error(program_ + " has no worker");
  ::kill(pid, SIGKILL);
  eventually([&] { return is_gone(pid); });
}

void ServiceProcess::kill_keeper() {
  const pid_t pid = worker();
  ::kill(keeper_, SIGKILL);
  wait();
  if (pid > 0) eventually([&] { return is_gone(pid); });
}

int ServiceProcess::wait() {
  if (!eventually([&] { return !running(); })) return -1;
  return WIFEXITED(*status_) ? WEXITSTATUS(*status_) : 128 + WTERMSIG(*status_);
}

int ServiceProcess::stop() {
  if (running()) ::kill(keeper_, SIGTERM);
  return wait();
}

bool ServiceProcess::leftovers() {
  if (keeper_ <= 0) return false;
  return !eventually([&] {
    ::waitpid(-keeper_, nullptr, WNOHANG);
    return ::kill(-keeper_, 0) != 0 && errno == ESRCH;
  });
}

std::vector<std::string> ServiceProcess::all_logged(const std::string& event, const std::string& field) const {
  std::vector<std::string> values;
  const std::string text = read_all(log_, log_start_);
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const auto line = nlohmann::json::parse(text.substr(begin, end - begin), nullptr, false);
    if (!line.is_object() || line.value("event", "") != event || !line.contains(field)) continue;
    values.push_back(line[field].is_string() ? line[field].get<std::string>() : line[field].dump());
  }
  return values;
}

std::string ServiceProcess::logged(const std::string& event, const std::string& field, std::size_t at) {
  std::vector<std::string> values;
  eventually([&] {
    const bool was_running = running();
    values = all_logged(event, field);
    return values.size() > at || !was_running;
  });
  return values.size() > at ? values[at] : std::string();
}

std::string ServiceProcess::log_tail(std::size_t lines) const {
  const std::string text = read_all(log_);
  std::size_t begin = text.size();
  for (std::size_t i = 0; i <= lines && begin != std::string::npos && begin > 0; ++i)
    begin = text.rfind('\n', begin - 1);
  return begin == std::string::npos || begin == 0 ? text : text.substr(begin + 1);
}

}  // namespace weightbus::testing
