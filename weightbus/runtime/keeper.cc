#include "weightbus/runtime/keeper.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "weightbus/base/assert.h"
#include "weightbus/client/unique_fd.h"
#include "weightbus/runtime/keeper_link.h"

extern char** environ;

namespace weightbus::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using client::UniqueFd;

constexpr int kExitNoExec = 127;
constexpr std::size_t kMinPrefix = 9;  // "weightbus": never a prefix that others may share

std::string describe(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("ended with code {}", WEXITSTATUS(status));
}

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

class Keeper {
 public:
  explicit Keeper(const KeeperOptions& options) : options_(options), backoff_(options.backoff_first) {
    sigemptyset(&signals_);
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD})
      sigaddset(&signals_, number);
    ::sigprocmask(SIG_BLOCK, &signals_, &former_);
    signal_fd_.reset(::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
    WB_ASSERT(signal_fd_.valid(), "a keeper without signals could not watch its worker");
    // Parked descriptors count against the keeper: as many as the system allows.
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
      limit.rlim_cur = limit.rlim_max;
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
  }
  ~Keeper() { ::sigprocmask(SIG_SETMASK, &former_, nullptr); }

  int run() {
    start();
    while (!result_) {
      pollfd fds[] = {{signal_fd_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
      ::poll(fds, socket_.valid() ? 2 : 1, timeout_ms());
      if (fds[0].revents != 0) read_signals();
      // Requests are served before the death of who made them: what it parked last counts.
      if (socket_.valid() && fds[1].revents != 0 && !parked_.serve(socket_.get())) socket_.reset();
      reap();
      if (!result_ && deadline_ && Clock::now() >= *deadline_) on_deadline();
    }
    if (clean_ && !options_.shm_prefix.empty()) remove_shm_names(options_.shm_prefix);
    return *result_;
  }

 private:
  void log(const std::string& sentence) const {
    if (options_.log) return options_.log(sentence);
    std::fprintf(stderr, "weightbus keeper: %s\n", sentence.c_str());
  }

  int timeout_ms() const {
    if (!deadline_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
  }

  void start() {
    deadline_.reset();
    int pair[2];
    WB_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "no socket for the worker");
    socket_.reset(pair[0]);
    const UniqueFd theirs(pair[1]);
    started_ = Clock::now();
    // Everything that allocates happens before the fork.
    std::vector<std::string> arguments{options_.program};
    arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
    std::vector<char*> argv;
    for (auto& argument : arguments)
      argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::string variable = fmt::format("{}={}", kKeeperVariable, theirs.get());
    std::vector<char*> environment;
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (std::strncmp(*entry, kKeeperVariable, std::strlen(kKeeperVariable)) != 0) environment.push_back(*entry);
    environment.push_back(const_cast<char*>(variable.c_str()));
    environment.push_back(nullptr);
    const pid_t keeper = ::getpid();
    worker_ = ::fork();
    if (worker_ == 0) become_worker(keeper, theirs.get(), argv.data(), environment.data());
    if (worker_ < 0) {
      log(fmt::format("cannot start the worker: {}", std::strerror(errno)));
      schedule_restart();
    }
  }

  [[noreturn]] void become_worker(pid_t keeper, int socket, char** argv, char** environment) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The keeper may have died before the line above.
    if (::getppid() != keeper) ::_exit(kExitNoExec);
    ::fcntl(socket, F_SETFD, 0);
    ::sigprocmask(SIG_SETMASK, &former_, nullptr);
    ::execve(options_.program.c_str(), argv, environment);
    ::_exit(kExitNoExec);
  }

  void read_signals() {
    signalfd_siginfo info{};
    while (::read(signal_fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      if (worker_ > 0) ::kill(worker_, number == SIGHUP ? SIGTERM : number);
      if (!stopping_) {
        stopping_ = true;
        deadline_ = Clock::now() + options_.grace;
        if (worker_ <= 0) finish(0, true);
      }
    }
  }

  void reap() {
    if (worker_ <= 0) return;
    int status = 0;
    if (::waitpid(worker_, &status, WNOHANG) != worker_) return;
    worker_ = -1;
    while (socket_.valid() && parked_.serve(socket_.get()))
      continue;
    socket_.reset();
    const int code = exit_code_of(status);
    // A worker that was asked to stop before it could listen for that is ended by the signal, and has left nothing.
    const bool by_request = WIFSIGNALED(status) && (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGINT);
    if (stopping_) return finish(by_request ? 0 : code, true);
    if (code == 0) return finish(0, true);
    log(fmt::format("the worker {} after {:.1f} s", describe(status), base::to_seconds(Clock::now() - started_)));
    if (WIFEXITED(status) && code == options_.no_restart_exit_code) return finish(code, false);
    const bool rapid = Clock::now() - started_ < options_.healthy_after;
    failures_ = rapid ? failures_ + 1 : 0;
    if (!rapid) backoff_ = options_.backoff_first;
    if (failures_ >= options_.rapid_failures_max) {
      log(fmt::format("giving up after {} failures, each within {:.1f} s of its start; the last time the worker {}",
                      failures_, base::to_seconds(options_.healthy_after), describe(status)));
      return finish(code, false);
    }
    schedule_restart();
  }

  void schedule_restart() {
    deadline_ = Clock::now() + backoff_;
    backoff_ = std::min(backoff_ * 2, options_.backoff_last);
  }

  void on_deadline() {
    if (!stopping_) return start();
    deadline_.reset();
    if (worker_ <= 0) return;
    log(fmt::format("the worker did not end within {:.1f} s; it is killed", base::to_seconds(options_.grace)));
    ::kill(worker_, SIGKILL);
  }

  void finish(int code, bool clean) {
    result_ = code;
    clean_ = clean;
  }

  const KeeperOptions& options_;
  sigset_t signals_;
  sigset_t former_;
  UniqueFd signal_fd_;
  UniqueFd socket_;  // to the worker that runs
  ParkedFds parked_;
  pid_t worker_ = -1;
  Clock::time_point started_{};
  base::Duration backoff_;
  unsigned failures_ = 0;
  bool stopping_ = false;
  bool clean_ = false;
  std::optional<Clock::time_point> deadline_;  // of the restart, or of the grace
  std::optional<int> result_;
};

}  // namespace

int run_keeper(const KeeperOptions& options) { return Keeper(options).run(); }

std::size_t remove_shm_names(const std::string& prefix) {
  WB_ASSERT(prefix.size() >= kMinPrefix, "a short prefix would remove what belongs to others");
  DIR* folder = ::opendir("/dev/shm");
  if (folder == nullptr) return 0;
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder))
    if (std::string_view(entry->d_name).starts_with(prefix)) names.emplace_back(entry->d_name);
  ::closedir(folder);
  std::size_t removed = 0;
  for (const auto& name : names)
    if (::shm_unlink(("/" + name).c_str()) == 0) ++removed;
  return removed;
}

}  // namespace weightbus::runtime
