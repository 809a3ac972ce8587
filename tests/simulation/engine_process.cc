#include "tests/simulation/engine_process.h"

#include <fmt/format.h>

#include "tests/simulation/agent_process.h"

namespace weightbus::simulation {

EngineProcess::EngineProcess(World& world, std::string name, std::vector<model::MemberId> ranks)
    : world_(world), name_(std::move(name)), ranks_(std::move(ranks)), clients_(ranks_.size()) {}

void EngineProcess::start() {
  ++incarnation_;
  alive_ = true;
  stepping_ = false;
  clients_.assign(ranks_.size(), Client{});
  turn();
}

void EngineProcess::kill() {
  if (!alive_) return;
  world_.note("the engine " + name_ + " dies");
  alive_ = false;
  stepping_ = false;
  ++incarnation_;
  clients_.assign(ranks_.size(), Client{});
  world_.clock.after_us(world_.between(50'000, 800'000), [this, incarnation = incarnation_] {
    if (incarnation_ == incarnation) start();
  });
}

// A client attaches to a running agent: it maps what the agent says is live, and starts paused if the rank is.
void EngineProcess::attach(std::uint32_t rank) {
  const AgentProcess* agent = world_.agent(ranks_[rank]);
  if (!agent->engine_fsm() || !agent->has_arena()) return;
  const auto& state = agent->engine_fsm()->state();
  Client& client = clients_[rank];
  client.attached = true;
  client.closed = state.paused_attempt != 0;
  client.mapped = state.has_arena && state.halves[state.live].tag ? static_cast<int>(state.live) : -1;
}

void EngineProcess::turn() {
  bool can_step = true;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!clients_[rank].attached) attach(rank);
    can_step = can_step && clients_[rank].attached && !clients_[rank].closed && clients_[rank].mapped >= 0;
  }
  if (can_step) begin_step();
  const auto us = world_.between(5'000, 40'000);
  world_.clock.after_us(us, [this, incarnation = incarnation_] {
    if (incarnation_ != incarnation) return;
    if (stepping_) end_step();
    turn();
  });
  step_ends_ = world_.clock.now() + std::chrono::microseconds(us);
}

Bytes EngineProcess::seen() const {
  Bytes all;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto& half = world_.agent(ranks_[rank])->half(static_cast<std::size_t>(clients_[rank].mapped));
    all.insert(all.end(), half.begin(), half.end());
  }
  return all;
}

// The bytes that all ranks are about to read are exactly those of one committed version.
void EngineProcess::begin_step() {
  std::optional<model::WeightVersion> version;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const AgentProcess* agent = world_.agent(ranks_[rank]);
    const auto mapped = static_cast<std::size_t>(clients_[rank].mapped);
    const auto& tag = agent->disk()->halves[mapped].tag;
    const auto who = agent->self().id.value();
    if (!tag) throw Violation(who + " computes with a half that has no tag");
    if (version && *version != tag->version) {
      throw Violation(fmt::format("engine {} computes with version {} on one rank and {} on {}", name_,
                                  version->value(), tag->version.value(), who));
    }
    version = tag->version;
    const auto content = world_.content_of(*version);
    if (!content || !world_.decided(agent->self().id, *tag)) {
      throw Violation(fmt::format("{} computes with version {}, which no update committed", who, version->value()));
    }
    if (agent->half(mapped) != world_.toy.sink_bytes(*content, rank, static_cast<std::uint32_t>(ranks_.size()))) {
      throw Violation(fmt::format("{} computes with bytes that are not those of version {}", who, version->value()));
    }
  }
  ++world_.counts.steps;
  stepping_ = true;
  at_begin_ = seen();
}

void EngineProcess::end_step() {
  stepping_ = false;
  if (seen() != at_begin_) throw Violation("the memory of engine " + name_ + " changed while it computed");
}

}  // namespace weightbus::simulation
