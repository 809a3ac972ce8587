// Requests of command lines and trainers, and their replies (schemas/admin.capnp).
#include "weightbus/wire/conversion.h"

namespace weightbus::wire {

using namespace protocol;  // every message of admin.capnp has its name there

void write(proto::PublishRequest::Builder to, const PublishRequest& from) {
  write(to.initSource(), from.source);
  to.setQueue(from.queue);
  to.setDryRun(from.dry_run);
  to.setRequire(from.require);
  to.setStep(from.step);
  to.setDeadlineMs(from.deadline_ms);
}

PublishRequest read(Reading& in, proto::PublishRequest::Reader from) {
  return {read(in, WB_REQUIRED(in, from, Source)),
          from.getQueue(),
          from.getDryRun(),
          from.getRequire(),
          from.getStep(),
          from.getDeadlineMs()};
}

void write(proto::RollbackRequest::Builder to, const RollbackRequest& from) {
  if (from.to) {
    to.setHasTo(true);
    to.setTo(from.to->value());
  }
}

RollbackRequest read(Reading& /*in*/, proto::RollbackRequest::Reader from) {
  RollbackRequest request;
  if (from.getHasTo()) request.to = model::WeightVersion(from.getTo());
  return request;
}

void write(proto::StatusRequest::Builder /*to*/, const StatusRequest& /*from*/) {}
StatusRequest read(Reading& /*in*/, proto::StatusRequest::Reader /*from*/) { return {}; }

void write(proto::PinRequest::Builder to, const PinRequest& from) {
  to.setVersion(from.version.value());
  to.setPinned(from.pinned);
}

PinRequest read(Reading& /*in*/, proto::PinRequest::Reader from) {
  return {model::WeightVersion(from.getVersion()), from.getPinned()};
}

void write(proto::AbortRequest::Builder /*to*/, const AbortRequest& /*from*/) {}
AbortRequest read(Reading& /*in*/, proto::AbortRequest::Reader /*from*/) { return {}; }

void write(proto::EvictRequest::Builder to, const EvictRequest& from) { to.setMember(name_of(from.member)); }

EvictRequest read(Reading& in, proto::EvictRequest::Reader from) {
  return {model::MemberId(in.name(from.getMember(), "EvictRequest.member"))};
}

void write(proto::AdoptRequest::Builder /*to*/, const AdoptRequest& /*from*/) {}
AdoptRequest read(Reading& /*in*/, proto::AdoptRequest::Reader /*from*/) { return {}; }

void write(proto::VerifyRequest::Builder /*to*/, const VerifyRequest& /*from*/) {}
VerifyRequest read(Reading& /*in*/, proto::VerifyRequest::Reader /*from*/) { return {}; }

void write(proto::DiffRequest::Builder to, const DiffRequest& from) {
  to.setFrom(from.from.value());
  to.setTo(from.to.value());
}

DiffRequest read(Reading& /*in*/, proto::DiffRequest::Reader from) {
  return {model::WeightVersion(from.getFrom()), model::WeightVersion(from.getTo())};
}

void write(proto::UpdateAccepted::Builder to, const UpdateAccepted& from) {
  to.setUpdate(from.update.value());
  to.setTarget(from.target.value());
  to.setQueued(from.queued);
}

UpdateAccepted read(Reading& /*in*/, proto::UpdateAccepted::Reader from) {
  return {model::UpdateId(from.getUpdate()), model::WeightVersion(from.getTarget()), from.getQueued()};
}

void write(proto::Done::Builder /*to*/, const Done& /*from*/) {}
Done read(Reading& /*in*/, proto::Done::Reader /*from*/) { return {}; }

void write(proto::EngineDigests::Builder to, const EngineDigests& from) {
  to.setMember(name_of(from.member));
  to.setEngine(name_of(from.engine));
  if (from.live) write(to.initLive(), *from.live);
  write_list(to.initSlots(count_of(from.slots)), from.slots);
}

EngineDigests read(Reading& in, proto::EngineDigests::Reader from) {
  EngineDigests digests{model::MemberId(in.name(from.getMember(), "EngineDigests.member")),
                        in.name(from.getEngine(), "EngineDigests.engine"), std::nullopt,
                        read_list<SlotDigest>(in, from.getSlots(), "EngineDigests.slots")};
  if (from.hasLive()) digests.live = read(in, from.getLive());
  return digests;
}

void write(proto::VerifyReply::Builder to, const VerifyReply& from) {
  write_list(to.initEngines(count_of(from.engines)), from.engines);
}

VerifyReply read(Reading& in, proto::VerifyReply::Reader from) {
  return {read_list<EngineDigests>(in, from.getEngines(), "VerifyReply.engines")};
}

void write(proto::DiffReply::Builder to, const DiffReply& from) {
  write_names(to.initChanged(count_of(from.changed)), from.changed);
  write_names(to.initAdded(count_of(from.added)), from.added);
  write_names(to.initRemoved(count_of(from.removed)), from.removed);
  to.setUnchanged(from.unchanged);
}

DiffReply read(Reading& in, proto::DiffReply::Reader from) {
  return {read_names(in, from.getChanged(), "DiffReply.changed"), read_names(in, from.getAdded(), "DiffReply.added"),
          read_names(in, from.getRemoved(), "DiffReply.removed"), from.getUnchanged()};
}

void write(proto::ErrorReply::Builder to, const ErrorReply& from) { write(to.initError(), from.error); }
ErrorReply read(Reading& in, proto::ErrorReply::Reader from) { return {read(in, WB_REQUIRED(in, from, Error))}; }

}  // namespace weightbus::wire
