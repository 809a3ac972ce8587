#include "weightbus/runtime/mailbox.h"

#include <utility>

namespace weightbus::runtime {

void Mailbox::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  if (wake_) wake_();
}

std::size_t Mailbox::run() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (auto& task : tasks)
    task();
  return tasks.size();
}

}  // namespace weightbus::runtime
