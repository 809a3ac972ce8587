// The layout file's format: JSON to a Layout, every key known and typed.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "weightbus/model/builtin_layouts.h"
#include "weightbus/model/layout.h"
#include "weightbus/model/strict_json.h"

namespace weightbus::model {
namespace {

using base::ErrorCode;
using base::Result;
using base::Status;
using Json = nlohmann::json;

constexpr std::size_t kMaxDepth = 12;
constexpr std::uint64_t kMaxRevision = 1;
constexpr std::size_t kMaxTextBytes = 1024;
constexpr std::size_t kMaxPlaceholders = 8;
// `*` in the middle makes matching quadratic in the name; a few are plenty.
constexpr std::size_t kMaxStars = 8;

template <class... Args>
tl::unexpected<base::Error> reject(fmt::format_string<Args...> format, Args&&... args) {
  return base::fail(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

Status check_object(const Json& value, const std::string& where, const std::set<std::string_view>& known) {
  if (!value.is_object()) return reject("{} must be an object", where);
  for (const auto& [key, unused] : value.items()) {
    if (!known.contains(key)) return reject("{}: unknown key \"{}\"", where, printable(key));
  }
  return {};
}

Result<std::string> text_of(const Json& object, const char* key, const std::string& where) {
  const auto field = object.find(key);
  if (field == object.end()) return std::string();
  if (!field->is_string()) return reject("{}: \"{}\" must be a string", where, key);
  auto text = field->get<std::string>();
  if (text.empty() || text.size() > kMaxTextBytes) {
    return reject("{}: \"{}\" must have 1 to {} characters", where, key, kMaxTextBytes);
  }
  return text;
}

Result<std::uint64_t> number_of(const Json& object, const char* key, const std::string& where, std::uint64_t fallback,
                                std::uint64_t low, std::uint64_t high) {
  const auto field = object.find(key);
  if (field == object.end()) return fallback;
  if (!field->is_number_unsigned() || field->get<std::uint64_t>() < low || field->get<std::uint64_t>() > high) {
    return reject("{}: \"{}\" must be a whole number from {} to {}", where, key, low, high);
  }
  return field->get<std::uint64_t>();
}

Result<bool> flag_of(const Json& object, const char* key, const std::string& where) {
  const auto field = object.find(key);
  if (field == object.end()) return false;
  if (!field->is_boolean()) return reject("{}: \"{}\" must be true or false", where, key);
  return field->get<bool>();
}

Result<const Json*> list_of(const Json& object, const char* key, const std::string& where) {
  const auto field = object.find(key);
  if (field == object.end()) return nullptr;
  if (!field->is_array()) return reject("{}: \"{}\" must be a list", where, key);
  return &*field;
}

// The words of a pattern or template, checked for balance: "{word}" of letters, digits and underscores.
Result<std::set<std::string>> placeholders_of(const std::string& text, const std::string& where) {
  std::set<std::string> words;
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '}') return reject("{}: \"}}\" without \"{{\" in {}", where, printable(text));
    if (text[at] != '{') continue;
    const auto close = text.find('}', at);
    const auto word = close == std::string::npos ? std::string() : text.substr(at + 1, close - at - 1);
    const bool is_word = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (!is_word) return reject("{}: a placeholder in {} is not {{word}}", where, printable(text));
    if (++count > kMaxPlaceholders)
      return reject("{}: more than {} placeholders in {}", where, kMaxPlaceholders, printable(text));
    words.insert(word);
    at = close;
  }
  return words;
}

Result<std::optional<Split>> parse_split(const Json& object, const std::string& where) {
  const auto field = object.find("tp");
  if (field == object.end()) return std::nullopt;
  WB_TRY(check_object(*field, where + " \"tp\"", {"dim", "unit", "replicate"}));
  Split split;
  WB_ASSIGN(const auto dim, number_of(*field, "dim", where + " \"tp\"", kMaxDims, 0, kMaxDims - 1));
  if (dim == kMaxDims) return reject("{}: \"tp\" needs \"dim\"", where);
  split.dim = static_cast<std::uint32_t>(dim);
  WB_ASSIGN(split.replicate, flag_of(*field, "replicate", where + " \"tp\""));
  const auto unit = field->find("unit");
  if (unit == field->end()) {
    if (split.replicate) return reject("{}: \"replicate\" needs \"unit\"", where);
    return split;
  }
  const auto inside = where + " \"unit\"";
  WB_TRY(check_object(*unit, inside, {"number", "dim_of", "rows"}));
  WB_ASSIGN(split.unit.number, text_of(*unit, "number", inside));
  WB_ASSIGN(split.unit.dim_of, text_of(*unit, "dim_of", inside));
  WB_ASSIGN(split.unit.rows, number_of(*unit, "rows", inside, 0, 1, std::uint64_t{1} << 40));
  if (split.unit.number.empty() && split.unit.dim_of.empty() && split.unit.rows == 0) {
    return reject("{} needs \"number\", \"dim_of\" or \"rows\"", inside);
  }
  return split;
}

Result<std::optional<Padding>> parse_padding(const Json& object, const std::string& where) {
  const auto field = object.find("pad");
  if (field == object.end()) return std::nullopt;
  const auto inside = where + " \"pad\"";
  WB_TRY(check_object(*field, inside, {"dim", "multiple", "fill"}));
  Padding padding;
  WB_ASSIGN(const auto dim, number_of(*field, "dim", inside, 0, 0, kMaxDims - 1));
  padding.dim = static_cast<std::uint32_t>(dim);
  WB_ASSIGN(padding.multiple, number_of(*field, "multiple", inside, 0, 1, std::uint64_t{1} << 32));
  if (padding.multiple == 0) return reject("{} needs \"multiple\"", inside);
  WB_ASSIGN(const auto fill, number_of(*field, "fill", inside, 0, 0, 255));
  padding.fill = static_cast<std::uint8_t>(fill);
  return padding;
}

// The keys of a part; those of its rule may stand beside them when the rule has one part only.
Result<LayoutPart> parse_part(const Json& object, const std::string& where) {
  LayoutPart part;
  WB_ASSIGN(part.pattern, text_of(object, "name", where));
  if (part.pattern.empty()) return reject("{} needs \"name\"", where);
  const auto named = fmt::format("{} ({})", where, printable(part.pattern));
  WB_TRY(placeholders_of(part.pattern, named));
  if (static_cast<std::size_t>(std::count(part.pattern.begin(), part.pattern.end(), '*')) > kMaxStars) {
    return reject("{}: more than {} \"*\"", named, kMaxStars);
  }
  WB_ASSIGN(part.split, parse_split(object, named));
  WB_ASSIGN(part.padding, parse_padding(object, named));
  if (part.padding && part.split && part.padding->dim != part.split->dim) {
    return reject("{}: \"pad\" and \"tp\" must name the same dimension", named);
  }
  if (part.padding && part.split && (part.split->replicate || part.split->unit.rows != 1)) {
    return reject("{}: \"pad\" goes with a plain \"tp\", without \"unit\"", named);
  }
  WB_ASSIGN(const auto cast, text_of(object, "cast", named));
  if (cast.empty()) return part;
  const auto known = parse_cast(cast);
  if (!known) return reject("{}: cast {} is not known", named, printable(cast));
  part.cast = *known;
  return part;
}

Status check_rule(const LayoutRule& rule, const std::string& where) {
  WB_ASSIGN(const auto used, placeholders_of(rule.parameter, where));
  if (rule.parameter.find('*') != std::string::npos)
    return reject("{}: a parameter's name cannot contain \"*\"", where);
  for (const auto& part : rule.parts) {
    WB_ASSIGN(const auto given, placeholders_of(part.pattern, where));
    for (const auto& word : used) {
      if (!given.contains(word)) return reject("{}: {} has no {{{}}}", where, printable(part.pattern), word);
    }
    if (!rule.expert.empty() && !given.contains(rule.expert)) {
      return reject("{}: {} has no {{{}}}", where, printable(part.pattern), printable(rule.expert));
    }
    if (part.padding && (rule.parts.size() > 1 || !rule.expert.empty())) {
      return reject("{}: \"pad\" goes with a single tensor, not with fused parts or experts", where);
    }
  }
  if (rule.expert.empty()) return {};
  if (rule.parameter.empty()) return reject("{}: \"expert\" needs \"parameter\"", where);
  if (used.contains(rule.expert)) return reject("{}: {{{}}} cannot stand in \"parameter\"", where, rule.expert);
  return {};
}

Result<LayoutRule> parse_rule(const Json& object, std::size_t index) {
  const auto where = fmt::format("rule {}", index + 1);
  if (!object.is_object()) return reject("{} must be an object", where);
  LayoutRule rule;
  if (object.contains("parts")) {
    WB_TRY(check_object(object, where, {"parameter", "parts", "dim", "expert", "optional"}));
    WB_ASSIGN(const auto* parts, list_of(object, "parts", where));
    if (parts->empty()) return reject("{}: \"parts\" is empty", where);
    for (const auto& item : *parts) {
      const auto inside = fmt::format("{}, part {}", where, rule.parts.size() + 1);
      WB_TRY(check_object(item, inside, {"name", "tp", "pad", "cast"}));
      WB_ASSIGN(auto part, parse_part(item, inside));
      rule.parts.push_back(std::move(part));
    }
    WB_ASSIGN(const auto dim, number_of(object, "dim", where, 0, 0, kMaxDims - 1));
    rule.fuse_dim = static_cast<std::uint32_t>(dim);
    if (!object.contains("parameter"))
      return reject("{}: \"parts\" needs \"parameter\", the name that they share", where);
  } else {
    WB_TRY(check_object(object, where, {"parameter", "name", "tp", "pad", "cast", "expert", "optional"}));
    WB_ASSIGN(auto part, parse_part(object, where));
    rule.parts.push_back(std::move(part));
  }
  WB_ASSIGN(rule.parameter, text_of(object, "parameter", where));
  WB_ASSIGN(rule.expert, text_of(object, "expert", where));
  WB_ASSIGN(rule.optional, flag_of(object, "optional", where));
  WB_TRY(check_rule(rule, where));
  return rule;
}

Status parse_lists(const Json& document, Layout& layout) {
  WB_ASSIGN(const auto* ignored, list_of(document, "ignore", "the layout"));
  if (ignored) {
    for (const auto& item : *ignored) {
      if (!item.is_string()) return reject("\"ignore\" must list strings");
      layout.ignored.push_back(item.get<std::string>());
    }
  }
  WB_ASSIGN(const auto* companions, list_of(document, "companions", "the layout"));
  if (!companions) return {};
  for (const auto& item : *companions) {
    WB_TRY(check_object(item, "a companion", {"dtype", "suffix"}));
    WB_ASSIGN(const auto dtype_text, text_of(item, "dtype", "a companion"));
    WB_ASSIGN(auto suffix, text_of(item, "suffix", "a companion"));
    const auto dtype = parse_dtype(dtype_text);
    if (!dtype || suffix.empty()) return reject("a companion needs a known \"dtype\" and a \"suffix\"");
    layout.companions.push_back({*dtype, std::move(suffix)});
  }
  return {};
}

}  // namespace

Result<Layout> parse_layout(std::string_view json) {
  WB_ASSIGN(const auto document, parse_strict_json(json, kMaxDepth));
  WB_TRY(check_object(document, "the layout", {"weightbus_layout", "name", "about", "rules", "ignore", "companions"}));
  WB_ASSIGN(const auto revision, number_of(document, "weightbus_layout", "the layout", 0, 1, UINT32_MAX));
  if (revision == 0) return reject("not a layout file: \"weightbus_layout\" (the revision of its format) is missing");
  if (revision > kMaxRevision) {
    return base::fail(ErrorCode::kUnsupported, "the layout has revision {}; this program reads up to {}", revision,
                      kMaxRevision);
  }
  Layout layout;
  WB_ASSIGN(layout.name, text_of(document, "name", "the layout"));
  if (layout.name.empty()) return reject("the layout needs a \"name\"");
  WB_TRY(text_of(document, "about", "the layout"));
  WB_ASSIGN(const auto* rules, list_of(document, "rules", "the layout"));
  if (!rules || rules->empty()) return reject("the layout needs \"rules\"");
  for (std::size_t i = 0; i < rules->size(); ++i) {
    WB_ASSIGN(auto rule, parse_rule((*rules)[i], i));
    layout.rules.push_back(std::move(rule));
  }
  WB_TRY(parse_lists(document, layout));
  return layout;
}

Result<Layout> builtin_layout(std::string_view name) {
  std::string known;
  for (const auto& builtin : builtin_layouts()) {
    if (builtin.name == name) return parse_layout(builtin.json);
    known += (known.empty() ? "" : ", ") + std::string(builtin.name);
  }
  return base::fail(ErrorCode::kNotFound, "there is no layout {}; shipped are: {}", printable(name), known);
}

}  // namespace weightbus::model
