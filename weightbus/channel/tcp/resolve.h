// Host names to addresses within a deadline.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/channel/pull_limits.h"

namespace weightbus::channel {

struct Address {
  sockaddr_storage storage;
  socklen_t size;
};

// All TCP addresses of a name or number; of an empty host, the addresses that mean "any". kUnavailable when the name is
// not known.
base::Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port, const PullLimits& limits);

}  // namespace weightbus::channel
