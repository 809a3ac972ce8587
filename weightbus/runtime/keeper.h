// The keeper: a small process without threads or device libraries that starts a service's worker, starts it again when
// it dies, and holds its file descriptors meanwhile (keeper_link.h). main() runs it, unless it was given --worker.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weightbus/base/time.h"

namespace weightbus::runtime {

struct KeeperOptions {
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments;  // of the worker, without the program's name; must hold "--worker"
  base::Duration backoff_first = std::chrono::milliseconds(100);
  base::Duration backoff_last = std::chrono::seconds(5);
  base::Duration healthy_after = std::chrono::seconds(10);  // a run this long was no rapid failure
  unsigned rapid_failures_max = 8;                          // in a row; then the keeper gives up
  base::Duration grace = std::chrono::seconds(5);           // from SIGTERM to SIGKILL of the worker
  int no_restart_exit_code = 64;  // a worker that ends so is not started again: another start would end alike
  // Shared memory names ("weightbus.engine-0.tp0.") that are removed when the member ends for good: after a signal to
  // stop, or a worker that ended with 0. Empty: none.
  std::string shm_prefix = {};
  std::function<void(std::string_view)> log = {};  // sentences; nothing: stderr
};

// Runs until the member is to end, and returns the exit code for main(): 0 after a stop that the worker ended with 0,
// otherwise the worker's code, or 128 + the signal that killed it. Must be called from a process with one thread,
// before any other: the worker dies with the *thread* that forked it.
//
// SIGTERM, SIGINT and SIGHUP go on to the worker, and end the keeper with it. No worker outlives a keeper that was
// killed.
int run_keeper(const KeeperOptions& options);

// Removes every POSIX shared memory name that begins with `prefix` (at least 9 characters) and returns how many.
std::size_t remove_shm_names(const std::string& prefix);

}  // namespace weightbus::runtime
