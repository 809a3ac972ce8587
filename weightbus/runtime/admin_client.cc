#include "weightbus/runtime/admin_client.h"

#include <sodium.h>

#include <algorithm>

#include "weightbus/protocol/types.h"
#include "weightbus/runtime/clock.h"
#include "weightbus/runtime/values.h"
#include "weightbus/transport/zmq/zmq_transport.h"

namespace weightbus::runtime {
namespace {

constexpr base::Duration kRepeat = base::Millis(500);
const std::string kConnection = "coordinator";

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (number == 0)
    randombytes_buf(&number, sizeof number);
  return number;
}

}  // namespace

base::Result<std::unique_ptr<AdminClient>> AdminClient::connect(AdminClientOptions options) {
  transport::ZmqOptions zmq;
  zmq.keys = options.keys;
  WB_ASSIGN(auto transport, transport::ZmqTransport::create(std::move(zmq)));
  return connect(std::move(options), std::move(transport));
}

base::Result<std::unique_ptr<AdminClient>> AdminClient::connect(AdminClientOptions options,
                                                                std::unique_ptr<transport::Transport> transport) {
  if (sodium_init() < 0) return base::fail(base::ErrorCode::kInternal, "libsodium does not start");
  if (options.keys.has_value() && options.coordinator_key.empty()) {
    return base::fail(base::ErrorCode::kInvalidArgument,
                      "with keys, the coordinator's public key must be given too: --coordinator-key");
  }
  if (options.member.empty()) options.member = fmt::format("cli-{:016x}", random_number());
  WB_TRY(transport->connect(kConnection, options.endpoint, options.coordinator_key));
  return std::unique_ptr<AdminClient>(new AdminClient(std::move(options), std::move(transport)));
}

AdminClient::AdminClient(AdminClientOptions options, std::unique_ptr<transport::Transport> transport)
    : options_(std::move(options)), transport_(std::move(transport)), link_(*transport_) {
  link_.route(protocol::kCoordinator, kConnection);
}

base::Result<protocol::Body> AdminClient::request(protocol::Body body, std::optional<base::Duration> timeout) {
  // Numbers are random, since a key's name is the same in each process that uses it.
  const std::uint64_t number = random_number();
  const protocol::Envelope envelope{{},
                                    model::ModelName{options_.model},
                                    std::nullopt,
                                    model::MemberId{options_.member},
                                    protocol::kCoordinator,
                                    number,
                                    std::move(body)};
  const base::Duration patience = timeout.value_or(options_.timeout);
  const base::Instant deadline = now() + patience;
  base::Instant next_send = now();
  for (base::Instant present = now(); present < deadline; present = now()) {
    if (present >= next_send) {
      link_.send(envelope);  // one that could not be queued is repeated like one that was lost
      next_send = present + kRepeat;
    }
    auto answer = link_.receive(std::max(std::min(next_send, deadline) - now(), base::Duration::zero()));
    if (!answer || answer->envelope.from != protocol::kCoordinator || answer->envelope.request != number) continue;
    epoch_ = answer->envelope.epoch;
    if (auto* error = std::get_if<protocol::ErrorReply>(&answer->envelope.body)) return base::fail(error->error);
    return std::move(answer->envelope.body);
  }
  return base::fail(no_answer(patience));
}

base::Error AdminClient::no_answer(base::Duration timeout) const {
  const auto& counters = link_.counters();
  if (counters.unsupported > 0) {
    return {
        base::ErrorCode::kUnsupported,
        fmt::format("the coordinator at {} answers in a way that this program does not know ({}); use the programs of "
                    "one release",
                    options_.endpoint, counters.last_error)};
  }
  const std::string keys =
      options_.keys ? fmt::format(", and that its allow file admits this key with role admin under the name {} (or *)",
                                  options_.member)
                    : std::string(", and whether it asks for keys (--keys-file, --coordinator-key)");
  return {
      base::ErrorCode::kUnavailable,
      fmt::format("no coordinator answered at {} within {}; check that weightbus-coordinator runs and listens there "
                  "(--coordinator or WEIGHTBUS_COORDINATOR names another place){}",
                  options_.endpoint, format_duration(timeout), keys)};
}

tl::unexpected<base::Error> AdminClient::unexpected(const protocol::Body& answer) const {
  return base::fail(base::ErrorCode::kInternal, "the coordinator at {} answered {}, which is no answer to this request",
                    options_.endpoint, protocol::body_name(answer));
}

}  // namespace weightbus::runtime
