// What the coordinator journals (schemas/journal.capnp).
#include <fmt/format.h>

#include "weightbus/wire/codec.h"
#include "weightbus/wire/conversion.h"

namespace weightbus::wire {

using namespace protocol;  // every record has its name there

void write(proto::NumbersReserved::Builder to, const NumbersReserved& from) {
  to.setModel(name_of(from.model));
  to.setVersionsTo(from.versions_to.value());
  to.setUpdatesTo(from.updates_to.value());
}

NumbersReserved read(Reading& in, proto::NumbersReserved::Reader from) {
  return {model::ModelName(in.name(from.getModel(), "NumbersReserved.model")),
          model::WeightVersion(from.getVersionsTo()), model::UpdateId(from.getUpdatesTo())};
}

void write(proto::DecidedEngine::Builder to, const DecidedEngine& from) {
  to.setEngine(name_of(from.engine));
  write_list(to.initRanks(count_of(from.ranks)), from.ranks);
}

DecidedEngine read(Reading& in, proto::DecidedEngine::Reader from) {
  return {model::EngineName(in.name(from.getEngine(), "DecidedEngine.engine")),
          read_list<RankTag>(in, from.getRanks(), "DecidedEngine.ranks")};
}

void write(proto::Decided::Builder to, const Decided& from) {
  to.setModel(name_of(from.model));
  to.setUpdate(from.update.value());
  to.setKind(static_cast<proto::UpdateKind>(from.kind));
  if (from.base) {
    to.setHasBase(true);
    to.setBase(from.base->value());
  }
  to.setTarget(from.target.value());
  write_list(to.initEngines(count_of(from.engines)), from.engines);
  auto digests = to.initDigests(count_of(from.digests));
  for (unsigned i = 0; i < digests.size(); ++i) {
    auto digest = digests[i];
    digest.setName(name_of(from.digests[i].first));
    digest.setLane0(from.digests[i].second.lane0);
    digest.setLane1(from.digests[i].second.lane1);
  }
  to.setBytes(from.bytes);
  to.setStep(from.step);
  to.setUnixMs(from.unix_ms);
  to.setSource(name_of(repaired_text(from.source, kMaxTextBytes)));
}

Decided read(Reading& in, proto::Decided::Reader from) {
  Decided decided{model::ModelName(in.name(from.getModel(), "Decided.model")),
                  model::UpdateId(from.getUpdate()),
                  in.enumerant<UpdateKind>(static_cast<std::uint16_t>(from.getKind()), "Decided.kind"),
                  std::nullopt,
                  model::WeightVersion(from.getTarget()),
                  read_list<DecidedEngine>(in, from.getEngines(), "Decided.engines"),
                  {},
                  from.getBytes(),
                  from.getStep(),
                  from.getUnixMs(),
                  in.text(from.getSource(), "Decided.source")};
  if (from.getHasBase()) decided.base = model::WeightVersion(from.getBase());
  const auto digests = from.getDigests();
  if (in.admit(digests.size(), sizeof(decided.digests[0]), "Decided.digests")) decided.digests.reserve(digests.size());
  for (unsigned i = 0; i < digests.size() && in.ok(); ++i) {
    decided.digests.emplace_back(in.name(digests[i].getName(), "Decided.digests"),
                                 plan::Digest{digests[i].getLane0(), digests[i].getLane1()});
  }
  return decided;
}

void write(proto::Ended::Builder to, const Ended& from) {
  to.setModel(name_of(from.model));
  write(to.initStatus(), from.status);
}

Ended read(Reading& in, proto::Ended::Reader from) {
  return {model::ModelName(in.name(from.getModel(), "Ended.model")), read(in, WB_REQUIRED(in, from, Status))};
}

void write(proto::Pinned::Builder to, const Pinned& from) {
  to.setModel(name_of(from.model));
  to.setVersion(from.version.value());
  to.setPinned(from.pinned);
}

Pinned read(Reading& in, proto::Pinned::Reader from) {
  return {model::ModelName(in.name(from.getModel(), "Pinned.model")), model::WeightVersion(from.getVersion()),
          from.getPinned()};
}

void write(proto::Adopted::Builder to, const Adopted& from) {
  to.setModel(name_of(from.model));
  to.setVersionsTo(from.versions_to.value());
  to.setUpdatesTo(from.updates_to.value());
  to.setEpoch(from.epoch);
}

Adopted read(Reading& in, proto::Adopted::Reader from) {
  return {model::ModelName(in.name(from.getModel(), "Adopted.model")), model::WeightVersion(from.getVersionsTo()),
          model::UpdateId(from.getUpdatesTo()), from.getEpoch()};
}

void write(proto::Evicted::Builder to, const Evicted& from) {
  to.setModel(name_of(from.model));
  to.setMember(name_of(from.member));
  to.setBoot(from.boot.value());
}

Evicted read(Reading& in, proto::Evicted::Reader from) {
  return {model::ModelName(in.name(from.getModel(), "Evicted.model")),
          model::MemberId(in.name(from.getMember(), "Evicted.member")), model::BootId(from.getBoot())};
}

}  // namespace weightbus::wire
