// A region in shared memory with content, for the tests of bulk data.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/unit/device/copy_cases.h"
#include "weightbus/device/device.h"

namespace weightbus::field {

inline std::string unique_name() {
  static std::atomic<int> count{0};
  return "weightbus.test." + std::to_string(::getpid()) + ".field." + std::to_string(count++);
}

// Removed at the end.
class Region {
 public:
  Region(device::Device& device, std::uint64_t bytes) : device_(device), name_(unique_name()) {
    auto memory = device.allocate(name_, bytes);
    if (!memory) throw std::runtime_error(memory.error().message);
    memory_ = std::move(*memory);
    const auto content = testing::random_bytes(bytes, bytes);
    if (bytes > 0) std::memcpy(memory_->data(), content.data(), bytes);
  }
  ~Region() { device_.remove(name_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  device::Memory* memory() const { return memory_.get(); }
  void overwrite() {  // as an owner does that has taken its memory back
    if (memory_->bytes() > 0) std::memset(memory_->data(), 0x5a, memory_->bytes());
  }

 private:
  device::Device& device_;
  std::string name_;
  std::unique_ptr<device::Memory> memory_;
};

}  // namespace weightbus::field
