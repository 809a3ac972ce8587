// The ends of an update, the ranks of one engine, and retention (the second half of schemas/sync.capnp).
#include "weightbus/wire/conversion.h"

namespace weightbus::wire {

using namespace protocol;  // every message of sync.capnp has its name there

void write(proto::Failed::Builder to, const Failed& from) {
  to.setRole(static_cast<proto::SessionRole>(from.role));
  write(to.initError(), from.error);
}

Failed read(Reading& in, proto::Failed::Reader from) {
  return {in.enumerant<SessionRole>(static_cast<std::uint16_t>(from.getRole()), "Failed.role"),
          read(in, WB_REQUIRED(in, from, Error))};
}

void write(proto::Abort::Builder to, const Abort& from) { write(to.initReason(), from.reason); }
Abort read(Reading& in, proto::Abort::Reader from) { return {read(in, WB_REQUIRED(in, from, Reason))}; }

void write(proto::Aborted::Builder /*to*/, const Aborted& /*from*/) {}
Aborted read(Reading& /*in*/, proto::Aborted::Reader /*from*/) { return {}; }

void write(proto::Commit::Builder to, const Commit& from) {
  to.setVersion(from.version.value());
  write_list(to.initRanks(count_of(from.ranks)), from.ranks);
  to.setPauseDeadlineMs(from.pause_deadline_ms);
}

Commit read(Reading& in, proto::Commit::Reader from) {
  return {model::WeightVersion(from.getVersion()), read_list<RankTag>(in, from.getRanks(), "Commit.ranks"),
          from.getPauseDeadlineMs()};
}

void write(proto::Committed::Builder to, const Committed& from) {
  to.setVersion(from.version.value());
  to.setPauseNs(from.pause_ns);
  to.setWay(static_cast<proto::CommitWay>(from.way));
}

Committed read(Reading& in, proto::Committed::Reader from) {
  return {model::WeightVersion(from.getVersion()), from.getPauseNs(),
          in.enumerant<CommitWay>(static_cast<std::uint16_t>(from.getWay()), "Committed.way")};
}

void write(proto::CommitFailed::Builder to, const CommitFailed& from) { write(to.initError(), from.error); }
CommitFailed read(Reading& in, proto::CommitFailed::Reader from) { return {read(in, WB_REQUIRED(in, from, Error))}; }

// ------------------------------------------------------------------------------------------------ the ranks of one
// engine

void write(proto::RankPause::Builder to, const RankPause& from) {
  to.setAttempt(from.attempt);
  to.setDeadlineMs(from.deadline_ms);
}

RankPause read(Reading& /*in*/, proto::RankPause::Reader from) { return {from.getAttempt(), from.getDeadlineMs()}; }

void write(proto::RankPaused::Builder to, const RankPaused& from) { to.setAttempt(from.attempt); }
RankPaused read(Reading& /*in*/, proto::RankPaused::Reader from) { return {from.getAttempt()}; }

void write(proto::RankExchange::Builder to, const RankExchange& from) {
  to.setAttempt(from.attempt);
  write(to.initTag(), from.tag);
}

RankExchange read(Reading& in, proto::RankExchange::Reader from) {
  return {from.getAttempt(), read(in, WB_REQUIRED(in, from, Tag))};
}

void write(proto::RankExchanged::Builder to, const RankExchanged& from) { to.setAttempt(from.attempt); }
RankExchanged read(Reading& /*in*/, proto::RankExchanged::Reader from) { return {from.getAttempt()}; }

void write(proto::RankResume::Builder to, const RankResume& from) { to.setAttempt(from.attempt); }
RankResume read(Reading& /*in*/, proto::RankResume::Reader from) { return {from.getAttempt()}; }

void write(proto::RankResumed::Builder to, const RankResumed& from) { to.setAttempt(from.attempt); }
RankResumed read(Reading& /*in*/, proto::RankResumed::Reader from) { return {from.getAttempt()}; }

void write(proto::RankFailed::Builder to, const RankFailed& from) {
  to.setAttempt(from.attempt);
  write(to.initError(), from.error);
}

RankFailed read(Reading& in, proto::RankFailed::Reader from) {
  return {from.getAttempt(), read(in, WB_REQUIRED(in, from, Error))};
}

// ------------------------------------------------------------------------------------------------ retention

void write(proto::Retain::Builder to, const Retain& from) {
  write_versions(to.initKeep(count_of(from.keep)), from.keep);
  if (from.capture) {
    to.setHasCapture(true);
    to.setCapture(from.capture->value());
  }
}

Retain read(Reading& in, proto::Retain::Reader from) {
  Retain retain{read_versions(in, from.getKeep(), "Retain.keep"), std::nullopt};
  if (from.getHasCapture()) retain.capture = model::WeightVersion(from.getCapture());
  return retain;
}

void write(proto::Retained::Builder to, const Retained& from) {
  write_list(to.initHeld(count_of(from.held)), from.held);
  if (from.error) write(to.initError(), *from.error);
}

Retained read(Reading& in, proto::Retained::Reader from) {
  Retained retained{read_list<HeldVersion>(in, from.getHeld(), "Retained.held"), std::nullopt};
  if (from.hasError()) retained.error = read(in, from.getError());
  return retained;
}

void write(proto::DigestLive::Builder /*to*/, const DigestLive& /*from*/) {}
DigestLive read(Reading& /*in*/, proto::DigestLive::Reader /*from*/) { return {}; }

void write(proto::LiveDigests::Builder to, const LiveDigests& from) {
  if (from.live) write(to.initLive(), *from.live);
  write_list(to.initSlots(count_of(from.slots)), from.slots);
}

LiveDigests read(Reading& in, proto::LiveDigests::Reader from) {
  LiveDigests digests;
  if (from.hasLive()) digests.live = read(in, from.getLive());
  digests.slots = read_list<SlotDigest>(in, from.getSlots(), "LiveDigests.slots");
  return digests;
}

}  // namespace weightbus::wire
