// `shm`: source and sink share a host and their weights lie in CPU memory. The sink maps the source's regions read-only
// and copies straight into place: one copy, no socket, and nothing to do for the source's process.
#pragma once

#include <memory>

#include "weightbus/channel/channel.h"

namespace weightbus::channel {

struct ShmOptions {
  unsigned threads = 1;  // that share one pull's copy
  // How long the end of a SourceSession waits for a reader that does not come back (a stopped process). Such a reader's
  // pull cannot succeed any more: it looks again after its last byte.
  base::Duration drain = std::chrono::seconds(5);
};

// `device` maps the regions. Also removes what killed processes of this channel left in /dev/shm.
std::unique_ptr<Channel> make_shm_channel(std::shared_ptr<device::Device> device, const ShmOptions& options = {});

}  // namespace weightbus::channel
