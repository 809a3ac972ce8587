// What --json prints: stable keys in snake_case, documented in docs/CLI.md. Durations are in nanoseconds, times in
// milliseconds since 1970, sizes in bytes; what is absent is null.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "weightbus/base/result.h"
#include "weightbus/protocol/status.h"

namespace weightbus::cli {

using Json = nlohmann::ordered_json;

Json to_json(const base::Error& error);  // {"code", "message"}
Json to_json(const protocol::UpdateStatus& update);
Json to_json(const protocol::PlanReport& plan);
Json to_json(const protocol::VersionStatus& version);
Json to_json(const protocol::MemberStatus& member);
Json to_json(const protocol::Event& event);
Json to_json(const protocol::ModelStatus& status);

// One line, whatever bytes the texts hold.
std::string to_line(const Json& value);

}  // namespace weightbus::cli
