// `local`: source and sink in one process, for tests and simulations. The sink copies through the source's pointers.
#pragma once

#include <memory>

#include "weightbus/channel/channel.h"

namespace weightbus::channel {

// Sessions meet only within one such channel. Thread safe.
std::unique_ptr<Channel> make_local_channel();

}  // namespace weightbus::channel
