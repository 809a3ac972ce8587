// What a state machine reports for logs and metrics. Observations never influence the protocol.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "weightbus/base/result.h"
#include "weightbus/protocol/status.h"
#include "weightbus/protocol/types.h"

namespace weightbus::protocol {

enum class Level : std::uint8_t { kDebug, kInfo, kWarning, kError };

struct Note {  // a line for people
  Level level;
  std::string text;
};
struct UpdateFinished {
  model::ModelName model;
  UpdateStatus status;
};
struct DigestMismatch {
  model::ModelName model;
  std::string what;
};
struct StaleDropped {  // a message of an older epoch, another update or an unknown member
  std::string reason;
};
struct Resent {
  std::string what;
};

using Observation = std::variant<Note, UpdateFinished, DigestMismatch, StaleDropped, Resent>;

}  // namespace weightbus::protocol
