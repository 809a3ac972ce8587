// Tensor names as small numbers, and the classes that aliases make of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weightbus/model/manifest.h"

namespace weightbus::plan {

// Names are borrowed from the manifests.
class NameTable {
 public:
  std::uint32_t add(std::string_view name);
  // The numbers of a manifest's tensors, in order.
  std::vector<std::uint32_t> add_all(std::span<const model::TensorSpec> tensors);
  void add_aliases(std::span<const model::Alias> aliases);
  // After all names: settles the canonical name of every class.
  void resolve();

  std::string_view name(std::uint32_t id) const { return names_[id]; }
  std::size_t size() const { return names_.size(); }
  // The number of the canonical name.
  std::uint32_t canonical(std::uint32_t id) const { return canonical_[id]; }

 private:
  std::uint32_t root(std::uint32_t id);

  std::unordered_map<std::string_view, std::uint32_t> ids_;
  std::vector<std::string_view> names_;
  std::vector<std::uint32_t> parent_;
  std::vector<bool> is_alias_;
  std::vector<std::uint32_t> canonical_;
  std::vector<std::uint32_t> previous_;  // of the manifest before, whose order the next one often shares
};

}  // namespace weightbus::plan
