#include "weightbus/client/gate.h"

#include <chrono>
#include <utility>

#include "weightbus/base/assert.h"

namespace weightbus::client {

base::Result<std::shared_ptr<const Arena>> Gate::enter(std::optional<base::Duration> timeout) {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return shut_ || arena_ != nullptr; };
  if (timeout) {
    if (!changed_.wait_until(lock, std::chrono::steady_clock::now() + *timeout, ready))
      return base::fail(base::ErrorCode::kDeadlineExceeded, "the launch gate did not open within {} ms",
                        base::to_millis(*timeout));
  } else {
    changed_.wait(lock, ready);
  }
  if (shut_) return base::fail(base::ErrorCode::kUnavailable, "the reader is closed");
  ++inside_;
  ++steps_;
  return arena_;
}

void Gate::leave() {
  bool now_idle = false;
  {
    const std::lock_guard lock(mutex_);
    WB_ASSERT(inside_ > 0, "a step ended that had not begun");
    --inside_;
    now_idle = inside_ == 0 && arena_ == nullptr;
  }
  if (now_idle) on_idle_();
}

void Gate::close() {
  const std::lock_guard lock(mutex_);
  arena_.reset();
}

bool Gate::idle() const {
  const std::lock_guard lock(mutex_);
  return inside_ == 0 && arena_ == nullptr;
}

void Gate::open(std::shared_ptr<const Arena> arena) {
  WB_ASSERT(arena != nullptr, "steps need an arena");
  {
    const std::lock_guard lock(mutex_);
    if (shut_) return;
    arena_ = std::move(arena);
  }
  changed_.notify_all();
}

void Gate::shut() {
  {
    const std::lock_guard lock(mutex_);
    shut_ = true;
    arena_.reset();
  }
  changed_.notify_all();
}

bool Gate::is_open() const {
  const std::lock_guard lock(mutex_);
  return arena_ != nullptr;
}

std::uint64_t Gate::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

}  // namespace weightbus::client
