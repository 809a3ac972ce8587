// Memory that another process can map. The handle is opaque here: the channel or device that made it reads it.
#pragma once

#include <cstdint>
#include <string>

namespace weightbus::model {

// The numeric values are part of the wire protocol: append only.
enum class RegionKind : std::uint8_t {
  kHostShm = 1,    // named POSIX shared memory; the handle is its name
  kHostMemfd = 2,  // sealed memfd; the handle is empty, the descriptor travels over a Unix socket
  kCudaVmm = 3,    // cuMemCreate memory; the descriptor travels over a Unix socket
  kCudaIpc = 4,    // legacy CUDA IPC; the handle is the 64 bytes of cudaIpcMemHandle_t, then the offset
};

struct Region {
  RegionKind kind;
  std::string device_uuid;  // empty for host memory
  std::string handle;
  std::uint64_t bytes = 0;
  std::uint64_t allocation_id = 0;  // changes whenever the owner allocates anew
  friend bool operator==(const Region&, const Region&) = default;
};

}  // namespace weightbus::model
