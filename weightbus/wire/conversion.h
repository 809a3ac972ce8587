// Conversions between Cap'n Proto structs and values, one pair of functions a type; only for the files of this folder.
// read() reports what is wrong to Reading and then returns something of no meaning.
#pragma once

#include <capnp/list.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "admin.capnp.h"
#include "common.capnp.h"
#include "journal.capnp.h"
#include "sync.capnp.h"
#include "weightbus/base/assert.h"
#include "weightbus/protocol/journal.h"
#include "weightbus/protocol/messages.h"
#include "weightbus/wire/bodies.h"
#include "weightbus/wire/reading.h"

namespace weightbus::wire {

#define WB_CONVERSION(Value, Wire)                        \
  void write(proto::Wire::Builder to, const Value& from); \
  Value read(Reading& in, proto::Wire::Reader from);

// common.capnp
WB_CONVERSION(base::Hash128, Hash128)
WB_CONVERSION(base::Error, Error)
WB_CONVERSION(model::Epoch, Epoch)
WB_CONVERSION(model::Member, Member)
WB_CONVERSION(model::TensorSpec, TensorSpec)
WB_CONVERSION(model::Alias, Alias)
WB_CONVERSION(model::SourceManifest, SourceManifest)
WB_CONVERSION(model::SinkManifest, SinkManifest)
WB_CONVERSION(plan::PlannedTensor, PlannedTensor)
WB_CONVERSION(plan::Bucket, Bucket)
WB_CONVERSION(plan::SourcePart, SourcePart)
WB_CONVERSION(plan::SinkPart, SinkPart)
WB_CONVERSION(protocol::Tag, Tag)
WB_CONVERSION(protocol::RankTag, RankTag)
WB_CONVERSION(protocol::Half, Half)
WB_CONVERSION(protocol::SourceSpec, SourceSpec)
WB_CONVERSION(protocol::ChannelOffer, ChannelOffer)
WB_CONVERSION(protocol::SourcePeer, SourcePeer)
WB_CONVERSION(protocol::HeldVersion, HeldVersion)
WB_CONVERSION(protocol::SlotDigest, SlotDigest)

// admin.capnp, below the bodies
WB_CONVERSION(protocol::EngineDigests, EngineDigests)
WB_CONVERSION(protocol::PhaseTime, PhaseTime)
WB_CONVERSION(protocol::EngineResult, EngineResult)
WB_CONVERSION(protocol::PlanLink, PlanLink)
WB_CONVERSION(protocol::PlanReport, PlanReport)
WB_CONVERSION(protocol::UpdateStatus, UpdateStatus)
WB_CONVERSION(protocol::VersionStatus, VersionStatus)
WB_CONVERSION(protocol::MemberStatus, MemberStatus)
WB_CONVERSION(protocol::Event, Event)

// journal.capnp, below the records
WB_CONVERSION(protocol::DecidedEngine, DecidedEngine)

#define WB_NAMED_CONVERSION(Type, Field, FIELD) WB_CONVERSION(protocol::Type, Type)
WB_FOR_EACH_BODY(WB_NAMED_CONVERSION)
WB_FOR_EACH_RECORD(WB_NAMED_CONVERSION)
#undef WB_NAMED_CONVERSION
#undef WB_CONVERSION

// The struct in a field that must be there.
#define WB_REQUIRED(in, from, Field) ((in).require((from).has##Field(), #Field), (from).get##Field())

inline capnp::Text::Reader name_of(const std::string& text) { return {text.c_str(), text.size()}; }
template <class Tag>
capnp::Text::Reader name_of(const base::Tagged<Tag, std::string>& name) {
  return name_of(name.value());
}

// The number of elements of a list about to be made. Cap'n Proto counts them in 29 bits.
template <class T>
unsigned count_of(const std::vector<T>& values) {
  WB_ASSERT(values.size() < (1ULL << 29), "a message never holds so many elements");
  return static_cast<unsigned>(values.size());
}

template <class List, class T>
void write_list(List to, const std::vector<T>& from) {
  for (unsigned i = 0; i < to.size(); ++i)
    write(to[i], from[i]);
}
template <class T, class List>
std::vector<T> read_list(Reading& in, List from, const char* field) {
  std::vector<T> values;
  if (!in.admit(from.size(), sizeof(T), field)) return values;
  values.reserve(from.size());
  for (unsigned i = 0; i < from.size() && in.ok(); ++i)
    values.push_back(read(in, from[i]));
  return values;
}

using NumberList = capnp::List<std::uint64_t>;
using TextList = capnp::List<capnp::Text>;
using SizeList = capnp::List<std::int64_t>;

void write_numbers(NumberList::Builder to, const std::vector<std::uint64_t>& from);
std::vector<std::uint64_t> read_numbers(Reading& in, NumberList::Reader from, const char* field);

void write_versions(NumberList::Builder to, const std::vector<model::WeightVersion>& from);
std::vector<model::WeightVersion> read_versions(Reading& in, NumberList::Reader from, const char* field);

// Pairs of numbers; `to` has twice as many elements as `from`.
void write_digests(NumberList::Builder to, const std::vector<plan::Digest>& from);
std::vector<plan::Digest> read_digests(Reading& in, NumberList::Reader from, const char* field);

// Each name is a std::string or Tagged over one.
template <class Name>
void write_names(TextList::Builder to, const std::vector<Name>& from) {
  for (unsigned i = 0; i < to.size(); ++i)
    to.set(i, name_of(from[i]));
}
template <class Name = std::string>
std::vector<Name> read_names(Reading& in, TextList::Reader from, const char* field) {
  std::vector<Name> values;
  if (!in.admit(from.size(), sizeof(Name), field)) return values;
  values.reserve(from.size());
  for (unsigned i = 0; i < from.size() && in.ok(); ++i)
    values.push_back(Name(in.name(from[i], field)));
  return values;
}
void write_texts(TextList::Builder to, const std::vector<std::string>& from);
std::vector<std::string> read_texts(Reading& in, TextList::Reader from, const char* field);

void write_dims(SizeList::Builder to, const model::Dims& from);
model::Dims read_dims(Reading& in, SizeList::Reader from, const char* field);

}  // namespace weightbus::wire
