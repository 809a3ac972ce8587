// SIGTERM and SIGINT as a request to stop, with a limit on how long stopping may take.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "weightbus/base/time.h"
#include "weightbus/client/wake_fd.h"

namespace weightbus::runtime {

// A write to a closed connection must be an error, not the end of the process.
void ignore_sigpipe() noexcept;

inline constexpr int kExitGraceOver = 75;  // the process did not stop within its grace

// One at a time in a process. Further signals change nothing: a terminal and a keeper may both send one.
class StopSignals {
 public:
  // `on_stop` is called once, from a thread of this object, at the first signal or request(). If the object still
  // exists `grace` later, the process ends with kExitGraceOver and says so.
  StopSignals(std::function<void()> on_stop, base::Duration grace);
  ~StopSignals();  // the signals get their former meaning again
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  bool requested() const noexcept { return requested_; }
  void request() noexcept;  // as if a signal had come

 private:
  void run();

  std::function<void()> on_stop_;
  base::Duration grace_;
  std::atomic<bool> requested_{false};
  std::atomic<bool> finished_{false};
  client::WakeFd wake_;
  std::thread thread_;
};

}  // namespace weightbus::runtime
