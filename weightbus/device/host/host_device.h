// Device for CPU memory. See factory.h.
#pragma once

#include "weightbus/device/device.h"
#include "weightbus/device/host/factory.h"

namespace weightbus::device {

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostOptions& options) : options_(options) {}
  std::string uuid() const override { return {}; }
  base::Result<std::uint64_t> free_bytes() const override;
  base::Result<std::unique_ptr<Memory>> allocate(const std::string& name, std::uint64_t bytes) override;
  base::Result<std::unique_ptr<Memory>> import_region(const model::Region& region, bool writable) override;
  void remove(const std::string& name) noexcept override;
  base::Status copy(const plan::Bucket& bucket, std::span<const plan::PlannedTensor> tensors,
                    std::span<const std::byte* const> from, std::span<std::byte* const> to, Control& control) override;
  base::Status pack(const plan::Bucket& bucket, std::span<const plan::PlannedTensor> tensors,
                    std::span<const std::byte* const> from, std::byte* out) override;
  base::Status unpack(const plan::Bucket& bucket, std::span<const plan::PlannedTensor> tensors, const std::byte* in,
                      std::span<std::byte* const> to) override;

 private:
  const HostOptions options_;
};

}  // namespace weightbus::device
