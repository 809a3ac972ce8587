#include "weightbus/channel/direct_pull.h"

#include <mutex>
#include <optional>

#include "weightbus/device/host/copy_plan.h"

namespace weightbus::channel {

base::Status direct_pull(const DirectPull& pull, const PullLimits& limits, device::Control& control,
                         const std::function<base::Status()>& source_ok) {
  std::mutex mutex;
  std::optional<base::Error> error;  // the first
  const auto proceed = [&](std::uint64_t bytes) {
    control.bytes_done.fetch_add(bytes, std::memory_order_relaxed);
    auto status = limits.check();
    if (status) status = source_ok();
    if (status) return true;
    const std::lock_guard lock(mutex);
    if (!error) error = std::move(status).error();
    return false;
  };
  for (const auto& bucket : pull.buckets) {
    WB_TRY(limits.check());
    WB_ASSIGN(const auto ops, device::make_copy_ops(bucket, pull.tensors, device::CopyKind::kDirect));
    WB_TRY(device::check_sources(ops, pull.from_bytes));
    WB_TRY(device::check_region_count(ops, pull.from.size(), pull.to.size()));
    device::copy_all(ops, {pull.from}, {pull.to}, pull.threads, proceed);
    if (error) return base::fail(*error);
  }
  return source_ok();
}

}  // namespace weightbus::channel
