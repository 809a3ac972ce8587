#include "weightbus/client/wake_fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "weightbus/base/assert.h"

namespace weightbus::client {

WakeFd::WakeFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  WB_ASSERT(fd_.valid(), "no eventfd: the process is out of file descriptors (raise RLIMIT_NOFILE)");
}

void WakeFd::wake() noexcept {
  const std::uint64_t one = 1;
  // A full counter is a pending wake-up already.
  [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof one);
}

void WakeFd::drain() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace weightbus::client
