// One copy from mapped source memory into place, for the channels that share memory with their source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "weightbus/base/result.h"
#include "weightbus/channel/pull_limits.h"
#include "weightbus/device/device.h"
#include "weightbus/plan/plan.h"

namespace weightbus::channel {

struct DirectPull {
  std::span<const plan::Bucket> buckets;
  std::span<const plan::PlannedTensor> tensors;
  std::span<const std::byte* const> from;
  std::span<const std::uint64_t> from_bytes;  // size of each
  std::span<std::byte* const> to;
  unsigned threads;
};

// Copies the buckets in order. Between pieces of at most 2 MiB it asks `limits` and `source_ok` (called from any of the
// copying threads), and asks source_ok once more after the last byte: success means that the source served all along.
base::Status direct_pull(const DirectPull& pull, const PullLimits& limits, device::Control& control,
                         const std::function<base::Status()>& source_ok);

}  // namespace weightbus::channel
