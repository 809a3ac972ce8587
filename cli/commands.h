// The commands. Each function adds one or a few that belong together.
#pragma once

#include "cli/session.h"

namespace weightbus::cli {

void add_push(CLI::App& app, Session& session);      // push, plan
void add_rollback(CLI::App& app, Session& session);  // rollback, abort
void add_status(CLI::App& app, Session& session);    // status, versions, members
void add_watch(CLI::App& app, Session& session);
void add_verify(CLI::App& app, Session& session);
void add_diff(CLI::App& app, Session& session);
void add_pin(CLI::App& app, Session& session);    // pin, unpin
void add_fleet(CLI::App& app, Session& session);  // evict, adopt
void add_keys(CLI::App& app, Session& session);
void add_doctor(CLI::App& app, Session& session);
void add_completion(CLI::App& app, Session& session);
void add_demo(CLI::App& app, Session& session);

}  // namespace weightbus::cli
