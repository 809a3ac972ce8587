// A bounded pool of threads for what would block the event loop: copies, digests, disk, pauses of readers.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/runtime/mailbox.h"

namespace weightbus::runtime {

// Thread safe.
class WorkerPool {
 public:
  // A job runs on a thread of the pool and returns what is to be done with its result in the event loop (or nothing).
  using Job = std::function<Task()>;

  // `post` hands a continuation to the event loop (Mailbox::post); it must outlive the pool.
  WorkerPool(std::size_t threads, std::size_t max_queued, std::function<void(Task)> post);
  // Waits for the jobs that run; those still queued are dropped without a continuation. Ask long jobs to end before
  // (device::Control::cancelled).
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // kResourceExhausted when max_queued jobs wait already.
  base::Status submit(Job job);

 private:
  void run();

  const std::size_t max_queued_;
  const std::function<void(Task)> post_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace weightbus::runtime
