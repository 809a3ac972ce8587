// Memory of one device and the work on it, behind one interface: device/host fills it for CPU memory, device/cuda for
// GPUs. Every call may be made from any thread; objects of one Allocation or Mapping belong to one owner.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/model/manifest.h"
#include "weightbus/model/region.h"
#include "weightbus/plan/plan.h"

namespace weightbus::device {

// Memory mapped into this process: made here (then it can be exported), or imported from another process.
class Memory {
 public:
  virtual ~Memory() = default;  // unmaps; does not remove a named region (see Device::remove)
  virtual std::byte* data() noexcept = 0;
  virtual std::uint64_t bytes() const noexcept = 0;
  virtual const model::Region& region() const noexcept = 0;
};

// Stops long copies and digests from another thread, and carries their progress.
struct Control {
  std::atomic<bool> cancelled{false};
  std::atomic<std::uint64_t> bytes_done{0};
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string uuid() const = 0;                        // empty for host memory
  virtual base::Result<std::uint64_t> free_bytes() const = 0;  // that a new region could take

  // Makes an exportable region of exactly `bytes`, reserved (a later write cannot fail for lack of memory).
  // `name` must be unique on this host and start with "weightbus."; kConflict when it exists.
  // kResourceExhausted says needed and free bytes.
  virtual base::Result<std::unique_ptr<Memory>> allocate(const std::string& name, std::uint64_t bytes) = 0;
  // Maps a region that another process (or an earlier start of this one) made. kNotFound when it is gone, kCorrupted
  // when its size is not region.bytes.
  virtual base::Result<std::unique_ptr<Memory>> import_region(const model::Region& region, bool writable) = 0;
  // Removes a named region; mappings of it stay valid. Removing one that is gone is fine.
  virtual void remove(const std::string& name) noexcept = 0;

  // Copies every fragment of a bucket from `from` (the source's regions, by index) to `to` (the sink's regions), with
  // casts. Returns kAborted when control is cancelled, after the last write of this call has been made.
  virtual base::Status copy(const plan::Bucket& bucket, std::span<const plan::PlannedTensor> tensors,
                            std::span<const std::byte* const> from, std::span<std::byte* const> to,
                            Control& control) = 0;
  // Packs a bucket densely into `out` (bucket.bytes, casts applied), and the reverse.
  virtual base::Status pack(const plan::Bucket& bucket, std::span<const plan::PlannedTensor> tensors,
                            std::span<const std::byte* const> from, std::byte* out) = 0;
  virtual base::Status unpack(const plan::Bucket& bucket, std::span<const plan::PlannedTensor> tensors,
                              const std::byte* in, std::span<std::byte* const> to) = 0;
};

}  // namespace weightbus::device
