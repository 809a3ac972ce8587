#include "weightbus/device/host/host_device.h"

#include "weightbus/device/host/copy_plan.h"
#include "weightbus/device/host/shared_memory.h"

namespace weightbus::device {

std::shared_ptr<Device> make_host_device(const HostOptions& options) { return std::make_shared<HostDevice>(options); }

base::Result<std::uint64_t> HostDevice::free_bytes() const { return shared_memory_free_bytes(); }

base::Result<std::unique_ptr<Memory>> HostDevice::allocate(const std::string& name, std::uint64_t bytes) {
  return create_shared_memory(name, bytes, {options_.populate, options_.huge_pages});
}

base::Result<std::unique_ptr<Memory>> HostDevice::import_region(const model::Region& region, bool writable) {
  return open_shared_memory(region, writable, {options_.populate, options_.huge_pages});
}

void HostDevice::remove(const std::string& name) noexcept { remove_shared_memory(name); }

base::Status HostDevice::copy(const plan::Bucket& bucket, std::span<const plan::PlannedTensor> tensors,
                              std::span<const std::byte* const> from, std::span<std::byte* const> to,
                              Control& control) {
  WB_ASSIGN(const auto ops, make_copy_ops(bucket, tensors, CopyKind::kDirect));
  WB_TRY(check_region_count(ops, from.size(), to.size()));
  const auto proceed = [&control](std::uint64_t bytes) {
    control.bytes_done.fetch_add(bytes, std::memory_order_relaxed);
    return !control.cancelled.load(std::memory_order_relaxed);
  };
  if (!control.cancelled.load() && copy_all(ops, {from}, {to}, options_.threads, proceed)) return {};
  return base::fail(base::ErrorCode::kAborted, "the copy of bucket {} from {} to {} was cancelled", bucket.index,
                    bucket.source.value(), bucket.sink.value());
}

base::Status HostDevice::pack(const plan::Bucket& bucket, std::span<const plan::PlannedTensor> tensors,
                              std::span<const std::byte* const> from, std::byte* out) {
  WB_ASSIGN(const auto ops, make_copy_ops(bucket, tensors, CopyKind::kPack));
  WB_TRY(check_region_count(ops, from.size(), 1));
  copy_all(ops, {from}, {{&out, 1}}, options_.threads, [](std::uint64_t) { return true; });
  return {};
}

base::Status HostDevice::unpack(const plan::Bucket& bucket, std::span<const plan::PlannedTensor> tensors,
                                const std::byte* in, std::span<std::byte* const> to) {
  WB_ASSIGN(const auto ops, make_copy_ops(bucket, tensors, CopyKind::kUnpack));
  WB_TRY(check_region_count(ops, 1, to.size()));
  copy_all(ops, {{&in, 1}}, {to}, options_.threads, [](std::uint64_t) { return true; });
  return {};
}

}  // namespace weightbus::device
