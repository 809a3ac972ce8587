// One run of the command line: the options that every command has, where output goes, and what to run.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/console.h"
#include "cli/json_views.h"
#include "cli/waiting.h"
#include "weightbus/runtime/admin_client.h"

namespace CLI {
class App;
}

namespace weightbus::cli {

struct GlobalOptions {
  std::string coordinator = "tcp://127.0.0.1:7070";
  std::string coordinator_key;
  std::string keys_file;
  std::string member;
  std::string model = "default";
  std::string timeout = "5s";
  bool json = false;
  bool no_color = false;
};

class Session {
 public:
  explicit Session(Console out) : console(std::move(out)) {}

  GlobalOptions options;
  Console console;
  std::string command;          // "push", for messages
  std::function<int()> action;  // what the chosen command does; returns the exit code

  // A client as the options say; whether a coordinator is there shows at its first request.
  base::Result<std::unique_ptr<runtime::AdminClient>> connect() const;
  // connect() and one request.
  template <class Reply>
  base::Result<Reply> ask(protocol::Body body) const {
    WB_ASSIGN(const auto client, connect());
    return client->ask<Reply>(std::move(body));
  }
  base::Duration timeout() const;

  // Ends a command: the text for people, or the one JSON object.
  int done(const std::string& text, const Json& json, int code = 0);
  // The error, as a sentence on stderr or as {"error": ...} on stdout; `more` is merged into that object.
  int fail(const base::Error& error);
  int fail(const base::Error& error, Json more);
  int fail(const base::Error& error, Json more, int code);

  // How waiting is to be shown, here and now.
  Progress::Mode progress_mode() const;
  // Waits for an update that the coordinator accepted.
  base::Result<protocol::UpdateStatus> wait(runtime::AdminClient& client, const protocol::UpdateAccepted& accepted,
                                            Progress::Mode mode);
};

// A command adds itself to the app and has its callback set Session::action. The list of all is in app.cc.
using AddCommand = void (*)(CLI::App& app, Session& session);

}  // namespace weightbus::cli
