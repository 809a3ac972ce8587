#include "tests/field/fleet.h"

#include <stdexcept>

#include "weightbus/protocol/dispatch.h"
#include "weightbus/wire/codec.h"

namespace weightbus::field {
namespace {

using simulation::ToyModel;
const model::ModelName kModel{"toy"};
const model::MemberId kAdmin{"admin"};
constexpr base::Millis kStep{25};
constexpr int kStepsMax = 1'000'000;

base::Error broken() { return {base::ErrorCode::kUnavailable, "the link went down"}; }

}  // namespace

Fleet::Fleet(Shape shape) : shape_(shape) {
  trainer = [this](std::uint64_t content, std::uint32_t rank) {
    return std::pair{ToyModel::source_manifest(rank, shape_.trainers),
                     toy_.source_bytes(content, rank, shape_.trainers)};
  };
  options_.heartbeat_interval = base::Millis(250);
  options_.member_timeout = base::Millis(1'000);
  options_.update_deadline = base::Millis(3'000);
  options_.pause_deadline = base::Millis(300);
  options_.commit_deadline = base::Millis(1'500);
  options_.abort_deadline = base::Millis(1'000);
  options_.resend_interval = base::Millis(100);
  options_.bucket_bytes = 64;
  options_.retain_versions = 0;
  coordinator_ =
      std::make_unique<protocol::CoordinatorFsm>(options_, model::Epoch{{1, 2}, 1}, protocol::CoordinatorState{});
  coordinator_->start(now_);
  const auto add = [&](model::Role role, const std::string& name, const std::string& engine, std::uint32_t rank,
                       std::uint32_t world) {
    model::Member self{model::MemberId(name), role, kModel, model::HostId("h")};
    self.rank = rank;
    self.world = world;
    self.engine = engine;
    agents_.try_emplace(self.id, self);
    start(name);
  };
  for (std::uint32_t rank = 0; rank < shape.trainers; ++rank)
    add(model::Role::kShardAgent, "shard-" + std::to_string(rank), "", rank, shape.trainers);
  for (std::uint32_t e = 0; e < shape.engines; ++e) {
    const auto engine = "engine-" + std::to_string(e);
    for (std::uint32_t rank = 0; rank < shape.tp; ++rank)
      add(model::Role::kEngineAgent, engine + "/" + std::to_string(rank), engine, rank, shape.tp);
  }
  pass(base::Millis(600));
}

// ---------------------------------------------------------------- time and messages

void Fleet::settle() {
  drain();
  for (int step = 0; !queue_.empty(); ++step) {
    if (step == kStepsMax) throw std::runtime_error("the fleet does not come to rest");
    const auto next = std::move(queue_.front());
    queue_.pop_front();
    next();
    drain();
  }
}

void Fleet::pass(base::Duration time) {
  for (const auto end = now_.mono + time; now_.mono < end;) {
    now_.mono += kStep;
    now_.unix_ms += static_cast<std::uint64_t>(kStep.count());
    coordinator_->tick(now_);
    for (auto& [id, agent] : agents_)
      with(agent, [&](auto& fsm) { fsm.tick(now_); });
    settle();
  }
}

template <class F>
void Fleet::with(Agent& agent, F&& f) {
  if (agent.shard) f(*agent.shard);
  if (agent.engine) f(*agent.engine);
}

void Fleet::drain() {
  for (bool persisted = true; persisted;) {
    auto output = coordinator_->take_output();
    persisted = !output.persist.empty();
    if (persisted) coordinator_->persisted(now_, {});
    for (const auto& envelope : output.send)
      send(envelope);
    observe(output.observe);
    for (const auto& action : output.perform) {
      const auto* plan = std::get_if<protocol::MakePlan>(&action);
      if (!plan) continue;
      queue_.emplace_back(
          [this, plan = *plan] { coordinator_->planned(now_, plan.model, plan.update, protocol::make_plan(plan)); });
    }
  }
  for (auto& [id, agent] : agents_)
    drain_agent(agent);
}

void Fleet::drain_agent(Agent& agent) {
  if (!agent.alive()) return;
  auto output = agent.shard ? agent.shard->take_output() : agent.engine->take_output();
  if (output.save) agent.disk = *output.save;
  observe(output.observe);
  for (const auto& envelope : output.send)
    send(envelope);
  for (const auto& action : output.perform)
    perform(agent, action);
  if (output.fatal) throw std::runtime_error(agent.self.id.value() + " ends: " + output.fatal->message);
}

void Fleet::send(const protocol::Envelope& envelope) {
  sent_.push_back(envelope);
  if (loses && loses(envelope)) return;
  queue_.emplace_back([this, frame = wire::encode(envelope)] {
    const auto message = wire::decode(frame);
    if (!message) throw std::runtime_error(message.error().message);
    if (message->to == protocol::kCoordinator) return coordinator_->step(now_, *message);
    if (message->to == kAdmin) {
      replies_.insert_or_assign(message->request, message->body);
      return;
    }
    const auto agent = agents_.find(message->to);
    if (agent != agents_.end()) with(agent->second, [&](auto& fsm) { fsm.step(now_, *message); });
  });
}

void Fleet::inject(const protocol::Envelope& envelope) {
  send(envelope);
  settle();
}

void Fleet::observe(const std::vector<protocol::Observation>& observations) {
  for (const auto& observation : observations)
    dropped_ += std::holds_alternative<protocol::StaleDropped>(observation) ? 1 : 0;
}

protocol::Body Fleet::request(protocol::Body body) {
  const auto number = ++requests_;
  send({{}, kModel, std::nullopt, kAdmin, protocol::kCoordinator, number, std::move(body)});
  settle();
  const auto reply = replies_.find(number);
  if (reply == replies_.end()) throw std::runtime_error("no answer");
  return reply->second;
}

protocol::Body Fleet::push(std::uint64_t content, std::uint32_t require) {
  protocol::PublishRequest body{protocol::CheckpointSource{std::to_string(content)}};
  body.require = require;
  return request(body);
}

protocol::ModelStatus Fleet::status() const { return coordinator_->status(now_).at(0); }

// ---------------------------------------------------------------- processes

void Fleet::kill(const std::string& id) {
  auto& agent = this->agent(id);
  agent.shard.reset();
  agent.engine.reset();
  agent.serving.clear();
  agent.hanging.reset();
  ++agent.starts;
}

void Fleet::start(const std::string& id) {
  auto& agent = this->agent(id);
  const model::BootId boot{++agent.starts};
  auto state = agent.disk.value_or(protocol::AgentState{});
  if (agent.self.role == model::Role::kShardAgent) {
    agent.shard = std::make_unique<protocol::ShardAgentFsm>(agent.self, boot, "test", state);
    return;
  }
  if (agent.halves[0].empty()) {
    state.has_arena = false;
    state.live = 0;
    state.halves[0] = state.halves[1] = protocol::Half{};
  }
  std::optional<model::SinkManifest> manifest;
  if (state.has_arena) manifest = ToyModel::sink_manifest(agent.self.rank, agent.self.world);
  agent.mapped.reset();
  if (state.has_arena && state.halves[state.live].tag) agent.mapped = state.live;
  agent.disk = state;
  agent.engine = std::make_unique<protocol::EngineAgentFsm>(agent.self, boot, "test", state, std::move(manifest),
                                                            std::vector<protocol::HeldVersion>{});
  agent.engine->start(now_);
}

void Fleet::lose_memory(const std::string& id) {
  auto& agent = this->agent(id);
  for (auto& half : agent.halves)
    half.clear();
  agent.mapped.reset();
}

bool Fleet::ready(const std::string& id) { return agent(id).engine && agent(id).engine->readiness(now_).ready; }

std::string Fleet::why_not_ready(const std::string& id) { return agent(id).engine->readiness(now_).reason; }

bool Fleet::serves(const std::string& id, std::uint64_t content) {
  const auto& agent = this->agent(id);
  return agent.mapped && !agent.gate_closed &&
         agent.halves[*agent.mapped] == toy_.sink_bytes(content, agent.self.rank, agent.self.world);
}

bool Fleet::all_serve(std::uint64_t content) {
  for (const auto& [id, agent] : agents_) {
    if (agent.self.role == model::Role::kEngineAgent && !serves(id.value(), content)) return false;
  }
  return true;
}

// ---------------------------------------------------------------- what agents are asked to do

void Fleet::report(Agent& agent, protocol::AgentEvent event) {
  queue_.emplace_back([this, &agent, starts = agent.starts, event = std::move(event)] {
    if (agent.starts == starts) with(agent, [&](auto& fsm) { fsm.done(now_, event); });
  });
}

void Fleet::perform(Agent& agent, const protocol::AgentAction& action) {
  if (auto event = act(agent, action)) report(agent, std::move(*event));
}

protocol::AgentEvent Fleet::open_source(Agent& agent, const protocol::DoOpenSource& action) {
  protocol::SourceOpened opened;
  opened.offers = {{"toy", agent.self.id.value()}};
  if (const auto* checkpoint = std::get_if<protocol::CheckpointSource>(&action.source)) {
    auto [manifest, bytes] = trainer(std::stoull(checkpoint->directory), agent.self.rank);
    opened.manifest = std::move(manifest);
    agent.serving[action.update.value()] = std::move(bytes);
  } else if (std::holds_alternative<protocol::LiveSource>(action.source)) {
    opened.manifest = model::as_source(ToyModel::sink_manifest(agent.self.rank, agent.self.world));
    agent.serving[action.update.value()] = agent.halves[agent.engine->state().live];
  } else {
    return protocol::SourceOpenDone{action.update, base::fail(base::ErrorCode::kUnsupported, "no such source here")};
  }
  return protocol::SourceOpenDone{action.update, std::move(opened)};
}

std::optional<protocol::AgentEvent> Fleet::pull(Agent& agent, const protocol::DoPull& action, Fate how) {
  ++agent.pulls;
  if (how == Fate::kNever) {
    agent.hanging = action.update;
    return std::nullopt;
  }
  auto& to = agent.halves[action.half];
  const auto& part = *action.part;
  std::size_t buckets = part.buckets.size();
  if (how == Fate::kHalfWritten) buckets /= 2;
  if (how == Fate::kUnwritten) buckets = 0;
  for (std::size_t i = 0; i < buckets; ++i) {
    const auto& from = agents_.at(part.buckets[i].source).serving.at(action.update.value());
    for (const auto& fragment : part.buckets[i].fragments) {
      simulation::copy_box(from.data() + fragment.from.offset, fragment.from.strides, to.data() + fragment.to.offset,
                           fragment.to.strides, fragment.box.extent,
                           model::dtype_size(part.tensors[fragment.tensor].dtype));
    }
  }
  if (how == Fate::kHalfWritten) return protocol::SinkPullDone{action.update, base::fail(broken())};
  const auto manifest = ToyModel::sink_manifest(agent.self.rank, agent.self.world);
  return protocol::SinkPullDone{
      action.update, protocol::PullResult{ToyModel::slot_digests(part, manifest, to.data()), {1, 1, part.bytes}}};
}

std::optional<protocol::AgentEvent> Fleet::act(Agent& agent, const protocol::AgentAction& action) {
  using namespace protocol;
  const Fate how = fate ? fate(agent, action) : Fate::kDone;
  if (how == Fate::kNever && !std::holds_alternative<DoPull>(action)) return std::nullopt;
  const bool fails = how == Fate::kFails;
  return std::visit(
      Overloaded{
          [&](const DoOpenSource& a) -> std::optional<AgentEvent> {
            if (fails) return SourceOpenDone{a.update, base::fail(broken())};
            return open_source(agent, a);
          },
          [&](const DoServe& a) -> std::optional<AgentEvent> {
            return SourceServeDone{a.update, fails ? base::Status(base::fail(broken())) : base::Status()};
          },
          [&](const DoDigestSource& a) -> std::optional<AgentEvent> {
            if (fails) return SourceDigestDone{a.update, base::fail(broken())};
            const auto units = ToyModel::unit_digests(*a.part, agent.serving.at(a.update.value()).data());
            return SourceDigestDone{a.update, SourceStaged{units, units}};
          },
          [&](const DoReleaseSource& a) -> std::optional<AgentEvent> {
            agent.serving.erase(a.update.value());
            return SourceReleaseDone{a.update};
          },
          [&](const DoOpenSink&) -> std::optional<AgentEvent> {
            if (fails) return SinkOpenDone{base::fail(broken())};
            auto manifest = ToyModel::sink_manifest(agent.self.rank, agent.self.world);
            for (auto& half : agent.halves)
              half.assign(manifest.region_bytes[0], std::byte{0xDD});
            return SinkOpenDone{std::move(manifest)};
          },
          [&](const DoJoin& a) -> std::optional<AgentEvent> {
            if (fails) return SinkJoinDone{a.update, base::fail(broken())};
            return SinkJoinDone{a.update, std::vector<std::string>(a.sources.size(), "toy")};
          },
          [&](const DoPull& a) -> std::optional<AgentEvent> {
            if (fails) return SinkPullDone{a.update, base::fail(broken())};
            return pull(agent, a, how);
          },
          [&](const DoCancel& a) -> std::optional<AgentEvent> {
            if (agent.hanging != a.update) return std::nullopt;
            agent.hanging.reset();
            return SinkPullDone{a.update, base::fail(base::ErrorCode::kAborted, "cancelled")};
          },
          [&](const DoLeave&) -> std::optional<AgentEvent> { return std::nullopt; },
          [&](const DoPause& a) -> std::optional<AgentEvent> {
            if (fails) return PauseDone{a.attempt, base::fail(broken())};
            agent.gate_closed = true;
            return PauseDone{a.attempt, {}};
          },
          [&](const DoExchange& a) -> std::optional<AgentEvent> {
            if (fails) return ExchangeDone{a.attempt, base::fail(broken())};
            if (!agent.gate_closed) throw std::runtime_error("exchanged under a running step");
            ++agent.exchanges;
            agent.mapped = a.live;
            return ExchangeDone{a.attempt, {}};
          },
          [&](const DoResume& a) -> std::optional<AgentEvent> {
            ++agent.resumes;
            agent.gate_closed = false;
            return ResumeDone{a.attempt};
          },
          [&](const DoRetain&) -> std::optional<AgentEvent> { return RetainDone{}; },
          [&](const DoDigestLive&) -> std::optional<AgentEvent> { return DigestLiveDone{std::vector<SlotDigest>{}}; },
      },
      action);
}

}  // namespace weightbus::field
