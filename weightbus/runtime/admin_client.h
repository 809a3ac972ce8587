// What the command line (or a script in C++) asks the coordinator: one request, repeated until it is answered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"
#include "weightbus/protocol/messages.h"
#include "weightbus/runtime/control_link.h"
#include "weightbus/transport/keys.h"
#include "weightbus/transport/transport.h"

namespace weightbus::runtime {

struct AdminClientOptions {
  std::string endpoint;                    // "tcp://127.0.0.1:7070"
  std::string coordinator_key;             // Z85; empty without keys
  std::optional<transport::KeyPair> keys;  // needed off loopback
  std::string model = "default";
  // The name that the coordinator's allow-list binds the key to. Empty: "cli-" and a random number, which serves
  // wherever the list says "*", and without keys.
  std::string member;
  base::Duration timeout = base::Millis(5'000);  // of a request
};

// Used by one thread at a time.
class AdminClient {
 public:
  // Begins to connect; whether anybody is there shows at the first request. kInvalidArgument: an endpoint that is none,
  // or one off loopback without keys.
  static base::Result<std::unique_ptr<AdminClient>> connect(AdminClientOptions options);
  // The same over a transport that exists; for tests.
  static base::Result<std::unique_ptr<AdminClient>> connect(AdminClientOptions options,
                                                            std::unique_ptr<transport::Transport> transport);

  // Sends a request and repeats it until it is answered. The coordinator answers a repeated one as it did before, so it
  // takes effect once. An ErrorReply comes back as its Error. kUnavailable: nobody answered within the timeout (that of
  // the options, unless given); the request may have taken effect all the same.
  base::Result<protocol::Body> request(protocol::Body body, std::optional<base::Duration> timeout = std::nullopt);

  // The same, for requests with one kind of answer. kInternal when another kind came.
  template <class Reply>
  base::Result<Reply> ask(protocol::Body body, std::optional<base::Duration> timeout = std::nullopt) {
    WB_ASSIGN(auto answer, request(std::move(body), timeout));
    if (auto* reply = std::get_if<Reply>(&answer)) return std::move(*reply);
    return unexpected(answer);
  }

  // Of the coordinator that answered last; a restart of the coordinator changes it.
  const std::optional<model::Epoch>& epoch() const { return epoch_; }
  const AdminClientOptions& options() const { return options_; }

 private:
  AdminClient(AdminClientOptions options, std::unique_ptr<transport::Transport> transport);
  tl::unexpected<base::Error> unexpected(const protocol::Body& answer) const;
  base::Error no_answer(base::Duration timeout) const;

  AdminClientOptions options_;
  std::unique_ptr<transport::Transport> transport_;
  ControlLink link_;
  std::optional<model::Epoch> epoch_;
};

}  // namespace weightbus::runtime
