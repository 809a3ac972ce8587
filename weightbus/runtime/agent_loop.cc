#include "weightbus/runtime/agent_loop.h"

#include "weightbus/observe/logs.h"
#include "weightbus/runtime/clock.h"

namespace weightbus::runtime {
namespace {
constexpr const char* kCoordinatorConnection = "coordinator";
constexpr base::Duration kTick = base::Millis(20);

protocol::Now present() { return {now(), unix_millis()}; }
}  // namespace

AgentLoop::AgentLoop(AgentLoopOptions options, transport::Transport& transport, AgentMachine& machine, AgentWork& work,
                     AgentFiles& files)
    : options_(std::move(options)),
      transport_(transport),
      link_(transport),
      machine_(machine),
      work_(work),
      files_(files),
      mailbox_([&transport] { transport.wake(); }) {}

void AgentLoop::stop() {
  stop_ = true;
  transport_.wake();
}

protocol::Readiness AgentLoop::readiness() const {
  const std::lock_guard lock(readiness_mutex_);
  return readiness_;
}

// The coordinator's messages come over the connection that we made to it, whose key is pinned; a rank's over the
// listener.
bool AgentLoop::trusted(const Incoming& message) const {
  const bool from_coordinator = message.envelope.from == protocol::kCoordinator;
  if (from_coordinator != (message.connection == kCoordinatorConnection)) return false;
  if (from_coordinator || !message.identity) return true;
  const auto& identity = *message.identity;
  return identity.role == model::Role::kEngineAgent &&
         (identity.member == message.envelope.from || identity.member.value() == "*");
}

int AgentLoop::run() {
  if (auto connected =
          transport_.connect(kCoordinatorConnection, options_.coordinator_endpoint, options_.coordinator_key);
      !connected) {
    observe::log(observe::Level::kError, "agent.connect", {{"error", connected.error().message}});
    return kExitFatal;
  }
  link_.route(protocol::kCoordinator, kCoordinatorConnection);
  machine_.start(present());
  carry_out();
  base::Instant next_tick = now();
  while (!stop_ && !exit_code_) {
    const base::Duration wait = std::max(next_tick - now(), base::Duration::zero());
    if (auto message = link_.receive(wait)) {
      if (trusted(*message)) {
        machine_.step(present(), message->envelope);
      } else {
        observe::log(observe::Level::kWarn, "agent.impostor", {{"claims", message->envelope.from.value()}});
      }
      carry_out();
    }
    if (mailbox_.run() > 0) carry_out();
    if (now() < next_tick) continue;
    next_tick = now() + kTick;
    work_.report();
    machine_.tick(present());
    carry_out();
    connect_peers();
    const std::lock_guard lock(readiness_mutex_);
    readiness_ = machine_.readiness(present());
  }
  work_.finish();
  return exit_code_.value_or(0);
}

void AgentLoop::carry_out() {
  protocol::AgentOutput output = machine_.take_output();
  if (output.save) {
    if (auto saved = files_.save_state(*output.save); !saved) {
      observe::log(observe::Level::kError, "agent.state_not_saved", {{"error", saved.error().message}});
      exit_code_ = kExitCannotSave;  // nothing that depends on it may be sent
      return;
    }
  }
  for (const auto& envelope : output.send)
    link_.send(envelope);
  for (auto& action : output.perform) {
    work_.perform(std::move(action), [this](protocol::AgentEvent event) {
      mailbox_.post([this, event = std::move(event)] { machine_.done(present(), event); });
    });
  }
  for (const auto& observation : output.observe)
    options_.observe(observation);
  if (output.fatal) {
    observe::log(observe::Level::kError, "agent.refused", {{"error", output.fatal->message}});
    exit_code_ = kExitFatal;
  }
}

void AgentLoop::connect_peers() {
  for (const auto& peer : machine_.peers()) {
    if (peer.id == options_.self.id || peer.endpoint.empty()) continue;
    auto& endpoint = peers_[peer.id];
    if (endpoint == peer.endpoint) continue;
    const std::string connection = "rank:" + peer.id.value();
    if (auto connected = transport_.connect(connection, peer.endpoint, peer.public_key); !connected) {
      observe::log(observe::Level::kError, "agent.connect",
                   {{"rank", peer.id.value()}, {"error", connected.error().message}});
      continue;
    }
    endpoint = peer.endpoint;
    link_.route(peer.id, connection);
  }
}

}  // namespace weightbus::runtime
