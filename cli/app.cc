#include "cli/app.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/option_checks.h"

namespace weightbus::cli {
namespace {

// The list of commands, in the order of --help.
constexpr AddCommand kCommands[] = {
    &add_push, &add_rollback, &add_status, &add_watch,  &add_verify,     &add_diff,
    &add_pin,  &add_fleet,    &add_keys,   &add_doctor, &add_completion, &add_demo,
};

void add_global_options(CLI::App& app, GlobalOptions& options) {
  const std::string group = "Options of every command";
  app.add_option("--coordinator", options.coordinator, "Where the coordinator listens")
      ->envname("WEIGHTBUS_COORDINATOR")
      ->type_name("ENDPOINT")
      ->capture_default_str()
      ->group(group);
  app.add_option("--coordinator-key", options.coordinator_key,
                 "The coordinator's public key (Z85); needed with --keys-file")
      ->envname("WEIGHTBUS_COORDINATOR_KEY")
      ->type_name("KEY")
      ->group(group);
  app.add_option("--keys-file", options.keys_file, "This command line's keys (weightbus keys new); needed off loopback")
      ->envname("WEIGHTBUS_KEYS_FILE")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--as", options.member,
                 "The member name that the coordinator's allow file gives the key, unless it is *")
      ->envname("WEIGHTBUS_AS")
      ->type_name("NAME")
      ->group(group);
  app.add_option("--model", options.model, "The model; one coordinator serves several")
      ->envname("WEIGHTBUS_MODEL")
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
  app.add_option("--timeout", options.timeout, "How long to wait for the coordinator's answer to one request")
      ->type_name("DURATION")
      ->check(duration_check())
      ->capture_default_str()
      ->group(group);
  app.add_flag("--json", options.json, "Print exactly one JSON object (watch: one a line), errors too")->group(group);
  app.add_flag("--no-color", options.no_color, "No colours, as with NO_COLOR set or without a terminal")->group(group);
}

// Of nested commands too. A command's own words come first in its help, these last.
void add_footers(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({})) {
    command->footer(std::string("Options of every command (--coordinator, --model, --json, ...): weightbus --help\n") +
                    exit_codes_help());
    add_footers(*command);
  }
}

int usage_error(Session& session, const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error, session.console.out, session.console.err);
  const auto chosen = app.get_subcommands();
  const auto remaining = app.remaining();
  if (!chosen.empty()) session.command = chosen.front()->get_name();
  if (chosen.empty() && !remaining.empty()) {
    const std::string& word = remaining.front();
    return session.fail({base::ErrorCode::kInvalidArgument,
                         "there is no " + std::string(word.starts_with("-") ? "option " : "command ") + word +
                             "; see `weightbus --help`"});
  }
  const std::string help = chosen.empty() ? "weightbus --help" : "weightbus " + chosen.front()->get_name() + " --help";
  return session.fail({base::ErrorCode::kInvalidArgument, std::string(error.what()) + "; see `" + help + "`"});
}

}  // namespace

std::unique_ptr<CLI::App> make_app(Session& session) {
  auto app = std::make_unique<CLI::App>(
      "Carries model weights from trainers to inference engines as verified transactions.", "weightbus");
  app->set_version_flag("--version", "weightbus " WEIGHTBUS_VERSION);
  app->require_subcommand(1);
  app->fallthrough();  // global options may stand behind the command, too
  app->footer(std::string(exit_codes_help()) + "\n\n`weightbus COMMAND --help` says more about each command.");
  add_global_options(*app, session.options);
  for (const auto add : kCommands)
    add(*app, session);
  add_footers(*app);
  return app;
}

int run(Session& session, int argc, const char* const* argv) {
  // A usage error must know these two before parsing has got to them.
  const auto given = [&](std::string_view flag) { return std::find(argv + 1, argv + argc, flag) != argv + argc; };
  session.options.json = given("--json");
  if (given("--no-color")) session.console.colour = false;
  const auto app = make_app(session);
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return usage_error(session, *app, error);
  }
  session.command = app->get_subcommands().front()->get_name();
  return session.action ? session.action() : kExitUsage;
}

}  // namespace weightbus::cli
