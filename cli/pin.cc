// pin and unpin: keep a version whatever the retention setting says.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/option_checks.h"

namespace weightbus::cli {
namespace {

void add_one(CLI::App& app, Session& session, const char* name, const char* description, bool pinned) {
  const auto version = std::make_shared<std::uint64_t>(0);
  CLI::App* command = app.add_subcommand(name, description);
  command->add_option("version", *version, "The version, as `weightbus versions` shows it")
      ->type_name("VERSION")
      ->required()
      ->check(count_check());
  command->callback([&session, version, pinned] {
    session.action = [&session, version, pinned] {
      const auto done = session.ask<protocol::Done>(protocol::PinRequest{model::WeightVersion{*version}, pinned});
      if (!done) return session.fail(done.error());
      return session.done(fmt::format("version {} is {}\n", *version, pinned ? "pinned" : "no longer pinned"),
                          {{"version", *version}, {"pinned", pinned}});
    };
  });
}

}  // namespace

void add_pin(CLI::App& app, Session& session) {
  add_one(app, session, "pin", "Keep a version until it is unpinned, so that going back to it stays possible", true);
  add_one(app, session, "unpin", "Let a version be retired again", false);
}

}  // namespace weightbus::cli
