// keeper_test_member MODE [SHM_PREFIX]: runs a keeper, whose worker does what MODE says and prints a line for each
// step.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "weightbus/runtime/keeper.h"
#include "weightbus/runtime/keeper_link.h"
#include "weightbus/runtime/signals.h"

namespace {

using namespace weightbus;
using namespace std::chrono_literals;

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;)
    ::pause();
}

int serve() {
  client::WakeFd stop;
  runtime::StopSignals signals([&] { stop.wake(); }, 5s);
  say("worker " + std::to_string(::getpid()));
  while (!signals.requested())
    ::usleep(1000);
  return 0;
}

// The first worker leaves memory with the keeper and is killed; its successor finds the content.
int park() {
  const auto keeper = runtime::KeeperLink::from_environment();
  if (!keeper) return 64;
  auto& link = **keeper;
  if (const auto parked = link.take("arena")) {
    char content[8] = {};
    if (::pread(parked->get(), content, 7, 0) != 7) return 64;
    say(std::string("found ") + content + " of " + std::to_string(link.names()->size()));
    if (!link.drop("arena") || link.take("arena").error().code != base::ErrorCode::kNotFound) return 64;
    return 0;
  }
  const int memory = ::memfd_create("arena", MFD_CLOEXEC);
  if (::write(memory, "weights", 7) != 7) return 64;
  if (!link.park("arena", memory) || !link.park("other", memory)) return 64;
  if (link.park("arena", memory).error().code != base::ErrorCode::kConflict) return 64;
  say("parked");
  die();
}

int work(const std::string& mode) {
  if (mode == "serve") return serve();
  if (mode == "park") return park();
  say("worker " + std::to_string(::getpid()));
  if (mode == "crash") die();
  if (mode == "refused") return 64;
  if (mode == "done") return 0;
  if (mode == "stubborn") {
    ::signal(SIGTERM, SIG_IGN);
    say("deaf");
    for (;;)
      ::pause();
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "--worker") return work(argv[2]);
  runtime::KeeperOptions options;
  options.arguments = {"--worker", argc > 1 ? argv[1] : ""};
  options.backoff_first = 1ms;
  options.backoff_last = 4ms;
  options.rapid_failures_max = 5;
  options.grace = 300ms;
  if (argc > 2) options.shm_prefix = argv[2];
  options.log = [](std::string_view line) { say("keeper: " + std::string(line)); };
  return runtime::run_keeper(options);
}
