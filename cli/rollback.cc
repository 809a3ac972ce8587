// rollback and abort: back to an earlier version, or out of the running update.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/option_checks.h"
#include "cli/update_outcome.h"

namespace weightbus::cli {

void add_rollback(CLI::App& app, Session& session) {
  struct Options {
    std::optional<std::uint64_t> to;
    bool no_wait = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* rollback =
      app.add_subcommand("rollback", "Take every engine back to an earlier version, and wait until it is committed");
  rollback->add_option("--to", options->to, "The version; the one before the committed one, if not given")
      ->type_name("VERSION")
      ->check(count_check());
  rollback->add_flag("--no-wait", options->no_wait, "Do not wait for the end");
  rollback->callback([&session, options] {
    session.action = [&session, options] {
      protocol::RollbackRequest request;
      if (options->to) request.to = model::WeightVersion{*options->to};
      return start_and_wait(session, request, options->no_wait);
    };
  });

  CLI::App* abort = app.add_subcommand("abort", "Abort the running update, if it is not decided yet");
  abort->callback([&session] {
    session.action = [&session] {
      const auto done = session.ask<protocol::Done>(protocol::AbortRequest{});
      if (!done) return session.fail(done.error());
      return session.done("aborting the running update; the engines serve what they served before\n",
                          {{"aborting", true}});
    };
  });
}

}  // namespace weightbus::cli
