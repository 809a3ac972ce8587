// Identities, tags, errors, manifests and lists of plain values.
#include <fmt/format.h>

#include "weightbus/wire/codec.h"
#include "weightbus/wire/conversion.h"
#include "weightbus/wire/table.h"

namespace weightbus::wire {

void write_numbers(NumberList::Builder to, const std::vector<std::uint64_t>& from) {
  for (unsigned i = 0; i < to.size(); ++i)
    to.set(i, from[i]);
}

std::vector<std::uint64_t> read_numbers(Reading& in, NumberList::Reader from, const char* field) {
  std::vector<std::uint64_t> values;
  if (!in.admit(from.size(), sizeof(std::uint64_t), field)) return values;
  values.reserve(from.size());
  for (auto value : from)
    values.push_back(value);
  return values;
}

void write_versions(NumberList::Builder to, const std::vector<model::WeightVersion>& from) {
  for (unsigned i = 0; i < to.size(); ++i)
    to.set(i, from[i].value());
}

std::vector<model::WeightVersion> read_versions(Reading& in, NumberList::Reader from, const char* field) {
  std::vector<model::WeightVersion> values;
  if (!in.admit(from.size(), sizeof(model::WeightVersion), field)) return values;
  values.reserve(from.size());
  for (auto value : from)
    values.emplace_back(value);
  return values;
}

void write_digests(NumberList::Builder to, const std::vector<plan::Digest>& from) {
  for (unsigned i = 0; i < from.size(); ++i) {
    to.set(2 * i, from[i].lane0);
    to.set(2 * i + 1, from[i].lane1);
  }
}

std::vector<plan::Digest> read_digests(Reading& in, NumberList::Reader from, const char* field) {
  std::vector<plan::Digest> values;
  if (from.size() % 2 != 0) {
    in.fail(base::ErrorCode::kCorrupted, fmt::format("list {} holds half a digest", field));
    return values;
  }
  if (!in.admit(from.size() / 2, sizeof(plan::Digest), field)) return values;
  values.reserve(from.size() / 2);
  for (unsigned i = 0; i < from.size(); i += 2)
    values.push_back(plan::Digest{from[i], from[i + 1]});
  return values;
}

void write_texts(TextList::Builder to, const std::vector<std::string>& from) {
  for (unsigned i = 0; i < to.size(); ++i)
    to.set(i, name_of(repaired_text(from[i], kMaxTextBytes)));
}

std::vector<std::string> read_texts(Reading& in, TextList::Reader from, const char* field) {
  std::vector<std::string> values;
  if (!in.admit(from.size(), sizeof(std::string), field)) return values;
  values.reserve(from.size());
  for (unsigned i = 0; i < from.size() && in.ok(); ++i)
    values.push_back(in.text(from[i], field));
  return values;
}

void write_dims(SizeList::Builder to, const model::Dims& from) {
  for (unsigned i = 0; i < to.size(); ++i)
    to.set(i, from[i]);
}

model::Dims read_dims(Reading& in, SizeList::Reader from, const char* field) {
  model::Dims dims;
  if (from.size() > model::kMaxDims) {
    in.fail(base::ErrorCode::kCorrupted,
            fmt::format("field {} has {} dimensions; at most {} are allowed", field, from.size(), model::kMaxDims));
    return dims;
  }
  for (auto value : from)
    dims.push_back(value);
  return dims;
}

void write(proto::Hash128::Builder to, const base::Hash128& from) {
  to.setHigh(from.high);
  to.setLow(from.low);
}

base::Hash128 read(Reading& /*in*/, proto::Hash128::Reader from) { return {from.getHigh(), from.getLow()}; }

void write(proto::Error::Builder to, const base::Error& from) {
  to.setCode(static_cast<proto::ErrorCode>(from.code));
  to.setMessage(name_of(repaired_text(from.message, kMaxTextBytes)));
}

base::Error read(Reading& in, proto::Error::Reader from) {
  return {in.enumerant<base::ErrorCode>(static_cast<std::uint16_t>(from.getCode()), "Error.code"),
          in.text(from.getMessage(), "Error.message")};
}

void write(proto::Epoch::Builder to, const model::Epoch& from) {
  write(to.initJournal(), from.journal);
  to.setNumber(from.number);
}

model::Epoch read(Reading& in, proto::Epoch::Reader from) {
  return {read(in, WB_REQUIRED(in, from, Journal)), from.getNumber()};
}

void write(proto::Tag::Builder to, const protocol::Tag& from) {
  to.setVersion(from.version.value());
  write(to.initLayout(), from.layout);
  to.setUpdate(from.update.value());
}

protocol::Tag read(Reading& in, proto::Tag::Reader from) {
  return {model::WeightVersion(from.getVersion()), read(in, WB_REQUIRED(in, from, Layout)),
          model::UpdateId(from.getUpdate())};
}

void write(proto::RankTag::Builder to, const protocol::RankTag& from) {
  to.setRank(name_of(from.rank));
  write(to.initTag(), from.tag);
}

protocol::RankTag read(Reading& in, proto::RankTag::Reader from) {
  return {model::MemberId(in.name(from.getRank(), "RankTag.rank")), read(in, WB_REQUIRED(in, from, Tag))};
}

void write(proto::Half::Builder to, const protocol::Half& from) {
  if (from.tag) write(to.initTag(), *from.tag);
  to.setVerified(from.verified);
}

protocol::Half read(Reading& in, proto::Half::Reader from) {
  protocol::Half half;
  if (from.hasTag()) half.tag = read(in, from.getTag());
  half.verified = from.getVerified();
  return half;
}

void write(proto::Member::Builder to, const model::Member& from) {
  to.setId(name_of(from.id));
  to.setRole(static_cast<proto::Role>(from.role));
  to.setModel(name_of(from.model));
  to.setHost(name_of(from.host));
  to.setDeviceUuid(name_of(from.device_uuid));
  to.setRank(from.rank);
  to.setWorld(from.world);
  to.setEngine(name_of(from.engine));
  to.setEndpoint(name_of(from.endpoint));
  to.setPublicKey(name_of(from.public_key));
}

model::Member read(Reading& in, proto::Member::Reader from) {
  return {model::MemberId(in.name(from.getId(), "Member.id")),
          in.enumerant<model::Role>(static_cast<std::uint16_t>(from.getRole()), "Member.role"),
          model::ModelName(in.name(from.getModel(), "Member.model")),
          model::HostId(in.name(from.getHost(), "Member.host")),
          in.name(from.getDeviceUuid(), "Member.deviceUuid"),
          from.getRank(),
          from.getWorld(),
          in.name(from.getEngine(), "Member.engine"),
          in.name(from.getEndpoint(), "Member.endpoint"),
          in.name(from.getPublicKey(), "Member.publicKey")};
}

void write(proto::TensorSpec::Builder to, const model::TensorSpec& from) {
  to.setName(name_of(from.name));
  to.setDtype(static_cast<proto::DType>(from.dtype));
  write_dims(to.initShape(static_cast<unsigned>(from.shape.size())), from.shape);
}

model::TensorSpec read(Reading& in, proto::TensorSpec::Reader from) {
  return {in.name(from.getName(), "TensorSpec.name"),
          in.enumerant<model::DType>(static_cast<std::uint16_t>(from.getDtype()), "TensorSpec.dtype"),
          read_dims(in, from.getShape(), "TensorSpec.shape")};
}

void write(proto::Alias::Builder to, const model::Alias& from) {
  to.setName(name_of(from.name));
  to.setTarget(name_of(from.target));
}

model::Alias read(Reading& in, proto::Alias::Reader from) {
  return {in.name(from.getName(), "Alias.name"), in.name(from.getTarget(), "Alias.target")};
}

void write(proto::SourceManifest::Builder to, const model::SourceManifest& from) {
  write_list(to.initTensors(count_of(from.tensors)), from.tensors);
  write_shards(to.initShards(), from.shards);
  write_numbers(to.initRegionBytes(count_of(from.region_bytes)), from.region_bytes);
  write_list(to.initAliases(count_of(from.aliases)), from.aliases);
  write_names(to.initIgnored(count_of(from.ignored)), from.ignored);
}

model::SourceManifest read(Reading& in, proto::SourceManifest::Reader from) {
  return {read_list<model::TensorSpec>(in, from.getTensors(), "SourceManifest.tensors"),
          read_shards(in, WB_REQUIRED(in, from, Shards)),
          read_numbers(in, from.getRegionBytes(), "SourceManifest.regionBytes"),
          read_list<model::Alias>(in, from.getAliases(), "SourceManifest.aliases"),
          read_names(in, from.getIgnored(), "SourceManifest.ignored")};
}

void write(proto::SinkManifest::Builder to, const model::SinkManifest& from) {
  write_list(to.initTensors(count_of(from.tensors)), from.tensors);
  write_slots(to.initSlots(), from.slots);
  auto parameters = to.initParameters(count_of(from.slots));
  for (unsigned i = 0; i < parameters.size(); ++i)
    parameters.set(i, name_of(from.slots[i].parameter));
  write_numbers(to.initRegionBytes(count_of(from.region_bytes)), from.region_bytes);
  write_list(to.initAliases(count_of(from.aliases)), from.aliases);
  write_names(to.initIgnored(count_of(from.ignored)), from.ignored);
}

model::SinkManifest read(Reading& in, proto::SinkManifest::Reader from) {
  model::SinkManifest manifest;
  manifest.tensors = read_list<model::TensorSpec>(in, from.getTensors(), "SinkManifest.tensors");
  manifest.slots = read_slots(in, WB_REQUIRED(in, from, Slots));
  const auto parameters = from.getParameters();
  if (in.ok() && parameters.size() != manifest.slots.size()) {
    in.fail(base::ErrorCode::kCorrupted,
            fmt::format("SinkManifest has {} parameters for {} slots", parameters.size(), manifest.slots.size()));
  }
  for (unsigned i = 0; i < parameters.size() && in.ok(); ++i) {
    manifest.slots[i].parameter = in.name(parameters[i], "SinkManifest.parameters");
  }
  manifest.region_bytes = read_numbers(in, from.getRegionBytes(), "SinkManifest.regionBytes");
  manifest.aliases = read_list<model::Alias>(in, from.getAliases(), "SinkManifest.aliases");
  manifest.ignored = read_names(in, from.getIgnored(), "SinkManifest.ignored");
  return manifest;
}

}  // namespace weightbus::wire
