#include "weightbus/plan/catalog.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "weightbus/plan/name_table.h"

namespace weightbus::plan {
namespace {

using base::ErrorCode;
using base::fail;
using base::Status;
using model::Cast;

constexpr std::uint32_t kNone = 0xffffffffU;
constexpr std::size_t kCasts = 7;  // Cast::kNone and six others

// One class of aliased names, kept at the number of its canonical name.
struct ClassInfo {
  std::uint32_t source = kNone;  // the first that lists it, and as what
  const model::TensorSpec* spec = nullptr;
  std::uint32_t content = kNone;  // the name whose shards are taken
  bool wanted = false;            // a raw slot asks for it
};

class Builder {
 public:
  Builder(std::span<const PlanSource> sources, std::span<const PlanSink> sinks) : sources_(sources), sinks_(sinks) {}

  base::Result<Catalog> build() {
    number_names();
    WB_TRY(read_sources());
    WB_TRY(read_sinks());
    WB_TRY(check_unmatched());
    return collect();
  }

 private:
  void number_names() {
    for (const auto& source : sources_)
      source_names_.push_back(names_.add_all(source.manifest->tensors));
    for (const auto& sink : sinks_)
      sink_names_.push_back(names_.add_all(sink.manifest->tensors));
    for (const auto& source : sources_)
      names_.add_aliases(source.manifest->aliases);
    for (const auto& sink : sinks_)
      names_.add_aliases(sink.manifest->aliases);
    names_.resolve();
    classes_.resize(names_.size());
  }

  ClassInfo& class_of(std::uint32_t name) { return classes_[names_.canonical(name)]; }

  Status read_sources() {
    std::vector<bool> has_content(names_.size(), false);
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      for (const auto& shard : sources_[s].manifest->shards) {
        if (!shard.box.empty()) has_content[source_names_[s][shard.tensor]] = true;
      }
    }
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      const auto& tensors = sources_[s].manifest->tensors;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto name = source_names_[s][i];
        auto& info = class_of(name);
        if (!info.spec) {
          info.source = static_cast<std::uint32_t>(s);
          info.spec = &tensors[i];
        } else if (info.spec->dtype != tensors[i].dtype || info.spec->shape != tensors[i].shape) {
          return fail(ErrorCode::kInvalidArgument, "tensor '{}' is {} {} at '{}', but {} {} at '{}'", tensors[i].name,
                      model::dtype_name(tensors[i].dtype), to_string(tensors[i].shape), sources_[s].id.value(),
                      model::dtype_name(info.spec->dtype), to_string(info.spec->shape),
                      sources_[info.source].id.value());
        }
        if (has_content[name] && prefer(name, info.content)) info.content = name;
      }
    }
    return {};
  }

  // Whether the shards of one name are taken rather than those of another one of its class.
  bool prefer(std::uint32_t name, std::uint32_t over) const {
    if (over == kNone) return true;
    const auto canonical = names_.canonical(name);
    if (over == canonical || name == over) return false;
    return name == canonical || names_.name(name) < names_.name(over);
  }

  Status read_sinks() {
    for (std::size_t s = 0; s < sinks_.size(); ++s) {
      const auto& manifest = *sinks_[s].manifest;
      for (const auto& slot : manifest.slots) {
        if (slot.kind != model::SlotKind::kRaw) continue;
        auto& info = class_of(sink_names_[s][slot.tensor]);
        info.wanted = true;
        WB_TRY(check_slot(manifest.tensors[slot.tensor], slot, info, sinks_[s].id));
      }
    }
    return {};
  }

  Status check_slot(const model::TensorSpec& tensor, const model::Slot& slot, const ClassInfo& info,
                    const model::MemberId& sink) const {
    if (!info.spec) {
      return fail(ErrorCode::kInvalidArgument, "'{}' needs tensor '{}', which no source has", sink.value(),
                  tensor.name);
    }
    if (tensor.shape != info.spec->shape) {
      return fail(ErrorCode::kInvalidArgument,
                  "tensor '{}' has shape {} at source '{}', but '{}' expects {}: is it the same model?", tensor.name,
                  to_string(info.spec->shape), sources_[info.source].id.value(), sink.value(), to_string(tensor.shape));
    }
    const auto needed = model::find_cast(info.spec->dtype, tensor.dtype);
    if (needed && *needed == effective_cast(slot, info.spec->dtype, tensor.dtype)) return {};
    return fail(ErrorCode::kInvalidArgument, "tensor '{}' is {} at source '{}', but '{}' expects {} by the cast {}{}",
                tensor.name, model::dtype_name(info.spec->dtype), sources_[info.source].id.value(), sink.value(),
                model::dtype_name(tensor.dtype), model::cast_name(slot.cast),
                needed ? std::string("; the slot must ask for ") + std::string(model::cast_name(*needed))
                       : std::string("; there is no such cast"));
  }

  // A slot's cast is for the trainer's dtype. A peer's live half or a snapshot holds what the cast made already.
  static Cast effective_cast(const model::Slot& slot, model::DType from, model::DType to) {
    return from == to ? Cast::kNone : slot.cast;
  }

  Status check_unmatched() {
    std::set<std::string_view> patterns;
    for (const auto& source : sources_)
      patterns.insert(source.manifest->ignored.begin(), source.manifest->ignored.end());
    for (const auto& sink : sinks_)
      patterns.insert(sink.manifest->ignored.begin(), sink.manifest->ignored.end());
    std::vector<bool> checked(names_.size(), false);
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      for (const auto name : source_names_[s]) {
        if (checked[name]) continue;
        checked[name] = true;
        if (class_of(name).wanted) continue;
        const auto text = names_.name(name);
        if (std::any_of(patterns.begin(), patterns.end(), [&](auto p) { return model::name_matches(p, text); }))
          continue;
        return fail(ErrorCode::kInvalidArgument,
                    "tensor '{}' of '{}' matches no slot of any engine; list it as ignored if none needs it", text,
                    sources_[s].id.value());
      }
    }
    return {};
  }

  Catalog collect() {
    Catalog catalog;
    collect_shards(catalog);
    collect_slots(catalog);
    // Planned tensors in the order of their names: of (class, cast), those that have slots.
    std::vector<std::uint32_t> order;
    for (std::uint32_t id = 0; id < classes_.size(); ++id) {
      if (classes_[id].wanted) order.push_back(id);
    }
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return names_.name(a) < names_.name(b); });
    for (const auto id : order) {
      bool primary = true;
      for (std::size_t cast = 0; cast < kCasts; ++cast) {
        const auto begin = slots_begin_[id * kCasts + cast];
        const auto end = slots_begin_[id * kCasts + cast + 1];
        if (begin == end) continue;
        const auto& spec = *classes_[id].spec;
        const auto& slot = catalog.slots[begin];
        const auto dtype = sinks_[slot.sink].manifest->tensors[slot.at->tensor].dtype;
        catalog.tensors.push_back(
            {PlannedTensor{std::string(names_.name(id)), spec.dtype, dtype, static_cast<Cast>(cast), spec.shape, 1},
             primary, std::span(catalog.shards).subspan(shards_begin_[id], shards_begin_[id + 1] - shards_begin_[id]),
             std::span(catalog.slots).subspan(begin, end - begin)});
        primary = false;
      }
    }
    return catalog;
  }

  // Counting sorts: by class, and for slots by (class, cast), members in their order within.
  void collect_shards(Catalog& catalog) {
    const auto each = [&](auto&& use) {
      for (std::size_t s = 0; s < sources_.size(); ++s) {
        for (const auto& shard : sources_[s].manifest->shards) {
          const auto name = source_names_[s][shard.tensor];
          const auto& info = class_of(name);
          if (info.wanted && info.content == name && !shard.box.empty()) {
            use(names_.canonical(name), ShardRef{static_cast<std::uint32_t>(s), &shard});
          }
        }
      }
    };
    shards_begin_.assign(classes_.size() + 1, 0);
    each([&](std::uint32_t id, const ShardRef&) { ++shards_begin_[id + 1]; });
    for (std::size_t i = 1; i < shards_begin_.size(); ++i)
      shards_begin_[i] += shards_begin_[i - 1];
    catalog.shards.resize(shards_begin_.back());
    auto next = shards_begin_;
    each([&](std::uint32_t id, const ShardRef& ref) { catalog.shards[next[id]++] = ref; });
  }

  void collect_slots(Catalog& catalog) {
    const auto each = [&](auto&& use) {
      for (std::size_t s = 0; s < sinks_.size(); ++s) {
        const auto& slots = sinks_[s].manifest->slots;
        for (std::size_t i = 0; i < slots.size(); ++i) {
          if (slots[i].kind != model::SlotKind::kRaw || slots[i].box.empty()) continue;
          const auto id = names_.canonical(sink_names_[s][slots[i].tensor]);
          const auto to = sinks_[s].manifest->tensors[slots[i].tensor].dtype;
          use(id * kCasts + static_cast<std::size_t>(effective_cast(slots[i], classes_[id].spec->dtype, to)),
              SlotRef{static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(i), &slots[i]});
        }
      }
    };
    slots_begin_.assign(classes_.size() * kCasts + 1, 0);
    each([&](std::size_t key, const SlotRef&) { ++slots_begin_[key + 1]; });
    for (std::size_t i = 1; i < slots_begin_.size(); ++i)
      slots_begin_[i] += slots_begin_[i - 1];
    catalog.slots.resize(slots_begin_.back());
    auto next = slots_begin_;
    each([&](std::size_t key, const SlotRef& ref) { catalog.slots[next[key]++] = ref; });
  }

  std::span<const PlanSource> sources_;
  std::span<const PlanSink> sinks_;
  NameTable names_;
  std::vector<std::vector<std::uint32_t>> source_names_;
  std::vector<std::vector<std::uint32_t>> sink_names_;
  std::vector<ClassInfo> classes_;
  std::vector<std::uint32_t> shards_begin_;
  std::vector<std::uint32_t> slots_begin_;
};

}  // namespace

base::Result<Catalog> make_catalog(std::span<const PlanSource> sources, std::span<const PlanSink> sinks) {
  return Builder(sources, sinks).build();
}

}  // namespace weightbus::plan
