// Functions that other threads want the event loop to run.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

namespace weightbus::runtime {

using Task = std::function<void()>;

// post() from any thread; run() from the loop's thread.
class Mailbox {
 public:
  // `wake` makes the loop come round soon (Transport::wake); called from the posting thread, after the post.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void post(Task task);
  // Runs what was posted before the call, in order, and returns how many. What those post runs at the next call, so
  // that a task which posts itself again does not hold the loop.
  std::size_t run();

 private:
  std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<Task> tasks_;
};

}  // namespace weightbus::runtime
