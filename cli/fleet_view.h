// The model's state for people: status, versions, members.
#pragma once

#include <string>

#include "cli/console.h"
#include "weightbus/protocol/status.h"

namespace weightbus::cli {

std::string status_view(const protocol::ModelStatus& status, const Console& console);
std::string versions_view(const protocol::ModelStatus& status, const Console& console);
std::string members_view(const protocol::ModelStatus& status, const Console& console);
// "12:00:05  update 3 committed", without a newline.
std::string event_line(const protocol::Event& event);

}  // namespace weightbus::cli
