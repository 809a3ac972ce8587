#include "weightbus/runtime/worker_pool.h"

#include <utility>

#include "weightbus/base/assert.h"

namespace weightbus::runtime {

WorkerPool::WorkerPool(std::size_t threads, std::size_t max_queued, std::function<void(Task)> post)
    : max_queued_(max_queued), post_(std::move(post)) {
  WB_ASSERT(threads > 0, "a pool without threads would never run a job");
  threads_.reserve(threads);
  for (std::size_t i = 0; i < threads; ++i)
    threads_.emplace_back([this] { run(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_)
    thread.join();
}

base::Status WorkerPool::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= max_queued_)
      return base::fail(base::ErrorCode::kResourceExhausted, "{} jobs wait already; at most {} may", queue_.size(),
                        max_queued_);
    queue_.push_back(std::move(job));
  }
  changed_.notify_one();
  return {};
}

void WorkerPool::run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    if (Task then = job()) post_(std::move(then));
  }
}

}  // namespace weightbus::runtime
