// An update for people: its progress while it runs, its table when it has ended.
#pragma once

#include <cstdint>
#include <string>

#include "cli/console.h"
#include "weightbus/protocol/status.h"

namespace weightbus::cli {

const char* role_text(model::Role role) noexcept;  // "shard agent"
bool has_ended(protocol::Phase phase) noexcept;
// Nanoseconds spent in a phase so far; 0 if it was not reached.
std::uint64_t time_in(const protocol::UpdateStatus& update, protocol::Phase phase) noexcept;
// Bytes a second while staging; 0 before that, and for updates that moved nothing.
double staging_rate(const protocol::UpdateStatus& update) noexcept;

// "staging   [=======>      ]  52%  620 MB of 1.19 GB  2.31 GB/s  0:01 left", without a newline and at most `width`
// columns; parts from the right give way first, the bar grows with what is left.
std::string progress_line(const protocol::UpdateStatus& update, int width);

// "push 7 to version 3: staging" with what has come of it, for logs.
std::string phase_line(const protocol::UpdateStatus& update);

// The result: a headline, the phases, one row an engine, the error if any.
std::string update_result(const protocol::UpdateStatus& update, const Console& console);

// What `weightbus plan` shows of a dry run.
std::string plan_result(const protocol::UpdateStatus& update, const Console& console);

}  // namespace weightbus::cli
