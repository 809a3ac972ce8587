// The messages between coordinator and agents (schemas/sync.capnp).
#include "weightbus/wire/codec.h"
#include "weightbus/wire/conversion.h"

namespace weightbus::wire {

using namespace protocol;  // every message of sync.capnp has its name there

// ------------------------------------------------------------------------------------------------ membership

void write(proto::Hello::Builder to, const Hello& from) {
  write(to.initMember(), from.member);
  to.setBoot(from.boot.value());
  to.setProtocolRevision(from.protocol_revision);
  to.setSoftware(name_of(repaired_text(from.software, kMaxTextBytes)));
  write(to.initKnownEpoch(), from.known_epoch);
  to.setHighestVersion(from.highest_version);
  write_list(to.initHalves(count_of(from.halves)), from.halves);
  if (from.running) {
    to.setHasRunning(true);
    to.setRunning(from.running->value());
  }
  write_list(to.initHeld(count_of(from.held)), from.held);
  if (from.sink) write(to.initSink(), *from.sink);
}

Hello read(Reading& in, proto::Hello::Reader from) {
  Hello hello{read(in, WB_REQUIRED(in, from, Member)),
              model::BootId(from.getBoot()),
              from.getProtocolRevision(),
              in.text(from.getSoftware(), "Hello.software"),
              read(in, WB_REQUIRED(in, from, KnownEpoch)),
              from.getHighestVersion(),
              read_list<Half>(in, from.getHalves(), "Hello.halves"),
              std::nullopt,
              read_list<HeldVersion>(in, from.getHeld(), "Hello.held"),
              std::nullopt};
  if (from.getHasRunning()) hello.running = model::UpdateId(from.getRunning());
  if (from.hasSink()) hello.sink = read(in, from.getSink());
  return hello;
}

void write(proto::Welcome::Builder to, const Welcome& from) {
  to.setHeartbeatIntervalMs(from.heartbeat_interval_ms);
  to.setServeStaleMs(from.serve_stale_ms);
  to.setQuarantined(from.quarantined);
  write_list(to.initEngine(count_of(from.engine)), from.engine);
}

Welcome read(Reading& in, proto::Welcome::Reader from) {
  return {from.getHeartbeatIntervalMs(), from.getServeStaleMs(), from.getQuarantined(),
          read_list<model::Member>(in, from.getEngine(), "Welcome.engine")};
}

void write(proto::Rejected::Builder to, const Rejected& from) { write(to.initError(), from.error); }

Rejected read(Reading& in, proto::Rejected::Reader from) { return {read(in, WB_REQUIRED(in, from, Error))}; }

void write(proto::Heartbeat::Builder to, const Heartbeat& from) {
  to.setBoot(from.boot.value());
  to.setBytesDone(from.bytes_done);
  to.setReaders(from.readers);
  write_list(to.initHalves(count_of(from.halves)), from.halves);
}

Heartbeat read(Reading& in, proto::Heartbeat::Reader from) {
  return {model::BootId(from.getBoot()), from.getBytesDone(), from.getReaders(),
          read_list<Half>(in, from.getHalves(), "Heartbeat.halves")};
}

void write(proto::SetQuarantine::Builder to, const SetQuarantine& from) { to.setQuarantined(from.quarantined); }

SetQuarantine read(Reading& /*in*/, proto::SetQuarantine::Reader from) { return {from.getQuarantined()}; }

// ------------------------------------------------------------------------------------------------ the source role

void write(proto::OpenSource::Builder to, const OpenSource& from) {
  write(to.initSource(), from.source);
  to.setDeadlineMs(from.deadline_ms);
}

OpenSource read(Reading& in, proto::OpenSource::Reader from) {
  return {read(in, WB_REQUIRED(in, from, Source)), from.getDeadlineMs()};
}

void write(proto::SourceOpened::Builder to, const SourceOpened& from) {
  write(to.initManifest(), from.manifest);
  write_list(to.initOffers(count_of(from.offers)), from.offers);
}

SourceOpened read(Reading& in, proto::SourceOpened::Reader from) {
  return {read(in, WB_REQUIRED(in, from, Manifest)),
          read_list<ChannelOffer>(in, from.getOffers(), "SourceOpened.offers")};
}

void write(proto::PrepareSource::Builder to, const PrepareSource& from) {
  write(to.initPlanHash(), from.plan_hash);
  write(to.initPartHash(), from.part_hash);
  to.setDeadlineMs(from.deadline_ms);
}

PrepareSource read(Reading& in, proto::PrepareSource::Reader from) {
  return {read(in, WB_REQUIRED(in, from, PlanHash)), read(in, WB_REQUIRED(in, from, PartHash)), from.getDeadlineMs()};
}

void write(proto::SourcePartMessage::Builder to, const SourcePartMessage& from) { write(to.initPart(), from.part); }

SourcePartMessage read(Reading& in, proto::SourcePartMessage::Reader from) {
  return {read(in, WB_REQUIRED(in, from, Part))};
}

void write(proto::StageSource::Builder to, const StageSource& from) { to.setDeadlineMs(from.deadline_ms); }

StageSource read(Reading& /*in*/, proto::StageSource::Reader from) { return {from.getDeadlineMs()}; }

void write(proto::SourceStaged::Builder to, const SourceStaged& from) {
  write_digests(to.initUnits(2 * count_of(from.units)), from.units);
  write_digests(to.initElement(2 * count_of(from.element)), from.element);
}

SourceStaged read(Reading& in, proto::SourceStaged::Reader from) {
  return {read_digests(in, from.getUnits(), "SourceStaged.units"),
          read_digests(in, from.getElement(), "SourceStaged.element")};
}

void write(proto::Release::Builder /*to*/, const Release& /*from*/) {}
Release read(Reading& /*in*/, proto::Release::Reader /*from*/) { return {}; }

void write(proto::Released::Builder /*to*/, const Released& /*from*/) {}
Released read(Reading& /*in*/, proto::Released::Reader /*from*/) { return {}; }

// ------------------------------------------------------------------------------------------------ the sink role

void write(proto::OpenSink::Builder to, const OpenSink& from) {
  write_list(to.initTensors(count_of(from.tensors)), from.tensors);
  write_list(to.initAliases(count_of(from.aliases)), from.aliases);
  to.setDeadlineMs(from.deadline_ms);
}

OpenSink read(Reading& in, proto::OpenSink::Reader from) {
  return {read_list<model::TensorSpec>(in, from.getTensors(), "OpenSink.tensors"),
          read_list<model::Alias>(in, from.getAliases(), "OpenSink.aliases"), from.getDeadlineMs()};
}

void write(proto::SinkOpened::Builder to, const SinkOpened& from) {
  write(to.initManifest(), from.manifest);
  write_list(to.initHalves(count_of(from.halves)), from.halves);
  to.setWay(static_cast<proto::CommitWay>(from.way));
}

SinkOpened read(Reading& in, proto::SinkOpened::Reader from) {
  return {read(in, WB_REQUIRED(in, from, Manifest)), read_list<Half>(in, from.getHalves(), "SinkOpened.halves"),
          in.enumerant<CommitWay>(static_cast<std::uint16_t>(from.getWay()), "SinkOpened.way")};
}

void write(proto::PrepareSink::Builder to, const PrepareSink& from) {
  write(to.initPlanHash(), from.plan_hash);
  write(to.initPartHash(), from.part_hash);
  write(to.initTag(), from.tag);
  write_list(to.initSources(count_of(from.sources)), from.sources);
  to.setDeadlineMs(from.deadline_ms);
}

PrepareSink read(Reading& in, proto::PrepareSink::Reader from) {
  return {read(in, WB_REQUIRED(in, from, PlanHash)), read(in, WB_REQUIRED(in, from, PartHash)),
          read(in, WB_REQUIRED(in, from, Tag)), read_list<SourcePeer>(in, from.getSources(), "PrepareSink.sources"),
          from.getDeadlineMs()};
}

void write(proto::SinkPartMessage::Builder to, const SinkPartMessage& from) { write(to.initPart(), from.part); }

SinkPartMessage read(Reading& in, proto::SinkPartMessage::Reader from) {
  return {read(in, WB_REQUIRED(in, from, Part))};
}

void write(proto::NeedPart::Builder to, const NeedPart& from) {
  to.setRole(static_cast<proto::SessionRole>(from.role));
  write(to.initPlanHash(), from.plan_hash);
}

NeedPart read(Reading& in, proto::NeedPart::Reader from) {
  return {in.enumerant<SessionRole>(static_cast<std::uint16_t>(from.getRole()), "NeedPart.role"),
          read(in, WB_REQUIRED(in, from, PlanHash))};
}

void write(proto::Prepared::Builder to, const Prepared& from) {
  to.setRole(static_cast<proto::SessionRole>(from.role));
  write(to.initPlanHash(), from.plan_hash);
  write(to.initPartHash(), from.part_hash);
  write_names(to.initChannels(count_of(from.channels)), from.channels);
}

Prepared read(Reading& in, proto::Prepared::Reader from) {
  return {in.enumerant<SessionRole>(static_cast<std::uint16_t>(from.getRole()), "Prepared.role"),
          read(in, WB_REQUIRED(in, from, PlanHash)), read(in, WB_REQUIRED(in, from, PartHash)),
          read_names(in, from.getChannels(), "Prepared.channels")};
}

void write(proto::StageSink::Builder to, const StageSink& from) { to.setDeadlineMs(from.deadline_ms); }

StageSink read(Reading& /*in*/, proto::StageSink::Reader from) { return {from.getDeadlineMs()}; }

void write(proto::Staged::Builder to, const Staged& from) {
  write(to.initTag(), from.tag);
  write_digests(to.initSlots(2 * count_of(from.slots)), from.slots);
  to.setPullNs(from.times.pull_ns);
  to.setDigestNs(from.times.digest_ns);
  to.setBytes(from.times.bytes);
}

Staged read(Reading& in, proto::Staged::Reader from) {
  return {read(in, WB_REQUIRED(in, from, Tag)),
          read_digests(in, from.getSlots(), "Staged.slots"),
          {from.getPullNs(), from.getDigestNs(), from.getBytes()}};
}

}  // namespace weightbus::wire
