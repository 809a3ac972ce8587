#include "weightbus/checkpoint/snapshot_index.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "weightbus/base/checked_math.h"
#include "weightbus/checkpoint/safetensors.h"
#include "weightbus/model/strict_json.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;
using base::Result;
using base::Status;
using Json = nlohmann::json;

constexpr std::uint64_t kRevision = 1;
constexpr std::size_t kMaxDepth = 8;

// Thrown inside parse_snapshot_index and nowhere else: a field that is missing or of the wrong type.
struct Malformed {
  std::string reason;
};

const Json& field(const Json& object, const char* key) {
  if (!object.is_object()) throw Malformed{fmt::format("an object with \"{}\" was expected", key)};
  const auto at = object.find(key);
  if (at == object.end()) throw Malformed{fmt::format("\"{}\" is missing", key)};
  return *at;
}
std::uint64_t number(const Json& object, const char* key) {
  const auto& value = field(object, key);
  if (!value.is_number_unsigned()) throw Malformed{fmt::format("\"{}\" is not a whole number", key)};
  return value.get<std::uint64_t>();
}
std::string text(const Json& object, const char* key) {
  const auto& value = field(object, key);
  if (!value.is_string()) throw Malformed{fmt::format("\"{}\" is not a string", key)};
  return value.get<std::string>();
}
const Json& list(const Json& object, const char* key) {
  const auto& value = field(object, key);
  if (!value.is_array()) throw Malformed{fmt::format("\"{}\" is not a list", key)};
  return value;
}
model::Dims dims(const Json& object, const char* key) {
  model::Dims result;
  for (const auto& item : list(object, key)) {
    if (result.size() == model::kMaxDims) throw Malformed{fmt::format("\"{}\" has too many dimensions", key)};
    const auto extent =
        item.is_number_unsigned() ? base::checked_cast<std::int64_t>(item.get<std::uint64_t>()) : std::nullopt;
    if (!extent) throw Malformed{fmt::format("\"{}\" holds what is not an extent", key)};
    result.push_back(*extent);
  }
  return result;
}
template <class To>
To narrow(const Json& object, const char* key) {
  const auto value = base::checked_cast<To>(number(object, key));
  if (!value) throw Malformed{fmt::format("\"{}\" is too large", key)};
  return *value;
}
base::Hash128 hash(const Json& object, const char* key) {
  const auto value = base::Hash128::parse(text(object, key));
  if (!value) throw Malformed{fmt::format("\"{}\" is not 32 hexadecimal digits", key)};
  return *value;
}

std::vector<std::int64_t> to_list(const model::Dims& values) { return {values.begin(), values.end()}; }

Json slot_to_json(const model::Slot& slot, const std::optional<StoredSlot>& stored) {
  Json json{{"tensor", slot.tensor},
            {"offset", to_list(slot.box.offset)},
            {"extent", to_list(slot.box.extent)},
            {"region", slot.at.region},
            {"at", slot.at.offset},
            {"strides", to_list(slot.at.strides)},
            {"kind", static_cast<int>(slot.kind)},
            {"cast", model::cast_name(slot.cast)},
            {"fill", slot.fill},
            {"parameter", slot.parameter}};
  if (stored) {
    json["stored"] = {{"file", stored->file.to_string()},
                      {"name", stored->name},
                      {"digest", base::Hash128{stored->digest.lane0, stored->digest.lane1}.to_string()}};
  }
  return json;
}

model::Slot parse_slot(const Json& json) {
  model::Slot slot;
  slot.tensor = narrow<std::uint32_t>(json, "tensor");
  slot.box = {dims(json, "offset"), dims(json, "extent")};
  slot.at = {narrow<std::uint32_t>(json, "region"), number(json, "at"), dims(json, "strides")};
  const auto kind = number(json, "kind");
  if (kind < 1 || kind > 3) throw Malformed{fmt::format("{} is not a kind of slot", kind)};
  slot.kind = static_cast<model::SlotKind>(kind);
  const auto cast = model::parse_cast(text(json, "cast"));
  if (!cast) throw Malformed{"\"cast\" is not known"};
  slot.cast = *cast;
  slot.fill = narrow<std::uint8_t>(json, "fill");
  slot.parameter = text(json, "parameter");
  return slot;
}

std::optional<StoredSlot> parse_stored(const Json& json, const model::Slot& slot) {
  // Extents were read but not yet checked against the tensor; validate() does that for all slots afterwards.
  const auto volume = model::checked_volume(slot.box.extent);
  const bool expected = slot.kind != model::SlotKind::kConstant && volume != 0;
  if (json.contains("stored") != expected) throw Malformed{"\"stored\" stands where it should not, or is missing"};
  if (!expected) return std::nullopt;
  const auto& stored = field(json, "stored");
  const auto digest = hash(stored, "digest");
  const auto file = DataFileName::parse(text(stored, "file"));
  if (!file) throw Malformed{"\"file\" is not the name of a data file"};
  return StoredSlot{*file, text(stored, "name"), {digest.high, digest.low}};
}

SnapshotIndex read(const Json& json) {
  SnapshotIndex index{model::WeightVersion(number(json, "version")), {}, {}};
  auto& manifest = index.manifest;
  for (const auto& item : list(json, "tensors")) {
    const auto dtype = model::parse_dtype(text(item, "dtype"));
    if (!dtype) throw Malformed{"\"dtype\" is not known"};
    model::TensorSpec spec{text(item, "name"), *dtype, dims(item, "shape")};
    if (!tensor_bytes(spec)) throw Malformed{"the size of tensor " + model::printable(spec.name) + " overflows"};
    manifest.tensors.push_back(std::move(spec));
  }
  for (const auto& item : list(json, "slots")) {
    manifest.slots.push_back(parse_slot(item));
    index.slots.push_back(parse_stored(item, manifest.slots.back()));
  }
  for (const auto& item : list(json, "region_bytes")) {
    if (!item.is_number_unsigned()) throw Malformed{"\"region_bytes\" holds what is not a size"};
    manifest.region_bytes.push_back(item.get<std::uint64_t>());
  }
  for (const auto& item : list(json, "aliases"))
    manifest.aliases.push_back({text(item, "name"), text(item, "target")});
  for (const auto& item : list(json, "ignored")) {
    if (!item.is_string()) throw Malformed{"\"ignored\" holds what is not a string"};
    manifest.ignored.push_back(item.get<std::string>());
  }
  return index;
}

// A whole decimal number as to_string writes it.
template <class Number>
std::optional<Number> parse_number(std::string_view digits) {
  Number value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
  return whole && std::to_string(value) == digits ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string DataFileName::to_string() const {
  return copy == 0 ? fmt::format("v{}.safetensors", version.value())
                   : fmt::format("v{}-{}.safetensors", version.value(), copy);
}

std::optional<DataFileName> DataFileName::parse(std::string_view text) {
  constexpr std::string_view kExtension = ".safetensors";
  if (!text.starts_with('v') || !text.ends_with(kExtension) || text.size() <= kExtension.size()) return std::nullopt;
  text = text.substr(1, text.size() - 1 - kExtension.size());
  const auto dash = text.find('-');
  const auto version = parse_number<std::uint64_t>(text.substr(0, dash));
  const auto copy = dash == std::string_view::npos ? std::optional<std::uint32_t>(0)
                                                   : parse_number<std::uint32_t>(text.substr(dash + 1));
  if (!version || !copy || (dash != std::string_view::npos && *copy == 0)) return std::nullopt;
  return DataFileName{model::WeightVersion(*version), *copy};
}

bool is_stored(const model::Slot& slot) noexcept {
  return slot.kind != model::SlotKind::kConstant && !slot.box.empty();
}

std::string to_json(const SnapshotIndex& index) {
  const auto& manifest = index.manifest;
  Json json{{"weightbus_snapshot", kRevision},
            {"version", index.version.value()},
            {"layout", model::layout_hash(manifest).to_string()},
            {"tensors", Json::array()},
            {"slots", Json::array()},
            {"region_bytes", manifest.region_bytes},
            {"aliases", Json::array()},
            {"ignored", manifest.ignored}};
  for (const auto& spec : manifest.tensors) {
    json["tensors"].push_back(
        {{"name", spec.name}, {"dtype", model::dtype_name(spec.dtype)}, {"shape", to_list(spec.shape)}});
  }
  for (std::size_t i = 0; i < manifest.slots.size(); ++i) {
    json["slots"].push_back(slot_to_json(manifest.slots[i], index.slots[i]));
  }
  for (const auto& alias : manifest.aliases)
    json["aliases"].push_back({{"name", alias.name}, {"target", alias.target}});
  // Names are data of others: what is not UTF-8 is replaced, which the layout hash then shows, instead of thrown.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<SnapshotIndex> parse_snapshot_index(std::string_view json) {
  WB_ASSIGN(const auto document, model::parse_strict_json(json, kMaxDepth));
  try {
    const auto revision = number(document, "weightbus_snapshot");
    if (revision > kRevision) {
      return base::fail(ErrorCode::kUnsupported, "it has revision {}; this program reads up to {}", revision,
                        kRevision);
    }
    auto index = read(document);
    if (auto valid = model::validate(index.manifest); !valid) {
      return base::fail(ErrorCode::kCorrupted, "its manifest is wrong: {}", valid.error().message);
    }
    if (model::layout_hash(index.manifest) != hash(document, "layout")) {
      return base::fail(ErrorCode::kCorrupted, "its manifest is not the one that was written: the layout hash differs");
    }
    return index;
  } catch (const Malformed& malformed) {
    return base::fail(ErrorCode::kCorrupted, "{}", malformed.reason);
  }
}

}  // namespace weightbus::checkpoint
