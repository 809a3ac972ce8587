#include "cli/session.h"

#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>

#include "cli/exit_codes.h"
#include "cli/table.h"
#include "weightbus/runtime/clock.h"
#include "weightbus/runtime/values.h"

namespace weightbus::cli {

base::Duration Session::timeout() const {
  const auto parsed = runtime::parse_duration(options.timeout);
  return parsed ? *parsed : base::Millis(5'000);  // the option was checked where it was parsed
}

base::Result<std::unique_ptr<runtime::AdminClient>> Session::connect() const {
  runtime::AdminClientOptions client;
  client.endpoint = options.coordinator;
  client.coordinator_key = options.coordinator_key;
  client.model = options.model;
  client.member = options.member;
  client.timeout = timeout();
  if (!options.keys_file.empty()) {
    WB_ASSIGN(client.keys, transport::load_keys(options.keys_file));
  }
  return runtime::AdminClient::connect(std::move(client));
}

int Session::done(const std::string& text, const Json& json, int code) {
  console.out << (options.json ? to_line(json) : text) << std::flush;
  return code;
}

int Session::fail(const base::Error& error) { return fail(error, Json::object()); }
int Session::fail(const base::Error& error, Json more) {
  return fail(error, std::move(more), exit_code_of(error.code));
}

int Session::fail(const base::Error& error, Json more, int code) {
  if (options.json) {
    Json json{{"error", to_json(error)}};
    json.update(more);
    console.out << to_line(json) << std::flush;
    return code;
  }
  const std::string where = command.empty() ? "weightbus" : "weightbus " + command;
  std::string text = wrap_text(where + ": " + error.message, static_cast<std::size_t>(console.width()), 0);
  const bool colour = console.colour && console.err_terminal;
  console.err << (colour ? console.paint(Style::kBad, "error: ") : std::string("error: ")) << text << std::flush;
  return code;
}

Progress::Mode Session::progress_mode() const {
  if (options.json) return Progress::Mode::kSilent;
  return console.out_terminal && console.err_terminal ? Progress::Mode::kBar : Progress::Mode::kLines;
}

base::Result<protocol::UpdateStatus> Session::wait(runtime::AdminClient& client,
                                                   const protocol::UpdateAccepted& accepted, Progress::Mode mode) {
  Progress progress(console, mode);
  WaitOptions wait{accepted.update, accepted.queued, client.epoch()};
  const WaitWorld world{
      [&] { return client.ask<protocol::ModelStatus>(protocol::StatusRequest{}, base::Millis(1'000)); },
      [] { return runtime::now(); }, [](base::Duration time) { std::this_thread::sleep_for(time); }};
  return wait_for_update(wait, world, progress);
}

}  // namespace weightbus::cli
