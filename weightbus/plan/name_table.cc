#include "weightbus/plan/name_table.h"

#include <tuple>

namespace weightbus::plan {

std::uint32_t NameTable::add(std::string_view name) {
  const auto id = static_cast<std::uint32_t>(names_.size());
  const auto [found, added] = ids_.emplace(name, id);
  if (!added) return found->second;
  names_.push_back(name);
  parent_.push_back(id);
  is_alias_.push_back(false);
  return id;
}

std::vector<std::uint32_t> NameTable::add_all(std::span<const model::TensorSpec> tensors) {
  std::vector<std::uint32_t> ids;
  ids.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool same = i < previous_.size() && names_[previous_[i]] == tensors[i].name;
    ids.push_back(same ? previous_[i] : add(tensors[i].name));
  }
  previous_ = ids;
  return ids;
}

void NameTable::add_aliases(std::span<const model::Alias> aliases) {
  for (const auto& alias : aliases) {
    const auto name = add(alias.name);
    const auto target = add(alias.target);
    is_alias_[name] = true;
    parent_[root(name)] = root(target);
  }
}

std::uint32_t NameTable::root(std::uint32_t id) {
  while (parent_[id] != id) {
    parent_[id] = parent_[parent_[id]];
    id = parent_[id];
  }
  return id;
}

void NameTable::resolve() {
  constexpr auto kNone = 0xffffffffU;
  std::vector<std::uint32_t> best(names_.size(), kNone);
  const auto key = [&](std::uint32_t id) { return std::tuple(static_cast<bool>(is_alias_[id]), names_[id]); };
  for (std::uint32_t id = 0; id < names_.size(); ++id) {
    auto& chosen = best[root(id)];
    if (chosen == kNone || key(id) < key(chosen)) chosen = id;
  }
  canonical_.resize(names_.size());
  for (std::uint32_t id = 0; id < names_.size(); ++id)
    canonical_[id] = best[root(id)];
}

}  // namespace weightbus::plan
