// verify: what the live engines serve, proven by digests.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/option_checks.h"
#include "cli/proof.h"
#include "weightbus/checkpoint/checkpoint_folder.h"

namespace weightbus::cli {
namespace {

// A little more than the coordinator itself waits for its engines.
constexpr base::Duration kDigestTimeout = base::Millis(130'000);

int verify(Session& session, const std::string& checkpoint) {
  // A folder that cannot be read is found before the fleet is asked to read all its memory.
  std::optional<checkpoint::CheckpointFolder> folder;
  if (!checkpoint.empty()) {
    auto opened = checkpoint::CheckpointFolder::open(checkpoint);
    if (!opened) return session.fail(opened.error());
    folder.emplace(std::move(*opened));
  }
  const auto client = session.connect();
  if (!client) return session.fail(client.error());
  const auto status = (*client)->ask<protocol::ModelStatus>(protocol::StatusRequest{});
  if (!status) return session.fail(status.error());
  const auto live = (*client)->ask<protocol::VerifyReply>(protocol::VerifyRequest{}, kDigestTimeout);
  if (!live) return session.fail(live.error());
  if (live->engines.empty()) {
    return session.fail({base::ErrorCode::kUnavailable,
                         "no engine agent is connected, so there is nothing to verify; see "
                         "`weightbus members`"});
  }
  auto proof = compare_ranks(*live, status->committed);
  if (folder) {
    if (auto compared = compare_with(*folder, *live, proof); !compared) return session.fail(compared.error());
  }
  return session.done(proof_text(proof, session.console), to_json(proof), proof.good() ? kExitOk : kExitFailed);
}

}  // namespace

void add_verify(CLI::App& app, Session& session) {
  const auto checkpoint = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "verify", "Prove what the live engines serve: that all ranks agree, or that it is a checkpoint's bytes");
  command->add_option("--checkpoint", *checkpoint, "Compare each live slot with this folder, read here")
      ->type_name("DIR");
  command->callback(
      [&session, checkpoint] { session.action = [&session, checkpoint] { return verify(session, *checkpoint); }; });
}

}  // namespace weightbus::cli
