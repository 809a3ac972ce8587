// Tells whether the process that holds an epoch still lives.
#pragma once

#include <cstdint>
#include <string>

#include "weightbus/base/result.h"

namespace weightbus::store {

// A lock on the byte `epoch` of a file. It belongs to the open file, so the kernel drops it when the process ends,
// however it ends, and never before. Moves only.
class WriterLock {
 public:
  WriterLock() = default;
  ~WriterLock();
  WriterLock(WriterLock&& other) noexcept;
  WriterLock& operator=(WriterLock&& other) noexcept;

  static base::Result<WriterLock> open(const std::string& path);
  base::Status hold(std::uint64_t epoch);
  void drop(std::uint64_t epoch) noexcept;
  // Someone else holds `epoch`: its writer lives. True where the system cannot tell, which leaves it to the lease.
  bool is_held_elsewhere(std::uint64_t epoch) const noexcept;

 private:
  explicit WriterLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace weightbus::store
