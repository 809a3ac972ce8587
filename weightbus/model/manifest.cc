#include "weightbus/model/manifest.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "weightbus/base/checked_math.h"
#include "weightbus/model/hashing.h"
#include "weightbus/model/memory_overlap.h"

namespace weightbus::model {
namespace {

using base::ErrorCode;
using base::fail;
using base::Status;

// Sizes and offsets stay below 2^63, so that differences of them fit a signed number.
constexpr std::uint64_t kMaxBytes = (1ULL << 63) - 1;

void add_tensors(base::Hasher& hasher, const std::vector<TensorSpec>& tensors) {
  hasher.add(tensors.size());
  for (const auto& tensor : tensors) {
    hasher.add(tensor.name);
    hasher.add(tensor.dtype);
    add(hasher, tensor.shape);
  }
}

template <class Manifest>
void add_rest(base::Hasher& hasher, const Manifest& manifest) {
  hasher.add(manifest.region_bytes.size());
  for (auto bytes : manifest.region_bytes)
    hasher.add(bytes);
  hasher.add(manifest.aliases.size());
  for (const auto& alias : manifest.aliases) {
    hasher.add(alias.name);
    hasher.add(alias.target);
  }
  hasher.add(manifest.ignored.size());
  for (const auto& pattern : manifest.ignored)
    hasher.add(pattern);
}

Status check_tensors(const std::vector<TensorSpec>& tensors) {
  std::unordered_set<std::string_view> names;
  names.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    if (tensor.name.empty()) return fail(ErrorCode::kInvalidArgument, "a tensor has no name");
    if (!names.insert(tensor.name).second) {
      return fail(ErrorCode::kInvalidArgument, "tensor '{}' is listed twice", tensor.name);
    }
    const auto volume = checked_volume(tensor.shape);
    const auto bytes = volume ? base::checked_mul<std::uint64_t>(*volume, dtype_size(tensor.dtype)) : std::nullopt;
    if (!bytes || *bytes > kMaxBytes) {
      return fail(ErrorCode::kInvalidArgument, "tensor '{}' has the impossible shape {}", tensor.name,
                  to_string(tensor.shape));
    }
  }
  return {};
}

// An alias that is its own target in the end has no content at all.
Status check_aliases(const std::vector<Alias>& aliases) {
  std::unordered_map<std::string_view, std::string_view> targets;
  for (const auto& alias : aliases) {
    if (alias.name.empty() || alias.target.empty()) {
      return fail(ErrorCode::kInvalidArgument, "the alias '{}' -> '{}' lacks a name", alias.name, alias.target);
    }
    if (!targets.emplace(alias.name, alias.target).second) {
      return fail(ErrorCode::kInvalidArgument, "'{}' is declared an alias twice", alias.name);
    }
  }
  std::unordered_set<std::string_view> sound;  // reaches a name that is no alias
  for (const auto& alias : aliases) {
    std::vector<std::string_view> path;
    std::unordered_set<std::string_view> on_path;
    for (std::string_view name = alias.name;; name = targets.at(name)) {
      if (sound.contains(name) || !targets.contains(name)) break;
      if (!on_path.insert(name).second) {
        return fail(ErrorCode::kInvalidArgument, "the aliases of '{}' lead back to itself", alias.name);
      }
      path.push_back(name);
    }
    sound.insert(path.begin(), path.end());
  }
  return {};
}

// What shards and slots have in common. `what` is "shard" or "slot".
template <class Manifest>
Status check_place(const Manifest& manifest, const char* what, std::uint32_t tensor_index, const Box& box,
                   const Placement& at) {
  if (tensor_index >= manifest.tensors.size()) {
    return fail(ErrorCode::kInvalidArgument, "a {} names tensor {} of {}", what, tensor_index, manifest.tensors.size());
  }
  const auto& tensor = manifest.tensors[tensor_index];
  if (!fits(box, tensor.shape)) {
    return fail(ErrorCode::kInvalidArgument, "tensor '{}': the {} does not lie in the shape {}", tensor.name, what,
                to_string(tensor.shape));
  }
  if (at.strides.size() != box.rank()) {
    return fail(ErrorCode::kInvalidArgument, "tensor '{}': the {} has {} strides for {} dimensions", tensor.name, what,
                at.strides.size(), box.rank());
  }
  if (std::any_of(at.strides.begin(), at.strides.end(), [](auto stride) { return stride < 0; })) {
    return fail(ErrorCode::kInvalidArgument, "tensor '{}': the {} {} has a negative stride", tensor.name, what,
                to_string(box));
  }
  if (box.empty()) return {};
  if (at.region >= manifest.region_bytes.size()) {
    return fail(ErrorCode::kInvalidArgument, "tensor '{}': the {} {} lies in region {} of {}", tensor.name, what,
                to_string(box), at.region, manifest.region_bytes.size());
  }
  const auto span = span_bytes(box, at.strides, dtype_size(tensor.dtype));
  const auto end = span ? base::checked_add(at.offset, *span) : std::nullopt;
  if (!end || *end > manifest.region_bytes[at.region]) {
    return fail(ErrorCode::kInvalidArgument, "tensor '{}': the {} {} at offset {} runs past the {} bytes of region {}",
                tensor.name, what, to_string(box), at.offset, manifest.region_bytes[at.region], at.region);
  }
  return {};
}

template <class Manifest>
Status check_common(const Manifest& manifest) {
  WB_TRY(check_tensors(manifest.tensors));
  WB_TRY(check_aliases(manifest.aliases));
  for (std::size_t i = 0; i < manifest.region_bytes.size(); ++i) {
    if (manifest.region_bytes[i] > kMaxBytes) {
      return fail(ErrorCode::kInvalidArgument, "region {} claims {} bytes", i, manifest.region_bytes[i]);
    }
  }
  return {};
}

Status check_slot(const SinkManifest& manifest, const Slot& slot) {
  WB_TRY(check_place(manifest, "slot", slot.tensor, slot.box, slot.at));
  const auto& tensor = manifest.tensors[slot.tensor];
  if (slot.kind != SlotKind::kRaw && slot.kind != SlotKind::kDerived && slot.kind != SlotKind::kConstant) {
    return fail(ErrorCode::kInvalidArgument, "tensor '{}': the slot {} is of the unknown kind {}", tensor.name,
                to_string(slot.box), static_cast<int>(slot.kind));
  }
  if (slot.cast == Cast::kNone) return {};
  const auto sources = {DType::kF32, DType::kBF16, DType::kF16};
  if (std::none_of(sources.begin(), sources.end(),
                   [&](DType from) { return find_cast(from, tensor.dtype) == slot.cast; })) {
    return fail(ErrorCode::kInvalidArgument, "tensor '{}': the slot {} asks for the cast {}, which does not give {}",
                tensor.name, to_string(slot.box), cast_name(slot.cast), dtype_name(tensor.dtype));
  }
  return {};
}

struct Occupied {
  std::uint32_t region;
  std::uint64_t begin;
  std::uint64_t end;
  const Slot* slot;
};

// Two slots in one place would overwrite each other. Footprints may interleave (column slices of one matrix), so spans
// only say which pairs need a closer look.
Status check_overlaps(const SinkManifest& manifest) {
  std::vector<Occupied> occupied;
  for (const auto& slot : manifest.slots) {
    if (slot.box.empty()) continue;
    const auto& tensor = manifest.tensors[slot.tensor];
    const auto size = dtype_size(tensor.dtype);
    if (self_overlaps(footprint(slot.box, slot.at.offset, slot.at.strides, size))) {
      return fail(ErrorCode::kInvalidArgument, "tensor '{}': elements of the slot {} overlap in memory (strides {})",
                  tensor.name, to_string(slot.box), to_string(slot.at.strides));
    }
    occupied.push_back(
        {slot.at.region, slot.at.offset, slot.at.offset + *span_bytes(slot.box, slot.at.strides, size), &slot});
  }
  std::sort(occupied.begin(), occupied.end(), [](const auto& a, const auto& b) {
    return std::tie(a.region, a.begin, a.end, a.slot) < std::tie(b.region, b.begin, b.end, b.slot);
  });
  const auto print = [&](const Occupied& o) {
    const auto& slot = *o.slot;
    return footprint(slot.box, slot.at.offset, slot.at.strides, dtype_size(manifest.tensors[slot.tensor].dtype));
  };
  std::vector<const Occupied*> active;  // spans that reach past the current beginning
  for (const auto& current : occupied) {
    std::erase_if(active, [&](const auto* a) { return a->region != current.region || a->end <= current.begin; });
    for (const auto* earlier : active) {
      if (!overlap(print(*earlier), print(current))) continue;
      return fail(ErrorCode::kInvalidArgument, "the slots of '{}' {} and '{}' {} overlap in memory",
                  manifest.tensors[earlier->slot->tensor].name, to_string(earlier->slot->box),
                  manifest.tensors[current.slot->tensor].name, to_string(current.slot->box));
    }
    active.push_back(&current);
  }
  return {};
}

}  // namespace

Hash128 layout_hash(const SourceManifest& manifest) {
  base::Hasher hasher;
  hasher.add("source manifest");
  add_tensors(hasher, manifest.tensors);
  hasher.add(manifest.shards.size());
  for (const auto& shard : manifest.shards) {
    hasher.add(shard.tensor);
    add(hasher, shard.box);
    add(hasher, shard.at);
  }
  add_rest(hasher, manifest);
  return hasher.finish();
}

Hash128 layout_hash(const SinkManifest& manifest) {
  base::Hasher hasher;
  hasher.add("sink manifest");
  add_tensors(hasher, manifest.tensors);
  hasher.add(manifest.slots.size());
  for (const auto& slot : manifest.slots) {
    hasher.add(slot.tensor);
    add(hasher, slot.box);
    add(hasher, slot.at);
    hasher.add(slot.kind);
    hasher.add(slot.cast);
    hasher.add(slot.fill);
    hasher.add(slot.parameter);
  }
  add_rest(hasher, manifest);
  return hasher.finish();
}

Status validate(const SourceManifest& manifest) {
  WB_TRY(check_common(manifest));
  for (const auto& shard : manifest.shards)
    WB_TRY(check_place(manifest, "shard", shard.tensor, shard.box, shard.at));
  return {};
}

Status validate(const SinkManifest& manifest) {
  WB_TRY(check_common(manifest));
  for (const auto& slot : manifest.slots)
    WB_TRY(check_slot(manifest, slot));
  return check_overlaps(manifest);
}

std::optional<std::uint64_t> span_bytes(const Box& box, const Dims& strides, std::uint32_t element_bytes) noexcept {
  WB_ASSERT(strides.size() == box.rank(), "one stride a dimension");
  if (box.empty()) return 0;
  std::uint64_t last = 0;  // the last element's index
  for (std::size_t i = 0; i < box.rank(); ++i) {
    const auto reach =
        base::checked_mul(static_cast<std::uint64_t>(box.extent[i] - 1), static_cast<std::uint64_t>(strides[i]));
    const auto sum = reach ? base::checked_add(last, *reach) : std::nullopt;
    if (!sum) return std::nullopt;
    last = *sum;
  }
  const auto count = base::checked_add<std::uint64_t>(last, 1);
  const auto bytes = count ? base::checked_mul<std::uint64_t>(*count, element_bytes) : std::nullopt;
  if (!bytes || *bytes > kMaxBytes) return std::nullopt;
  return bytes;
}

bool name_matches(std::string_view pattern, std::string_view name) noexcept {
  // On a mismatch, let the last star swallow one character more: earlier stars never need to be tried again.
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*')
    ++p;
  return p == pattern.size();
}

SourceManifest as_source(const SinkManifest& manifest) {
  SourceManifest source;
  source.region_bytes = manifest.region_bytes;
  source.aliases = manifest.aliases;
  std::unordered_map<std::uint32_t, std::uint32_t> tensors;
  std::set<std::pair<std::uint32_t, Box>> seen;
  for (const auto& slot : manifest.slots) {
    if (slot.kind != SlotKind::kRaw) continue;
    const auto [found, added] = tensors.emplace(slot.tensor, static_cast<std::uint32_t>(source.tensors.size()));
    if (added) source.tensors.push_back(manifest.tensors[slot.tensor]);
    if (seen.emplace(slot.tensor, slot.box).second) source.shards.push_back({found->second, slot.box, slot.at});
  }
  return source;
}

}  // namespace weightbus::model
