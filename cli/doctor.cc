// doctor: what works on this machine, and what to do about what does not.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/table.h"

namespace weightbus::cli {
namespace {

constexpr std::size_t kTextIndent = 23;

Check check_coordinator(const Session& session) {
  const auto status = session.ask<protocol::ModelStatus>(protocol::StatusRequest{});
  const std::string where = session.options.coordinator;
  if (status) {
    return {"coordinator", Health::kOk,
            fmt::format("{} answers: epoch {}, model {}, {} members", where, status->epoch.number,
                        status->model.value(), status->members.size()),
            ""};
  }
  if (status.error().code == base::ErrorCode::kNotFound) {
    return {"coordinator", Health::kWarn, where + " answers: " + status.error().message,
            "start the model's agents, or name another one with --model"};
  }
  return {"coordinator", Health::kWarn, "none answers at " + where, status.error().message};
}

std::string check_text(const Check& check, const Console& console) {
  const Style style = check.health == Health::kOk     ? Style::kGood
                      : check.health == Health::kWarn ? Style::kWarn
                                                      : Style::kBad;
  const auto width = static_cast<std::size_t>(std::min(console.width(), 100));
  std::string found = wrap_text(check.found, width, kTextIndent);
  const std::string health = fmt::format("{:<6}", health_name(check.health));
  std::string out = console.paint(style, health) + fmt::format("{:<17}", check.name) + found.substr(kTextIndent);
  if (!check.advice.empty()) out += wrap_text("-> " + check.advice, width, kTextIndent);
  return out;
}

int doctor(Session& session) {
  std::vector<Check> checks = {check_shared_memory(), check_reservation(),
                               check_descriptors(),   check_locked_memory(),
                               check_huge_pages(),    check_curve(),
                               check_clock(),         check_cuda(),
                               check_nccl(),          check_coordinator(session)};
  const bool healthy =
      std::none_of(checks.begin(), checks.end(), [](const Check& c) { return c.health == Health::kFail; });
  std::string text;
  Json rows = Json::array();
  for (const auto& check : checks) {
    text += check_text(check, session.console);
    rows.push_back({{"check", check.name},
                    {"health", health_name(check.health)},
                    {"found", check.found},
                    {"advice", check.advice.empty() ? Json(nullptr) : Json(check.advice)}});
  }
  text += healthy ? "nothing stands in the way of running Weightbus here\n" : "Weightbus cannot run here as it is\n";
  return session.done(text, {{"healthy", healthy}, {"checks", std::move(rows)}}, healthy ? kExitOk : kExitFailed);
}

}  // namespace

void add_doctor(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand("doctor", "Check this machine, and say what to do about what does not work");
  command->callback([&session] { session.action = [&session] { return doctor(session); }; });
}

}  // namespace weightbus::cli
