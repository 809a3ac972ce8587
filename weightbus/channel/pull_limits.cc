#include "weightbus/channel/pull_limits.h"

#include <algorithm>

namespace weightbus::channel {
namespace {

constexpr base::Duration kLongest = std::chrono::hours(24 * 3650);

}  // namespace

PullLimits::PullLimits(const model::MemberId& source, base::Duration deadline, const device::Control* control)
    : source_(source),
      deadline_(std::clamp(deadline, base::Duration::zero(), kLongest)),
      end_(Clock::now() + deadline_),
      control_(control) {}

base::Status PullLimits::check() const {
  if (cancelled()) return base::fail(base::ErrorCode::kAborted, "the pull from {} was cancelled", source_.value());
  if (late()) {
    return base::fail(base::ErrorCode::kDeadlineExceeded, "{} did not deliver within {:.0f} ms", source_.value(),
                      base::to_millis(deadline_));
  }
  return {};
}

base::Duration PullLimits::wait(base::Duration most) const noexcept {
  const auto left = std::chrono::duration_cast<base::Duration>(end_ - Clock::now());
  return std::clamp(left, base::Duration::zero(), most);
}

base::Status check_buckets(std::span<const plan::Bucket> buckets, const model::MemberId& source,
                           const model::MemberId& sink) {
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i].source == source && buckets[i].sink == sink && buckets[i].index == buckets[0].index + i) continue;
    return base::fail(base::ErrorCode::kInvalidArgument,
                      "bucket {} from {} to {} does not belong into this pull from {} to {} at place {}",
                      buckets[i].index, buckets[i].source.value(), buckets[i].sink.value(), source.value(),
                      sink.value(), i);
  }
  return {};
}

}  // namespace weightbus::channel
