#include "cli/update_outcome.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/exit_codes.h"
#include "cli/update_view.h"

namespace weightbus::cli {

int start_and_wait(Session& session, protocol::Body request, bool no_wait) {
  const auto client = session.connect();
  if (!client) return session.fail(client.error());
  const auto accepted = (*client)->ask<protocol::UpdateAccepted>(std::move(request));
  if (!accepted) return session.fail(accepted.error());
  const Json ids{{"update_id", accepted->update.value()}, {"version", accepted->target.value()}};
  if (no_wait) {
    Json json = ids;
    json["queued"] = accepted->queued;
    return session.done(
        fmt::format("update {} to version {} {}; `weightbus status` shows it\n", accepted->update.value(),
                    accepted->target.value(), accepted->queued ? "waits in the queue" : "has begun"),
        json);
  }
  const auto update = session.wait(**client, *accepted, session.progress_mode());
  if (!update) return session.fail(update.error(), ids);
  const bool committed = update->phase == protocol::Phase::kCommitted;
  Json json = ids;
  json["committed"] = committed;
  json["update"] = to_json(*update);
  if (!committed && update->error) json["error"] = to_json(*update->error);
  return session.done(update_result(*update, session.console), json, committed ? kExitOk : kExitFailed);
}

}  // namespace weightbus::cli
