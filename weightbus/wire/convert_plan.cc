// Plan parts, and what travels beside them: sources, offers, digests.
#include <fmt/format.h>

#include "weightbus/wire/conversion.h"
#include "weightbus/wire/table.h"

namespace weightbus::wire {

void write(proto::PlannedTensor::Builder to, const plan::PlannedTensor& from) {
  to.setName(name_of(from.name));
  to.setSourceDtype(static_cast<proto::DType>(from.source_dtype));
  to.setDtype(static_cast<proto::DType>(from.dtype));
  to.setCast(static_cast<proto::Cast>(from.cast));
  write_dims(to.initShape(static_cast<unsigned>(from.shape.size())), from.shape);
  to.setGrainBytes(from.grain_bytes);
}

plan::PlannedTensor read(Reading& in, proto::PlannedTensor::Reader from) {
  return {in.name(from.getName(), "PlannedTensor.name"),
          in.enumerant<model::DType>(static_cast<std::uint16_t>(from.getSourceDtype()), "PlannedTensor.sourceDtype"),
          in.enumerant<model::DType>(static_cast<std::uint16_t>(from.getDtype()), "PlannedTensor.dtype"),
          in.enumerant<model::Cast>(static_cast<std::uint16_t>(from.getCast()), "PlannedTensor.cast"),
          read_dims(in, from.getShape(), "PlannedTensor.shape"),
          from.getGrainBytes()};
}

void write(proto::Bucket::Builder to, const plan::Bucket& from) {
  to.setIndex(from.index);
  to.setSource(name_of(from.source));
  to.setSink(name_of(from.sink));
  to.setBytes(from.bytes);
  write_fragments(to.initFragments(), from.fragments);
}

plan::Bucket read(Reading& in, proto::Bucket::Reader from) {
  return {from.getIndex(), model::MemberId(in.name(from.getSource(), "Bucket.source")),
          model::MemberId(in.name(from.getSink(), "Bucket.sink")), from.getBytes(),
          read_fragments(in, WB_REQUIRED(in, from, Fragments))};
}

void write(proto::SourcePart::Builder to, const plan::SourcePart& from) {
  write(to.initPlanHash(), from.plan_hash);
  write_list(to.initTensors(count_of(from.tensors)), from.tensors);
  write_units(to.initUnits(), from.units);
  write_list(to.initBuckets(count_of(from.buckets)), from.buckets);
}

plan::SourcePart read(Reading& in, proto::SourcePart::Reader from) {
  return {read(in, WB_REQUIRED(in, from, PlanHash)),
          read_list<plan::PlannedTensor>(in, from.getTensors(), "SourcePart.tensors"),
          read_units(in, WB_REQUIRED(in, from, Units)),
          read_list<plan::Bucket>(in, from.getBuckets(), "SourcePart.buckets")};
}

void write(proto::SinkPart::Builder to, const plan::SinkPart& from) {
  write(to.initPlanHash(), from.plan_hash);
  write_list(to.initTensors(count_of(from.tensors)), from.tensors);
  auto slots = to.initSlots(count_of(from.slots));
  for (unsigned i = 0; i < slots.size(); ++i) {
    slots.set(i, std::uint64_t{from.slots[i].tensor} << 32 | from.slots[i].slot);
  }
  write_list(to.initBuckets(count_of(from.buckets)), from.buckets);
  to.setBytes(from.bytes);
}

plan::SinkPart read(Reading& in, proto::SinkPart::Reader from) {
  plan::SinkPart part;
  part.plan_hash = read(in, WB_REQUIRED(in, from, PlanHash));
  part.tensors = read_list<plan::PlannedTensor>(in, from.getTensors(), "SinkPart.tensors");
  const auto slots = from.getSlots();
  if (in.admit(slots.size(), sizeof(plan::SinkSlot), "SinkPart.slots")) {
    part.slots.reserve(slots.size());
    for (auto word : slots) {
      part.slots.push_back({static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32)});
    }
  }
  part.buckets = read_list<plan::Bucket>(in, from.getBuckets(), "SinkPart.buckets");
  part.bytes = from.getBytes();
  return part;
}

void write(proto::SourceSpec::Builder to, const protocol::SourceSpec& from) {
  struct Writer {
    proto::SourceSpec::Builder to;
    void operator()(const protocol::CheckpointSource& source) { to.setCheckpoint(name_of(source.directory)); }
    void operator()(const protocol::TrainerSource&) { to.setTrainer(); }
    void operator()(const protocol::LiveSource& source) { to.setLive(source.version.value()); }
    void operator()(const protocol::SnapshotSource& source) { to.setSnapshot(source.version.value()); }
  };
  std::visit(Writer{to}, from);
}

protocol::SourceSpec read(Reading& in, proto::SourceSpec::Reader from) {
  switch (from.which()) {
    case proto::SourceSpec::UNSET: break;
    case proto::SourceSpec::CHECKPOINT:
      return protocol::CheckpointSource{in.name(from.getCheckpoint(), "SourceSpec.checkpoint")};
    case proto::SourceSpec::TRAINER: return protocol::TrainerSource{};
    case proto::SourceSpec::LIVE: return protocol::LiveSource{model::WeightVersion(from.getLive())};
    case proto::SourceSpec::SNAPSHOT: return protocol::SnapshotSource{model::WeightVersion(from.getSnapshot())};
  }
  in.fail(base::ErrorCode::kUnsupported,
          fmt::format("SourceSpec is of kind {}, which is not known here", static_cast<unsigned>(from.which())));
  return protocol::TrainerSource{};
}

void write(proto::ChannelOffer::Builder to, const protocol::ChannelOffer& from) {
  to.setChannel(name_of(from.channel));
  to.setDescriptor({reinterpret_cast<const kj::byte*>(from.descriptor.data()), from.descriptor.size()});
}

protocol::ChannelOffer read(Reading& in, proto::ChannelOffer::Reader from) {
  return {in.name(from.getChannel(), "ChannelOffer.channel"), in.blob(from.getDescriptor(), "ChannelOffer.descriptor")};
}

void write(proto::SourcePeer::Builder to, const protocol::SourcePeer& from) {
  to.setMember(name_of(from.member));
  to.setHost(name_of(from.host));
  to.setDeviceUuid(name_of(from.device_uuid));
  write_list(to.initOffers(count_of(from.offers)), from.offers);
}

protocol::SourcePeer read(Reading& in, proto::SourcePeer::Reader from) {
  return {model::MemberId(in.name(from.getMember(), "SourcePeer.member")),
          model::HostId(in.name(from.getHost(), "SourcePeer.host")),
          in.name(from.getDeviceUuid(), "SourcePeer.deviceUuid"),
          read_list<protocol::ChannelOffer>(in, from.getOffers(), "SourcePeer.offers")};
}

void write(proto::HeldVersion::Builder to, const protocol::HeldVersion& from) {
  to.setVersion(from.version.value());
  write(to.initLayout(), from.layout);
  to.setBytes(from.bytes);
}

protocol::HeldVersion read(Reading& in, proto::HeldVersion::Reader from) {
  return {model::WeightVersion(from.getVersion()), read(in, WB_REQUIRED(in, from, Layout)), from.getBytes()};
}

void write(proto::SlotDigest::Builder to, const protocol::SlotDigest& from) {
  write(to.initTensor(), from.tensor);
  write_dims(to.initBoxOffset(static_cast<unsigned>(from.box.offset.size())), from.box.offset);
  write_dims(to.initBoxExtent(static_cast<unsigned>(from.box.extent.size())), from.box.extent);
  to.setLane0(from.digest.lane0);
  to.setLane1(from.digest.lane1);
}

protocol::SlotDigest read(Reading& in, proto::SlotDigest::Reader from) {
  protocol::SlotDigest digest{read(in, WB_REQUIRED(in, from, Tensor)),
                              {read_dims(in, from.getBoxOffset(), "SlotDigest.boxOffset"),
                               read_dims(in, from.getBoxExtent(), "SlotDigest.boxExtent")},
                              {from.getLane0(), from.getLane1()}};
  if (digest.box.offset.size() != digest.box.extent.size()) {
    in.fail(base::ErrorCode::kCorrupted,
            fmt::format("SlotDigest of {} has a box of {} offsets and {} extents", digest.tensor.name,
                        digest.box.offset.size(), digest.box.extent.size()));
  }
  return digest;
}

}  // namespace weightbus::wire
