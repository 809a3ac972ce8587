// Named POSIX shared memory, reserved when it is made: a later write cannot fail for lack of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "weightbus/base/result.h"
#include "weightbus/device/device.h"

namespace weightbus::device {

// A mapping of a named object. The name outlives it.
class SharedMemory final : public Memory {
 public:
  SharedMemory(std::byte* data, model::Region region) noexcept : data_(data), region_(std::move(region)) {}
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() override;
  std::byte* data() noexcept override { return data_; }
  std::uint64_t bytes() const noexcept override { return region_.bytes; }
  const model::Region& region() const noexcept override { return region_; }

 private:
  std::byte* data_;  // null when the region is empty
  model::Region region_;
};

struct MapOptions {
  bool populate = false;
  bool huge_pages = false;
};

// Bytes that a new region could take: what is left of /dev/shm, and no more than the machine's available memory, since
// tmpfs pages are memory and a machine that runs out kills a process.
base::Result<std::uint64_t> shared_memory_free_bytes();

// Device::allocate, import_region and remove for host memory. A failed call leaves no name behind.
base::Result<std::unique_ptr<SharedMemory>> create_shared_memory(const std::string& name, std::uint64_t bytes,
                                                                 const MapOptions& options);
base::Result<std::unique_ptr<SharedMemory>> open_shared_memory(const model::Region& region, bool writable,
                                                               const MapOptions& options);
void remove_shared_memory(const std::string& name) noexcept;

// "weightbus." and then at most 200 characters without a slash. Names come from outside, in regions.
base::Status check_shared_memory_name(const std::string& name);

}  // namespace weightbus::device
