// What ends a pull early, checked in the same order by every channel.
#pragma once

#include <chrono>
#include <span>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"
#include "weightbus/device/device.h"
#include "weightbus/model/ids.h"
#include "weightbus/plan/plan.h"

namespace weightbus::channel {

class PullLimits {
 public:
  using Clock = std::chrono::steady_clock;
  // A deadline too far to be represented counts as one of ten years.
  PullLimits(const model::MemberId& source, base::Duration deadline, const device::Control* control);

  // ok, kAborted once cancelled, or kDeadlineExceeded.
  base::Status check() const;
  // Time left, at least 0 and at most `most`: how long one wait may last before check() is due.
  base::Duration wait(base::Duration most) const noexcept;
  bool cancelled() const noexcept { return control_ && control_->cancelled.load(std::memory_order_relaxed); }
  bool late() const noexcept { return Clock::now() >= end_; }

 private:
  const model::MemberId& source_;
  const base::Duration deadline_;
  const Clock::time_point end_;
  const device::Control* control_;  // null: nothing to cancel
};

// Whether these are consecutive buckets of one (source, sink) pair. kInvalidArgument otherwise.
base::Status check_buckets(std::span<const plan::Bucket> buckets, const model::MemberId& source,
                           const model::MemberId& sink);

}  // namespace weightbus::channel
