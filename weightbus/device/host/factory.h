// CPU memory as a Device: named POSIX shared memory, copied by the calling threads.
#pragma once

#include <memory>

#include "weightbus/device/device.h"

namespace weightbus::device {

struct HostOptions {
  unsigned threads = 1;     // that share one copy; more than one helps only where a core cannot fill the memory bus
  bool populate = true;     // map every page at once, so that no update pays for page faults
  bool huge_pages = false;  // ask for transparent huge pages; ignored where the kernel does not give them to tmpfs
};

// Never fails: what the machine lacks is reported by the calls that need it. Thread safe.
std::shared_ptr<Device> make_host_device(const HostOptions& options = {});

}  // namespace weightbus::device
