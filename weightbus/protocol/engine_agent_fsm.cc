#include "weightbus/protocol/engine_agent_fsm.h"

#include <fmt/format.h>

#include <algorithm>

#include "weightbus/protocol/dispatch.h"

namespace weightbus::protocol {

EngineAgentFsm::EngineAgentFsm(model::Member self, model::BootId boot, std::string software, AgentState state,
                               std::optional<model::SinkManifest> manifest, std::vector<HeldVersion> held)
    : context_{std::move(self), boot, std::move(state), {}},
      sink_(context_, std::move(manifest)),
      rank_(context_, sink_),
      software_(std::move(software)),
      held_(std::move(held)) {}

bool EngineAgentFsm::is_rank_of_engine(const model::MemberId& member) const {
  if (member == context_.self.id) return true;
  for (const auto& rank : link_.engine()) {
    if (rank.id == member) return true;
  }
  return false;
}

bool EngineAgentFsm::is_driver(const model::MemberId& member) const {
  if (member == context_.self.id) return context_.self.is_driver();
  for (const auto& rank : link_.engine()) {
    if (rank.id == member) return rank.is_driver();
  }
  return false;
}

std::vector<Half> EngineAgentFsm::reported_halves() const {
  auto halves = sink_.halves();
  if (!halves.empty() && rank_.paused()) halves[0].verified = false;
  return halves;
}

void EngineAgentFsm::step(Now now, const Envelope& message) {
  if (message.from == kCoordinator) {
    const bool admitted = link_.admit(now, message);
    if (link_.take_new_journal()) {
      source_.forget();
      sink_.forget();
      driver_.forget();
    }
    if (admitted) from_coordinator(now, message);
  } else if (is_rank_of_engine(message.from)) {
    from_rank(now, message);
  } else {
    context_.stale("a message of a member that is no rank of this engine: " + message.from.value());
  }
  deliver_to_self(now);
  settle();
}

void EngineAgentFsm::from_coordinator(Now now, const Envelope& message) {
  if (const auto* body = std::get_if<Retain>(&message.body)) return retain(*body);
  if (std::holds_alternative<DigestLive>(message.body)) return digest_live();
  if (!message.update) return context_.stale(std::string("an unexpected ") + body_name(message.body));
  const model::UpdateId update = *message.update;
  std::visit(Overloaded{
                 [&](const OpenSource& body) {
                   // A snapshot that is just being retired is none. The request is repeated.
                   const auto* snapshot = std::get_if<SnapshotSource>(&body.source);
                   const bool going = snapshot && retaining_ &&
                                      std::find(retaining_->keep.begin(), retaining_->keep.end(), snapshot->version) ==
                                          retaining_->keep.end();
                   if (!going) source_.open(update, body);
                 },
                 [&](const PrepareSource& body) { source_.prepare(update, body); },
                 [&](const SourcePartMessage& body) { source_.part(update, body); },
                 [&](const StageSource&) { source_.stage(update); },
                 [&](const Release&) { source_.release(update); },
                 [&](const OpenSink& body) {
                   driver_.give_up_older(now, update);
                   sink_.open(update, body);
                 },
                 [&](const PrepareSink& body) { sink_.prepare(update, body); },
                 [&](const SinkPartMessage& body) { sink_.part(update, body); },
                 [&](const StageSink& body) { sink_.stage(update, body); },
                 [&](const Commit& body) { driver_.commit(now, update, body); },
                 [&](const Abort&) {
                   source_.begin_end(update);
                   sink_.begin_end(update);
                   aborting_ = update;
                 },
                 [&](const auto&) { context_.stale(std::string("an unexpected ") + body_name(message.body)); },
             },
             message.body);
}

void EngineAgentFsm::from_rank(Now now, const Envelope& message) {
  const bool asks = std::holds_alternative<RankPause>(message.body) ||
                    std::holds_alternative<RankExchange>(message.body) ||
                    std::holds_alternative<RankResume>(message.body);
  if (asks && !is_driver(message.from))
    return context_.stale(message.from.value() + " is not the driver of this engine");
  std::visit(Overloaded{
                 [&](const RankPause& body) { rank_.pause(message.from, body); },
                 [&](const RankExchange& body) { rank_.exchange(message.from, body); },
                 [&](const RankResume& body) { rank_.resume(message.from, body); },
                 [&](const RankPaused& body) { driver_.paused(now, message.from, body); },
                 [&](const RankExchanged& body) { driver_.exchanged(now, message.from, body); },
                 [&](const RankResumed& body) { driver_.resumed(now, message.from, body); },
                 [&](const RankFailed& body) { driver_.failed(now, message.from, body); },
                 [&](const auto&) { context_.stale(std::string("an unexpected ") + body_name(message.body)); },
             },
             message.body);
}

void EngineAgentFsm::deliver_to_self(Now now) {
  // Bounded: each message to self leads at most to the next step of one commit.
  for (int round = 0; round < 64; ++round) {
    std::vector<Envelope> to_self;
    std::erase_if(context_.out.send, [&](Envelope& envelope) {
      if (envelope.to != context_.self.id) return false;
      to_self.push_back(std::move(envelope));
      return true;
    });
    if (to_self.empty()) return;
    for (const auto& envelope : to_self)
      from_rank(now, envelope);
  }
  WB_ASSERT(false, "a commit takes fewer rounds than this");
}

void EngineAgentFsm::settle() {
  answer_abort(context_, aborting_, !aborting_ || source_.active(*aborting_) || sink_.active(*aborting_));
}

void EngineAgentFsm::done(Now now, const AgentEvent& event) {
  std::visit(Overloaded{
                 [&](const SourceOpenDone& e) { source_.done(e); },
                 [&](const SourceServeDone& e) { source_.done(e); },
                 [&](const SourceDigestDone& e) { source_.done(e); },
                 [&](const SourceReleaseDone& e) { source_.done(e); },
                 [&](const SinkOpenDone& e) { sink_.done(e); },
                 [&](const SinkJoinDone& e) { sink_.done(e); },
                 [&](const SinkPullDone& e) { sink_.done(e); },
                 [&](const PauseDone& e) { rank_.done(e); },
                 [&](const ExchangeDone& e) { rank_.done(e); },
                 [&](const ResumeDone& e) { rank_.done(e); },
                 [&](const RetainDone& e) {
                   held_ = e.held;
                   if (retain_lease_) sink_.end_lease(*retain_lease_);
                   retain_lease_.reset();
                   retaining_.reset();
                   context_.answer(std::nullopt, Retained{e.held, e.error});
                   if (retain_next_) retain(*std::exchange(retain_next_, std::nullopt));
                 },
                 [&](const DigestLiveDone& e) {
                   sink_.end_lease(*digest_lease_);
                   digest_lease_.reset();
                   if (e.result) return context_.answer(std::nullopt, LiveDigests{digest_tag_, *e.result});
                   context_.note(Level::kError, "digesting the live half failed: " + e.result.error().message);
                   context_.answer(std::nullopt, LiveDigests{std::nullopt, {}});
                 },
             },
             event);
  deliver_to_self(now);
  settle();
}

void EngineAgentFsm::retain(const Retain& request) {
  if (retaining_) {
    const bool same = retaining_->keep == request.keep && retaining_->capture == request.capture;
    if (!same) retain_next_ = request;
    return;
  }
  const auto halves = sink_.halves();
  DoRetain action{request.keep, std::nullopt, sink_.live()};
  if (const auto reading = source_.snapshot()) action.keep.push_back(*reading);
  // What was committed last is live; the version before, if the next push came at once, is in the shadow still.
  const auto holding = std::find_if(halves.begin(), halves.end(), [&](const Half& half) {
    return half.tag && half.verified && request.capture == half.tag->version;
  });
  bool held = false;
  for (const auto& version : held_)
    held |= request.capture == version.version;
  if (holding != halves.end() && !held) {
    action.capture = request.capture;
    action.half = holding == halves.begin() ? sink_.live() : 1 - sink_.live();
    retain_lease_ = action.half;
    sink_.lease(*retain_lease_);
  }
  retaining_ = request;
  context_.perform(std::move(action));
}

void EngineAgentFsm::digest_live() {
  if (digest_lease_) return;
  const auto halves = sink_.halves();
  if (halves.empty() || !halves[0].tag) return context_.answer(std::nullopt, LiveDigests{std::nullopt, {}});
  digest_tag_ = halves[0].tag;
  digest_lease_ = sink_.live();
  sink_.lease(*digest_lease_);
  context_.perform(DoDigestLive{*digest_lease_});
}

void EngineAgentFsm::start(Now now) {
  rank_.start();
  driver_.start(now);
  deliver_to_self(now);
}

void EngineAgentFsm::tick(Now now) {
  for (const auto& rank : link_.engine()) {
    if (rank.is_driver()) rank_.know_driver(rank.id);
  }
  rank_.tick(now);
  driver_.tick(now);
  deliver_to_self(now);
  if (link_.hello_due(now)) {
    auto running = sink_.running() ? sink_.running() : source_.running();
    Hello hello{context_.self,
                context_.boot,
                kProtocolRevision,
                software_,
                context_.state.known_epoch,
                context_.state.highest_version,
                reported_halves(),
                running,
                held_,
                sink_.manifest()};
    context_.answer(std::nullopt, std::move(hello));
  }
  if (link_.heartbeat_due(now)) {
    context_.answer(std::nullopt, Heartbeat{context_.boot, bytes_done_, readers_, reported_halves()});
  }
}

AgentOutput EngineAgentFsm::take_output() { return std::exchange(context_.out, AgentOutput{}); }

Readiness EngineAgentFsm::readiness(Now now) const {
  const auto halves = sink_.halves();
  if (halves.empty() || !halves[0].tag) return {false, "no version is live yet"};
  if (link_.quarantined()) return {false, "quarantined until the committed version is live"};
  if (!link_.fresh(now)) return {false, "the coordinator has been silent for too long: weights may be stale"};
  return {true, ""};
}

}  // namespace weightbus::protocol
