// The command line as a whole: global options and every command.
#pragma once

#include <memory>

#include "cli/session.h"

namespace weightbus::cli {

// Borrows the session, which outlives the app.
std::unique_ptr<CLI::App> make_app(Session& session);

// Parses and runs; returns the process's exit code. Prints usage errors like any other.
int run(Session& session, int argc, const char* const* argv);

}  // namespace weightbus::cli
