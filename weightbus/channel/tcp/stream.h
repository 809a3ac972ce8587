// One bucket's payload over a socket: long runs go between socket and memory directly, the rest through a small buffer
// that stays in the processor's cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/channel/tcp/socket.h"
#include "weightbus/device/host/copy_plan.h"

namespace weightbus::channel {

// `ops` were made with CopyKind::kPack, and their regions checked.
base::Status send_payload(int fd, std::span<const device::CopyOp> ops, std::span<const std::byte* const> from,
                          std::span<std::byte> staging, SocketLimits& limits);

// `ops` were made with CopyKind::kUnpack, and their regions checked. Calls progress(bytes) as bytes reach their place.
base::Status receive_payload(int fd, std::span<const device::CopyOp> ops, std::span<std::byte* const> to,
                             std::span<std::byte> staging, SocketLimits& limits,
                             const std::function<void(std::uint64_t)>& progress);

}  // namespace weightbus::channel
