// The listening side of a Unix socket that only this user can reach.
#pragma once

#include <cstdint>
#include <string>

#include "weightbus/base/result.h"
#include "weightbus/client/unique_fd.h"

namespace weightbus::runtime {

// A non-blocking listener at `path`, mode 0600 from its first moment. kConflict: somebody listens there; a socket that
// nobody listens on is replaced.
base::Result<client::UniqueFd> listen_unix(const std::string& path);

struct Accepted {
  client::UniqueFd fd;  // non-blocking
  std::uint64_t pid = 0;
};
// The next waiting connection. kUnavailable: none waits; kPermissionDenied: it was another user's, and is closed.
base::Result<Accepted> accept_unix(int listener);

}  // namespace weightbus::runtime
