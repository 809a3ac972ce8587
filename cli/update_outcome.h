// What push and rollback share: ask for an update, wait for its end, print the result.
#pragma once

#include "cli/session.h"

namespace weightbus::cli {

// Returns the exit code: 0 only when the update was committed (with no_wait: accepted).
int start_and_wait(Session& session, protocol::Body request, bool no_wait);

}  // namespace weightbus::cli
