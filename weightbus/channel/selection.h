// Which channel a source and a sink use. Pure, and symmetric: both ends compute the same answer from the same facts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/model/ids.h"

namespace weightbus::channel {

struct SelectionEnd {
  model::MemberId member;
  model::HostId host;
  std::string device_uuid;  // empty for host memory
};

// A channel as the sink has it, with the reason when it is not usable there.
struct SinkChannel {
  std::string name;
  bool usable;
  std::string reason;
};

// The best channel that the pair can use, that the source offers and that the sink has: local (offered only inside one
// process), shm on one host, else tcp. kUnsupported when none is left: names both members and why each was not taken.
base::Result<std::string> select_channel(const SelectionEnd& source, const SelectionEnd& sink,
                                         std::span<const std::string> offered, std::span<const SinkChannel> at_sink);

}  // namespace weightbus::channel
