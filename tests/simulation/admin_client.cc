#include "tests/simulation/admin_client.h"

namespace weightbus::simulation {
namespace {
const model::MemberId kAdmin{"admin"};
constexpr int kTries = 8;
}  // namespace

std::uint64_t AdminClient::push(std::uint32_t require, bool queue) {
  protocol::PublishRequest body{protocol::CheckpointSource{std::to_string(++contents_)}};
  body.queue = queue;
  body.require = require;
  body.dry_run = world_.faults.loss > 0 && world_.random.chance(3);
  request(std::move(body));
  return contents_;
}

void AdminClient::random_request() {
  const auto roll = world_.random.below(100);
  if (roll < 50 || versions_.empty()) {
    push(static_cast<std::uint32_t>(world_.random.below(3)), world_.random.chance(40));
  } else if (roll < 80) {
    protocol::RollbackRequest body;
    if (world_.random.chance(60))
      body.to = versions_[versions_.size() - 1 - world_.random.below(std::min<std::size_t>(4, versions_.size()))];
    request(body);
  } else if (roll < 88) {
    request(protocol::AbortRequest{});
  } else if (roll < 94) {
    request(protocol::PinRequest{versions_[world_.random.below(versions_.size())], world_.random.chance(60)});
  } else if (roll < 96) {
    request(protocol::EvictRequest{model::MemberId{world_.random.chance(50) ? "engine-0/0" : "shard-0"}});
  } else if (roll < 98) {
    request(protocol::VerifyRequest{});
  } else {
    request(protocol::StatusRequest{});
  }
}

void AdminClient::request(protocol::Body body) { send(++requests_, std::move(body), kTries); }

void AdminClient::send(std::uint64_t request, protocol::Body body, int tries) {
  if (tries == 0 || answered_.contains(request)) return;
  world_.send(protocol::Envelope{{}, kModel, std::nullopt, kAdmin, protocol::kCoordinator, request, body});
  world_.clock.after(base::Millis(300),
                     [this, request, body = std::move(body), tries] { send(request, body, tries - 1); });
}

void AdminClient::receive(const protocol::Envelope& message) {
  answered_.insert(message.request);
  if (const auto* accepted = std::get_if<protocol::UpdateAccepted>(&message.body)) {
    accepted_.insert_or_assign(message.request, accepted->target);
    versions_.push_back(accepted->target);
  } else if (const auto* error = std::get_if<protocol::ErrorReply>(&message.body); error && world_.tracing()) {
    world_.note("admin is told: " + error->error.message);
  }
}

std::optional<model::WeightVersion> AdminClient::accepted(std::uint64_t request) const {
  const auto it = accepted_.find(request);
  if (it == accepted_.end()) return std::nullopt;
  return it->second;
}

}  // namespace weightbus::simulation
