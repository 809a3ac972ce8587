#include "weightbus/model/layout.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "weightbus/base/assert.h"
#include "weightbus/base/checked_math.h"
#include "weightbus/model/layout_parts.h"

namespace weightbus::model {
namespace {

using base::ErrorCode;
using base::Result;
using base::Status;
using layout_detail::LocalPart;
using layout_detail::reject;

// A tensor that a rule has: part `part` of a parameter, of expert `expert`.
struct Member {
  const TensorSpec* spec;
  std::size_t part;
  std::uint64_t expert;
};
struct Parameter {
  std::size_t rule;
  std::vector<Member> members;
};

// The rule and part that have a name.
struct Match {
  std::size_t rule;
  std::size_t part;
  Captures captures;
};

std::optional<Match> find_rule(const Layout& layout, std::string_view name) {
  for (std::size_t rule = 0; rule < layout.rules.size(); ++rule) {
    for (std::size_t part = 0; part < layout.rules[rule].parts.size(); ++part) {
      auto captures = match_pattern(layout.rules[rule].parts[part].pattern, name);
      if (captures) return Match{rule, part, std::move(*captures)};
    }
  }
  return std::nullopt;
}

bool is_ignored(const Layout& layout, std::string_view name) {
  return std::any_of(layout.ignored.begin(), layout.ignored.end(),
                     [&](const std::string& pattern) { return name_matches(pattern, name); });
}

std::string expand(const std::string& text, const Captures& captures) {
  std::string expanded;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '{') {
      expanded += text[at];
      continue;
    }
    const auto close = text.find('}', at);
    expanded += captures.at(text.substr(at + 1, close - at - 1));  // parse_layout checked that every part has the word
    at = close;
  }
  return expanded;
}

// Builds one rank's manifest: matches names, then lays out one parameter after the other.
class Builder {
 public:
  Builder(const Layout& layout, std::span<const TensorSpec> tensors, TpRank rank, std::uint32_t size,
          const LayoutNumbers& numbers)
      : layout_(layout), context_{tensors, rank.value(), size, numbers}, rule_used_(layout.rules.size(), false) {}

  Result<SinkManifest> build(std::span<const Alias> aliases) {
    WB_TRY(match_tensors());
    WB_TRY(check_companions());
    for (const auto& [name, parameter] : parameters_) {
      const auto& rule = layout_.rules[parameter.rule];
      auto status = rule.expert.empty() ? place(name, rule, parameter.members) : place_experts(name, rule, parameter);
      if (!status) return base::fail(status.error());
    }
    for (const auto& alias : aliases)
      WB_TRY(add_alias(alias));
    for (std::size_t i = 0; i < layout_.rules.size(); ++i) {
      if (rule_used_[i] || layout_.rules[i].optional) continue;
      return reject("layout {}: no tensor matches {}; is it the layout of this model?", layout_.name,
                    layout_.rules[i].parts.front().pattern);
    }
    manifest_.region_bytes = {std::max(end_, kParameterAlignment)};
    manifest_.ignored = layout_.ignored;
    return std::move(manifest_);
  }

 private:
  Status match_tensors() {
    for (const auto& spec : context_.tensors) {
      if (!by_name_.try_emplace(spec.name, &spec).second) return reject("tensor {} is listed twice", spec.name);
      if (!layout_detail::checked_bytes(spec.shape, spec.dtype)) {
        return reject("tensor {}: the size of shape {} overflows", spec.name, to_string(spec.shape));
      }
      if (is_ignored(layout_, spec.name)) continue;
      auto match = find_rule(layout_, spec.name);
      if (!match) {
        return reject("layout {} has no rule for tensor {}; add one, or list it under \"ignore\"", layout_.name,
                      spec.name);
      }
      const auto& rule = layout_.rules[match->rule];
      rule_used_[match->rule] = true;
      Member member{&spec, match->part, 0};
      if (!rule.expert.empty()) {
        const auto& text = match->captures.at(rule.expert);
        const auto parsed = std::from_chars(text.data(), text.data() + text.size(), member.expert);
        if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
          return reject("tensor {}: \"{}\" is not the number of an expert", spec.name, text);
        }
      }
      const auto name = rule.parameter.empty() ? spec.name : expand(rule.parameter, match->captures);
      auto& parameter = parameters_.try_emplace(name, Parameter{match->rule, {}}).first->second;
      if (parameter.rule != match->rule) {
        return reject("layout {}: two rules make the parameter {}", layout_.name, name);
      }
      parameter.members.push_back(member);
    }
    return {};
  }

  Status check_companions() const {
    for (const auto& companion : layout_.companions) {
      for (const auto& spec : context_.tensors) {
        if (spec.dtype != companion.dtype || is_ignored(layout_, spec.name)) continue;
        if (by_name_.contains(spec.name + companion.suffix)) continue;
        return reject("tensor {} is {} and needs {}{}, which no source has", spec.name, dtype_name(spec.dtype),
                      spec.name, companion.suffix);
      }
    }
    return {};
  }

  // Lays the members, one for each part of the rule, one after the other along fuse_dim.
  Status place(const std::string& name, const LayoutRule& rule, std::vector<Member> members) {
    std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.part < b.part; });
    for (std::size_t part = 0; part < rule.parts.size(); ++part) {
      if (part >= members.size() || members[part].part > part) {
        return reject("parameter {}: the part {} is missing beside {}", name, rule.parts[part].pattern,
                      members.front().spec->name);
      }
      if (members[part].part < part) {
        return reject("parameter {}: {} and {} are the same part of it", name, members[part - 1].spec->name,
                      members[part].spec->name);
      }
    }
    if (members.size() > rule.parts.size()) {
      return reject("parameter {}: {} and {} are the same part of it", name, members[members.size() - 2].spec->name,
                    members.back().spec->name);
    }
    std::vector<LocalPart> locals;
    for (const auto& member : members) {
      WB_ASSIGN(auto local, layout_detail::localize(context_, rule.parts[member.part], *member.spec));
      locals.push_back(std::move(local));
    }
    WB_ASSIGN(const auto shape, layout_detail::fused_shape(name, locals, rule.fuse_dim));
    const auto bytes = layout_detail::checked_bytes(shape, locals.front().spec.dtype);
    const auto end = bytes ? base::checked_add(end_, *bytes) : std::nullopt;
    if (!end) return reject("parameter {}: the size of the arena overflows", name);
    emit(name, locals, shape, rule.fuse_dim);
    // Expert after expert is one parameter, without gaps; the caller aligns what follows.
    end_ = *end;
    return rule.expert.empty() ? align(name) : Status{};
  }

  Status align(const std::string& name) {
    const auto aligned = base::checked_round_up(end_, kParameterAlignment);
    if (!aligned) return reject("parameter {}: the size of the arena overflows", name);
    end_ = *aligned;
    return {};
  }

  Status place_experts(const std::string& name, const LayoutRule& rule, const Parameter& parameter) {
    std::map<std::uint64_t, std::vector<Member>> experts;
    for (const auto& member : parameter.members)
      experts[member.expert].push_back(member);
    const std::uint64_t count = experts.size();
    if (experts.rbegin()->first != count - 1) {
      std::uint64_t missing = 0;
      while (experts.contains(missing))
        ++missing;
      return reject("parameter {}: expert {} is missing, though there is an expert {}", name, missing,
                    experts.rbegin()->first);
    }
    if (count % context_.tp_size != 0) {
      return reject("parameter {}: {} experts cannot be divided among {} ranks", name, count, context_.tp_size);
    }
    const auto share = count / context_.tp_size;
    const auto first = share * context_.tp_rank;
    for (const auto& [expert, members] : experts) {
      WB_TRY(check_same(name, experts.begin()->second, members));
      if (expert >= first && expert < first + share) WB_TRY(place(name, rule, members));
    }
    return align(name);
  }

  // Experts lie one behind the other at equal distances, as one tensor with a leading dimension.
  static Status check_same(const std::string& name, const std::vector<Member>& model,
                           const std::vector<Member>& members) {
    for (const auto& member : members) {
      const auto twin =
          std::find_if(model.begin(), model.end(), [&](const Member& m) { return m.part == member.part; });
      if (twin == model.end()) {
        return reject("parameter {}: expert {} has {}, which expert {} lacks", name, member.expert, member.spec->name,
                      model.front().expert);
      }
      if (member.spec->shape != twin->spec->shape || member.spec->dtype != twin->spec->dtype) {
        return reject("parameter {}: {} and {} differ in shape or dtype", name, member.spec->name, twin->spec->name);
      }
    }
    return {};
  }

  void emit(const std::string& name, const std::vector<LocalPart>& locals, const Dims& shape, std::uint32_t fuse_dim) {
    const auto strides = dense_strides(shape);
    std::uint64_t along = 0;  // elements of fuse_dim before this part
    for (const auto& local : locals) {
      const std::uint64_t element = dtype_size(local.spec.dtype);
      const auto offset_of = [&](std::uint64_t dim, std::uint64_t index) {
        return shape.size() == 0 ? 0 : index * static_cast<std::uint64_t>(strides[dim]) * element;
      };
      const auto base_offset = end_ + (locals.size() > 1 ? offset_of(fuse_dim, along) : 0);
      manifest_.tensors.push_back(local.spec);
      manifest_.slots.push_back(
          {index_of_last(), local.box, {0, base_offset, strides}, SlotKind::kRaw, local.cast, 0, name});
      if (local.padding) {
        const auto rows = static_cast<std::uint64_t>(local.box.extent[local.pad_dim]);
        manifest_.tensors.push_back(local.padding->spec);
        manifest_.slots.push_back({index_of_last(),
                                   local.padding->box,
                                   {0, base_offset + offset_of(local.pad_dim, rows), strides},
                                   SlotKind::kConstant,
                                   Cast::kNone,
                                   local.fill,
                                   name});
      }
      if (locals.size() > 1) along += static_cast<std::uint64_t>(local.extent[fuse_dim]);
    }
  }

  std::uint32_t index_of_last() const { return static_cast<std::uint32_t>(manifest_.tensors.size() - 1); }

  // Both names must mean the same bytes: the rule of the second name has to cut the tensor as the first's does.
  Status add_alias(const Alias& alias) {
    if (by_name_.contains(alias.name)) return reject("{} is a tensor and also tied to {}", alias.name, alias.target);
    const auto target = by_name_.find(alias.target);
    if (target == by_name_.end()) return reject("{} is tied to {}, which no source has", alias.name, alias.target);
    if (is_ignored(layout_, alias.name) || is_ignored(layout_, alias.target)) return {};
    const auto match = find_rule(layout_, alias.name);
    if (!match) return reject("layout {} has no rule for {} (tied to {})", layout_.name, alias.name, alias.target);
    const auto target_match = find_rule(layout_, alias.target);
    WB_ASSERT(target_match.has_value(), "every tensor was matched above");
    const auto& rule = layout_.rules[match->rule];
    const auto& target_rule = layout_.rules[target_match->rule];
    if (rule.parts.size() > 1 || target_rule.parts.size() > 1) {
      return reject("{} is tied to {}, but one of them is part of a fused parameter", alias.name, alias.target);
    }
    WB_ASSIGN(const auto mine, layout_detail::localize(context_, rule.parts[0], *target->second));
    WB_ASSIGN(const auto theirs, layout_detail::localize(context_, target_rule.parts[0], *target->second));
    if (mine.box != theirs.box || mine.extent != theirs.extent || mine.cast != theirs.cast ||
        mine.fill != theirs.fill) {
      return reject("{} is tied to {}, but layout {} lays them out differently", alias.name, alias.target,
                    layout_.name);
    }
    rule_used_[match->rule] = true;
    manifest_.aliases.push_back(alias);
    return {};
  }

  const Layout& layout_;
  layout_detail::Context context_;
  std::vector<bool> rule_used_;
  std::unordered_map<std::string, const TensorSpec*> by_name_;
  std::map<std::string, Parameter> parameters_;  // sorted: the arena's order depends on names only
  SinkManifest manifest_;
  std::uint64_t end_ = 0;
};

}  // namespace

Result<SinkManifest> make_sink_manifest(const Layout& layout, std::span<const TensorSpec> tensors,
                                        std::span<const Alias> aliases, TpRank tp_rank, std::uint32_t tp_size,
                                        const LayoutNumbers& numbers) {
  if (tp_rank.value() >= tp_size) {
    return reject("tp_rank {} of {} ranks does not exist: they count from 0", tp_rank.value(), tp_size);
  }
  return Builder(layout, tensors, tp_rank, tp_size, numbers).build(aliases);
}

}  // namespace weightbus::model
