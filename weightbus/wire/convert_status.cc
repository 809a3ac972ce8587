// Reports: the state of a model, its updates, versions and members (schemas/admin.capnp).
#include "weightbus/wire/codec.h"
#include "weightbus/wire/conversion.h"

namespace weightbus::wire {
namespace {

std::string for_people(const std::string& text) { return repaired_text(text, kMaxTextBytes); }

}  // namespace

using namespace protocol;  // every report has its name there

void write(proto::PhaseTime::Builder to, const PhaseTime& from) {
  to.setPhase(static_cast<proto::Phase>(from.phase));
  to.setDurationNs(from.duration_ns);
}

PhaseTime read(Reading& in, proto::PhaseTime::Reader from) {
  return {in.enumerant<Phase>(static_cast<std::uint16_t>(from.getPhase()), "PhaseTime.phase"), from.getDurationNs()};
}

void write(proto::EngineResult::Builder to, const EngineResult& from) {
  to.setEngine(name_of(from.engine));
  to.setRequired(from.required);
  to.setInstant(from.instant);
  to.setCommitted(from.committed);
  to.setBytesTotal(from.bytes_total);
  to.setBytesDone(from.bytes_done);
  to.setPauseNs(from.pause_ns);
  to.setChannels(name_of(from.channels));
  to.setWay(name_of(from.way));
  to.setError(name_of(for_people(from.error)));
}

EngineResult read(Reading& in, proto::EngineResult::Reader from) {
  return {in.name(from.getEngine(), "EngineResult.engine"),
          from.getRequired(),
          from.getInstant(),
          from.getCommitted(),
          from.getBytesTotal(),
          from.getBytesDone(),
          from.getPauseNs(),
          in.name(from.getChannels(), "EngineResult.channels"),
          in.name(from.getWay(), "EngineResult.way"),
          in.text(from.getError(), "EngineResult.error")};
}

void write(proto::PlanLink::Builder to, const PlanLink& from) {
  to.setSource(name_of(from.source));
  to.setSink(name_of(from.sink));
  to.setChannel(name_of(from.channel));
  to.setBytes(from.bytes);
  to.setBuckets(from.buckets);
}

PlanLink read(Reading& in, proto::PlanLink::Reader from) {
  return {model::MemberId(in.name(from.getSource(), "PlanLink.source")),
          model::MemberId(in.name(from.getSink(), "PlanLink.sink")), in.name(from.getChannel(), "PlanLink.channel"),
          from.getBytes(), from.getBuckets()};
}

void write(proto::PlanReport::Builder to, const PlanReport& from) {
  write(to.initHash(), from.hash);
  to.setBytes(from.bytes);
  to.setTensors(from.tensors);
  to.setArenaBytes(from.arena_bytes);
  write_list(to.initLinks(count_of(from.links)), from.links);
  write_texts(to.initWarnings(count_of(from.warnings)), from.warnings);
}

PlanReport read(Reading& in, proto::PlanReport::Reader from) {
  return {read(in, WB_REQUIRED(in, from, Hash)),
          from.getBytes(),
          from.getTensors(),
          from.getArenaBytes(),
          read_list<PlanLink>(in, from.getLinks(), "PlanReport.links"),
          read_texts(in, from.getWarnings(), "PlanReport.warnings")};
}

void write(proto::UpdateStatus::Builder to, const UpdateStatus& from) {
  to.setUpdate(from.update.value());
  to.setKind(static_cast<proto::UpdateKind>(from.kind));
  to.setPhase(static_cast<proto::Phase>(from.phase));
  if (from.base) {
    to.setHasBase(true);
    to.setBase(from.base->value());
  }
  to.setTarget(from.target.value());
  to.setStartedUnixMs(from.started_unix_ms);
  to.setStep(from.step);
  to.setSource(name_of(for_people(from.source)));
  write_list(to.initPhases(count_of(from.phases)), from.phases);
  to.setBytesTotal(from.bytes_total);
  to.setBytesDone(from.bytes_done);
  to.setDigestsCompared(from.digests_compared);
  to.setInstant(from.instant);
  write_list(to.initEngines(count_of(from.engines)), from.engines);
  if (from.error) write(to.initError(), *from.error);
  if (from.plan) write(to.initPlan(), *from.plan);
}

UpdateStatus read(Reading& in, proto::UpdateStatus::Reader from) {
  UpdateStatus status{model::UpdateId(from.getUpdate()),
                      in.enumerant<UpdateKind>(static_cast<std::uint16_t>(from.getKind()), "UpdateStatus.kind"),
                      in.enumerant<Phase>(static_cast<std::uint16_t>(from.getPhase()), "UpdateStatus.phase"),
                      std::nullopt,
                      model::WeightVersion(from.getTarget()),
                      from.getStartedUnixMs(),
                      from.getStep(),
                      in.text(from.getSource(), "UpdateStatus.source"),
                      read_list<PhaseTime>(in, from.getPhases(), "UpdateStatus.phases"),
                      from.getBytesTotal(),
                      from.getBytesDone(),
                      from.getDigestsCompared(),
                      from.getInstant(),
                      read_list<EngineResult>(in, from.getEngines(), "UpdateStatus.engines"),
                      std::nullopt,
                      std::nullopt};
  if (from.getHasBase()) status.base = model::WeightVersion(from.getBase());
  if (from.hasError()) status.error = read(in, from.getError());
  if (from.hasPlan()) status.plan = read(in, from.getPlan());
  return status;
}

void write(proto::VersionStatus::Builder to, const VersionStatus& from) {
  to.setVersion(from.version.value());
  to.setCommitted(from.committed);
  to.setAvailable(from.available);
  to.setPinned(from.pinned);
  to.setBytes(from.bytes);
  to.setCreatedUnixMs(from.created_unix_ms);
  to.setStep(from.step);
  to.setSource(name_of(for_people(from.source)));
  write_texts(to.initHolders(count_of(from.holders)), from.holders);
  to.setRollbackCost(name_of(from.rollback_cost));
}

VersionStatus read(Reading& in, proto::VersionStatus::Reader from) {
  return {model::WeightVersion(from.getVersion()),
          from.getCommitted(),
          from.getAvailable(),
          from.getPinned(),
          from.getBytes(),
          from.getCreatedUnixMs(),
          from.getStep(),
          in.text(from.getSource(), "VersionStatus.source"),
          read_texts(in, from.getHolders(), "VersionStatus.holders"),
          in.name(from.getRollbackCost(), "VersionStatus.rollbackCost")};
}

void write(proto::MemberStatus::Builder to, const MemberStatus& from) {
  write(to.initMember(), from.member);
  to.setConnected(from.connected);
  to.setQuarantined(from.quarantined);
  to.setHeartbeatAgeMs(from.heartbeat_age_ms);
  to.setReaders(from.readers);
  if (from.live) write(to.initLive(), *from.live);
  if (from.shadow) write(to.initShadow(), *from.shadow);
  to.setSoftware(name_of(for_people(from.software)));
}

MemberStatus read(Reading& in, proto::MemberStatus::Reader from) {
  MemberStatus status{read(in, WB_REQUIRED(in, from, Member)),
                      from.getConnected(),
                      from.getQuarantined(),
                      from.getHeartbeatAgeMs(),
                      from.getReaders(),
                      std::nullopt,
                      std::nullopt,
                      in.text(from.getSoftware(), "MemberStatus.software")};
  if (from.hasLive()) status.live = read(in, from.getLive());
  if (from.hasShadow()) status.shadow = read(in, from.getShadow());
  return status;
}

void write(proto::Event::Builder to, const Event& from) {
  to.setSequence(from.sequence);
  to.setUnixMs(from.unix_ms);
  to.setText(name_of(for_people(from.text)));
}

Event read(Reading& in, proto::Event::Reader from) {
  return {from.getSequence(), from.getUnixMs(), in.text(from.getText(), "Event.text")};
}

void write(proto::ModelStatus::Builder to, const ModelStatus& from) {
  to.setModel(name_of(from.model));
  write(to.initEpoch(), from.epoch);
  to.setNeedsAdopt(from.needs_adopt);
  if (from.committed) {
    to.setHasCommitted(true);
    to.setCommitted(from.committed->value());
  }
  if (from.running) write(to.initRunning(), *from.running);
  write_list(to.initRecent(count_of(from.recent)), from.recent);
  write_list(to.initVersions(count_of(from.versions)), from.versions);
  write_list(to.initMembers(count_of(from.members)), from.members);
  write_list(to.initEvents(count_of(from.events)), from.events);
}

ModelStatus read(Reading& in, proto::ModelStatus::Reader from) {
  ModelStatus status{model::ModelName(in.name(from.getModel(), "ModelStatus.model")),
                     read(in, WB_REQUIRED(in, from, Epoch)),
                     from.getNeedsAdopt(),
                     std::nullopt,
                     std::nullopt,
                     read_list<UpdateStatus>(in, from.getRecent(), "ModelStatus.recent"),
                     read_list<VersionStatus>(in, from.getVersions(), "ModelStatus.versions"),
                     read_list<MemberStatus>(in, from.getMembers(), "ModelStatus.members"),
                     read_list<Event>(in, from.getEvents(), "ModelStatus.events")};
  if (from.getHasCommitted()) status.committed = model::WeightVersion(from.getCommitted());
  if (from.hasRunning()) status.running = read(in, from.getRunning());
  return status;
}

}  // namespace weightbus::wire
