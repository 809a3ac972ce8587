// status, versions and members: three views of the coordinator's one report.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/fleet_view.h"

namespace weightbus::cli {
namespace {

using View = std::string (*)(const protocol::ModelStatus&, const Console&);

void add_view(CLI::App& app, Session& session, const char* name, const char* description, View view,
              Json (*json)(const protocol::ModelStatus&)) {
  app.add_subcommand(name, description)->callback([&session, view, json] {
    session.action = [&session, view, json] {
      const auto status = session.ask<protocol::ModelStatus>(protocol::StatusRequest{});
      if (!status) return session.fail(status.error());
      return session.done(view(*status, session.console), json(*status));
    };
  });
}

Json part_of(const protocol::ModelStatus& status, const char* part) {
  const Json all = to_json(status);
  return {{"model", all["model"]}, {"committed", all["committed"]}, {part, all[part]}};
}

}  // namespace

void add_status(CLI::App& app, Session& session) {
  add_view(app, session, "status", "Show every engine, its version, the running update and what happened last",
           &status_view, [](const protocol::ModelStatus& status) { return to_json(status); });
  add_view(app, session, "versions", "Show what was committed, who holds it, and what going back would cost",
           &versions_view, [](const protocol::ModelStatus& status) { return part_of(status, "versions"); });
  add_view(app, session, "members", "Show every agent, its state and what it holds", &members_view,
           [](const protocol::ModelStatus& status) { return part_of(status, "members"); });
}

}  // namespace weightbus::cli
