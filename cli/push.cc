// push and plan: a new version from a checkpoint, or what it would take.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/option_checks.h"
#include "cli/update_outcome.h"
#include "cli/update_view.h"

namespace weightbus::cli {
namespace {

struct PushOptions {
  std::string checkpoint;
  bool queue = false;
  bool dry_run = false;
  bool no_wait = false;
  std::uint32_t require = 0;
  std::uint64_t step = 0;
  std::string deadline;
};

protocol::PublishRequest request_of(const PushOptions& options) {
  protocol::PublishRequest request{protocol::CheckpointSource{absolute_path(options.checkpoint)}};
  request.queue = options.queue;
  request.dry_run = options.dry_run;
  request.require = options.require;
  request.step = options.step;
  if (!options.deadline.empty()) request.deadline_ms = duration_ms(options.deadline);
  return request;
}

int plan(Session& session, PushOptions options) {
  options.dry_run = true;
  const auto client = session.connect();
  if (!client) return session.fail(client.error());
  const auto accepted = (*client)->ask<protocol::UpdateAccepted>(request_of(options));
  if (!accepted) return session.fail(accepted.error());
  const auto mode = session.progress_mode() == Progress::Mode::kBar ? Progress::Mode::kBar : Progress::Mode::kSilent;
  const auto update = session.wait(**client, *accepted, mode);
  if (!update) return session.fail(update.error());
  if (update->error) return session.fail(*update->error, {{"update", to_json(*update)}}, kExitFailed);
  return session.done(plan_result(*update, session.console),
                      {{"plan", to_json(*update)["plan"]}, {"update", to_json(*update)}});
}

int push(Session& session, const PushOptions& options) {
  if (options.dry_run) return plan(session, options);
  return start_and_wait(session, request_of(options), options.no_wait);
}

}  // namespace

void add_push(CLI::App& app, Session& session) {
  const auto options = std::make_shared<PushOptions>();
  CLI::App* push_command =
      app.add_subcommand("push", "Publish a checkpoint as the next version, and wait until it is committed");
  push_command
      ->add_option("--checkpoint", options->checkpoint, "Folder with safetensors files, as the shard agents see it")
      ->type_name("DIR")
      ->required();
  push_command->add_flag("--queue", options->queue, "Wait for a running update instead of being refused");
  push_command->add_option("--require", options->require, "How many engines must commit; 0: all")
      ->type_name("N")
      ->check(count_check())
      ->capture_default_str();
  push_command->add_option("--step", options->step, "The trainer's step, shown with the version")
      ->type_name("N")
      ->check(count_check());
  push_command
      ->add_option("--deadline", options->deadline,
                   "Abort unless decided by then; the coordinator's setting if not given")
      ->type_name("DURATION")
      ->check(duration_check());
  push_command->add_flag("--dry-run", options->dry_run,
                         "Plan, reserve and report, and change nothing: the same as `weightbus plan`");
  push_command->add_flag("--no-wait", options->no_wait, "Do not wait for the end");
  push_command->callback(
      [&session, options] { session.action = [&session, options] { return push(session, *options); }; });

  const auto plan_options = std::make_shared<PushOptions>();
  CLI::App* plan_command = app.add_subcommand(
      "plan", "Show what a push would do: bytes by channel and link, buckets, memory, what is not covered");
  plan_command
      ->add_option("--checkpoint", plan_options->checkpoint,
                   "Folder with safetensors files, as the shard agents see it")
      ->type_name("DIR")
      ->required();
  plan_command->add_flag("--queue", plan_options->queue, "Wait for a running update instead of being refused");
  plan_command->callback(
      [&session, plan_options] { session.action = [&session, plan_options] { return plan(session, *plan_options); }; });
}

}  // namespace weightbus::cli
