#include "weightbus/protocol/shard_agent_fsm.h"

#include "weightbus/protocol/dispatch.h"

namespace weightbus::protocol {

ShardAgentFsm::ShardAgentFsm(model::Member self, model::BootId boot, std::string software, AgentState state)
    : context_{std::move(self), boot, std::move(state), {}}, software_(std::move(software)) {}

void ShardAgentFsm::step(Now now, const Envelope& message) {
  if (message.from != kCoordinator) return context_.stale("a message that is not from the coordinator");
  const bool admitted = link_.admit(now, message);
  if (link_.take_new_journal()) source_.forget();
  if (!admitted) return;
  if (!message.update) return context_.stale(std::string("an unexpected ") + body_name(message.body));
  const model::UpdateId update = *message.update;
  std::visit(Overloaded{
                 [&](const OpenSource& body) { source_.open(update, body); },
                 [&](const PrepareSource& body) { source_.prepare(update, body); },
                 [&](const SourcePartMessage& body) { source_.part(update, body); },
                 [&](const StageSource&) { source_.stage(update); },
                 [&](const Release&) { source_.release(update); },
                 [&](const Abort&) {
                   source_.begin_end(update);
                   aborting_ = update;
                 },
                 [&](const auto&) { context_.stale(std::string("an unexpected ") + body_name(message.body)); },
             },
             message.body);
  answer_abort(context_, aborting_, !aborting_ || source_.active(*aborting_));
}

void ShardAgentFsm::done(Now, const AgentEvent& event) {
  std::visit(Overloaded{
                 [&](const SourceOpenDone& e) { source_.done(e); },
                 [&](const SourceServeDone& e) { source_.done(e); },
                 [&](const SourceDigestDone& e) { source_.done(e); },
                 [&](const SourceReleaseDone& e) { source_.done(e); },
                 [&](const auto&) { WB_ASSERT(false, "a shard agent asks for source work only"); },
             },
             event);
  answer_abort(context_, aborting_, !aborting_ || source_.active(*aborting_));
}

void ShardAgentFsm::tick(Now now) {
  if (link_.hello_due(now)) {
    Hello hello{context_.self,
                context_.boot,
                kProtocolRevision,
                software_,
                context_.state.known_epoch,
                context_.state.highest_version,
                {},
                source_.running(),
                {},
                std::nullopt};
    context_.answer(std::nullopt, std::move(hello));
  }
  if (link_.heartbeat_due(now)) context_.answer(std::nullopt, Heartbeat{context_.boot, bytes_done_, 0, {}});
}

AgentOutput ShardAgentFsm::take_output() { return std::exchange(context_.out, AgentOutput{}); }

Readiness ShardAgentFsm::readiness(Now now) const {
  if (!link_.welcomed()) return {false, "no coordinator has welcomed this agent"};
  if (!link_.fresh(now)) return {false, "the coordinator has been silent for too long"};
  return {true, ""};
}

}  // namespace weightbus::protocol
