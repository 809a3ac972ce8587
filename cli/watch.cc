// watch: the model's state as it changes.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/fleet_view.h"
#include "cli/watch_lines.h"

namespace weightbus::cli {
namespace {

constexpr base::Duration kPoll = base::Millis(250);
constexpr const char* kHomeAndClear = "\033[H\033[2J";

// Ends with an error only if it never got an answer, or with `once`.
int watch(Session& session, bool once) {
  auto& out = session.console.out;
  const bool screen = session.console.out_terminal && !session.options.json;
  const auto client = session.connect();
  if (!client) return session.fail(client.error());
  WatchLines lines(session.options.json);
  bool answered = false;
  for (;;) {
    const auto status = (*client)->ask<protocol::ModelStatus>(protocol::StatusRequest{});
    if (!status) {
      if (once || !answered) return session.fail(status.error());
      out << (screen ? status.error().message + "\n" : lines.trouble(status.error())) << std::flush;
    } else if (screen) {
      out << (once ? "" : kHomeAndClear) << status_view(*status, session.console) << std::flush;
    } else {
      out << lines.next(*status) << std::flush;
    }
    answered = true;
    if (once || !out.good()) return kExitOk;
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

void add_watch(CLI::App& app, Session& session) {
  const auto once = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "watch",
      "Show the state as it changes, until interrupted: a screen on a terminal, otherwise a line for each event");
  command->add_flag("--once", *once, "Show what there is now, and end");
  command->callback([&session, once] { session.action = [&session, once] { return watch(session, *once); }; });
}

}  // namespace weightbus::cli
