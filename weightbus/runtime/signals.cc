#include "weightbus/runtime/signals.h"

#include <poll.h>
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "weightbus/base/assert.h"

namespace weightbus::runtime {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT};

// What the handler may touch: set before the handler is, reset after it is gone.
std::atomic<client::WakeFd*> handler_wake{nullptr};
std::atomic<bool> handler_called{false};
struct sigaction former[2];

void handle(int) {
  const int saved = errno;
  handler_called = true;
  if (auto* wake = handler_wake.load()) wake->wake();
  errno = saved;
}

}  // namespace

void ignore_sigpipe() noexcept { ::signal(SIGPIPE, SIG_IGN); }

StopSignals::StopSignals(std::function<void()> on_stop, base::Duration grace)
    : on_stop_(std::move(on_stop)), grace_(grace) {
  client::WakeFd* nobody = nullptr;
  WB_ASSERT(handler_wake.compare_exchange_strong(nobody, &wake_), "one StopSignals at a time");
  handler_called = false;
  struct sigaction action {};
  action.sa_handler = &handle;
  action.sa_flags = SA_RESTART;
  for (int i = 0; i < 2; ++i)
    ::sigaction(kSignals[i], &action, &former[i]);
  thread_ = std::thread([this] { run(); });
}

StopSignals::~StopSignals() {
  finished_ = true;
  wake_.wake();
  thread_.join();
  for (int i = 0; i < 2; ++i)
    ::sigaction(kSignals[i], &former[i], nullptr);
  handler_wake = nullptr;
}

void StopSignals::request() noexcept {
  handler_called = true;
  wake_.wake();
}

void StopSignals::run() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point until{};
  while (!finished_) {
    int timeout = -1;
    if (requested_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) {
        std::fprintf(stderr, "weightbus: still busy %.1f s after the signal to stop; the process ends now\n",
                     base::to_seconds(grace_));
        std::fflush(stderr);
        std::_Exit(kExitGraceOver);
      }
      timeout = static_cast<int>(left);
    }
    pollfd fd{wake_.fd(), POLLIN, 0};
    if (::poll(&fd, 1, timeout) > 0) wake_.drain();
    if (handler_called && !requested_) {
      until = Clock::now() + grace_;
      requested_ = true;
      if (on_stop_) on_stop_();
    }
  }
}

}  // namespace weightbus::runtime
