#include "weightbus/plan/reshard.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "weightbus/plan/box_index.h"
#include "weightbus/plan/coverage.h"

namespace weightbus::plan {
namespace {

using base::ErrorCode;
using base::fail;
using model::Box;

class Resharder {
 public:
  Resharder(const CatalogTensor& input, std::span<const PlanSink> sinks, Tables& tables)
      : input_(input), sinks_(sinks), tables_(tables), tensor_(static_cast<std::uint32_t>(tables.tensors.size())) {}

  base::Status run() {
    tables_.tensors.push_back({input_.planned, input_.primary});
    first_shard_class_ = static_cast<std::uint32_t>(tables_.shard_classes.size());
    first_piece_ = static_cast<std::uint32_t>(tables_.pieces.size());
    group_shards();
    const BoxIndex index(shard_boxes_);
    WB_TRY(group_slots(index));
    cut_cells(index.disjoint());
    choose_grain();
    return {};
  }

 private:
  void group_shards() {
    std::vector<const ShardRef*> refs;
    refs.reserve(input_.shards.size());
    for (const auto& ref : input_.shards)
      refs.push_back(&ref);
    // Stable: within a class by source, as the catalog lists them.
    std::stable_sort(refs.begin(), refs.end(), [](auto* a, auto* b) { return a->shard->box < b->shard->box; });
    for (const auto* ref : refs) {
      if (shard_boxes_.empty() || shard_boxes_.back() != ref->shard->box) {
        shard_boxes_.push_back(ref->shard->box);
        tables_.shard_classes.push_back(
            {tables_.add_box(ref->shard->box), tensor_, static_cast<std::uint32_t>(tables_.holders.size())});
      } else if (tables_.holders.back().source == ref->source) {
        continue;  // a rank that lists the same box twice holds it once
      }
      const auto shard_class = static_cast<std::uint32_t>(tables_.shard_classes.size() - 1);
      tables_.holders.push_back({tables_.add_place(ref->shard->at), ref->source, shard_class});
    }
  }

  base::Status group_slots(const BoxIndex& index) {
    std::vector<const SlotRef*> refs;
    refs.reserve(input_.slots.size());
    for (const auto& ref : input_.slots)
      refs.push_back(&ref);
    std::stable_sort(refs.begin(), refs.end(), [](auto* a, auto* b) { return a->at->box < b->at->box; });
    const Box* current = nullptr;
    for (const auto* ref : refs) {
      if (!current || *current != ref->at->box) {
        current = &ref->at->box;
        tables_.slot_classes.push_back({tables_.add_box(*current), tensor_,
                                        static_cast<std::uint32_t>(tables_.entries.size()),
                                        static_cast<std::uint32_t>(tables_.pieces.size())});
        WB_TRY(cut_pieces(index, *ref));
      }
      const auto slot_class = static_cast<std::uint32_t>(tables_.slot_classes.size() - 1);
      tables_.entries.push_back({tables_.add_place(ref->at->at), ref->sink, ref->slot, slot_class});
    }
    return {};
  }

  base::Status cut_pieces(const BoxIndex& index, const SlotRef& ref) {
    std::vector<Covering> parts;
    for (const auto shard : index.meeting(ref.at->box)) {
      parts.push_back({shard, *intersect(shard_boxes_[shard], ref.at->box)});
    }
    if (const auto gap = cover(ref.at->box, parts, index.disjoint())) {
      return fail(ErrorCode::kInvalidArgument, "tensor '{}': no source holds {}, which '{}' needs for the slot {}{}",
                  input_.planned.name, to_string(*gap), sinks_[ref.sink].id.value(), to_string(ref.at->box),
                  ref.at->parameter.empty() ? std::string() : " in '" + ref.at->parameter + "'");
    }
    const auto slot_class = static_cast<std::uint32_t>(tables_.slot_classes.size() - 1);
    for (const auto& part : parts) {
      piece_boxes_.push_back(part.box);
      tables_.pieces.push_back(
          {tables_.add_box(part.box), first_shard_class_ + part.shard, slot_class, kOneHolder, 0, 0});
    }
    return {};
  }

  // Pieces of different slot classes may cut one shard differently; cells are their common refinement. Pieces of
  // disjoint shards cannot meet, so each shard is refined by itself.
  void cut_cells(bool shards_disjoint) {
    std::vector<std::uint32_t> order(piece_boxes_.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto group = [&](std::uint32_t i) {
      return shards_disjoint ? tables_.pieces[first_piece_ + i].shard_class : 0;
    };
    std::sort(order.begin(), order.end(), [&](auto a, auto b) {
      if (group(a) != group(b)) return group(a) < group(b);
      const auto by_box = piece_boxes_[a] <=> piece_boxes_[b];
      return by_box != 0 ? by_box < 0 : a < b;
    });
    for (std::size_t begin = 0; begin < order.size();) {
      auto end = begin;
      while (end < order.size() && group(order[end]) == group(order[begin]))
        ++end;
      cut_group(std::span(order).subspan(begin, end - begin));
      begin = end;
    }
  }

  // `order`: pieces of one group, sorted by box.
  void cut_group(std::span<const std::uint32_t> order) {
    const auto first_cell = static_cast<std::uint32_t>(tables_.cells.size());
    std::vector<Box> boxes;
    for (const auto i : order) {
      if (boxes.empty() || boxes.back() != piece_boxes_[i]) boxes.push_back(piece_boxes_[i]);
    }
    const auto refined = refine(boxes);
    for (const auto& cell : refined.cells) {
      cell_boxes_.push_back(cell);
      tables_.cells.push_back({tables_.add_box(cell), tensor_, 0});
    }
    std::size_t box = 0;
    std::size_t previous = boxes.size();
    std::uint32_t begin = 0;
    for (const auto i : order) {
      if (piece_boxes_[i] != boxes[box]) ++box;
      if (box != previous) {
        begin = static_cast<std::uint32_t>(tables_.piece_cells.size());
        for (const auto cell : refined.members[box])
          tables_.piece_cells.push_back(first_cell + cell);
        previous = box;
      }
      auto& piece = tables_.pieces[first_piece_ + i];
      piece.cells = begin;
      piece.cell_count = static_cast<std::uint32_t>(refined.members[box].size());
    }
  }

  // The grain divides every boundary along the innermost dimension, so that grains never straddle two rows, and a box
  // may be digested row by row. Where elements lie apart in memory it is at most one element.
  void choose_grain() {
    auto& planned = tables_.tensors.back().planned;
    const auto element = model::dtype_size(planned.dtype);
    std::uint64_t bits = 16;
    const auto rank = planned.shape.size();
    if (rank == 0) bits |= element;
    for (const auto& box : cell_boxes_) {
      if (rank == 0) break;
      bits |=
          static_cast<std::uint64_t>(box.offset[rank - 1] | box.extent[rank - 1] | planned.shape[rank - 1]) * element;
    }
    const auto strided = [&](const Place& at, std::int64_t extent) {
      return rank > 0 && extent > 1 && tables_.strides[at.strides][rank - 1] != 1;
    };
    for (std::size_t c = first_shard_class_; c < tables_.shard_classes.size(); ++c) {
      const auto holders = tables_.holders_of(static_cast<std::uint32_t>(c));
      for (auto h = holders.begin; h < holders.end && rank > 0; ++h) {
        if (strided(tables_.holders[h].at, shard_boxes_[c - first_shard_class_].extent[rank - 1])) bits |= element;
      }
    }
    const auto first_entry = tables_.entries.size() - input_.slots.size();
    for (auto e = first_entry; e < tables_.entries.size() && rank > 0; ++e) {
      if (strided(tables_.entries[e].at, planned.shape[rank - 1])) bits |= element;
    }
    planned.grain_bytes = 1U << std::countr_zero(bits);
  }

  const CatalogTensor& input_;
  std::span<const PlanSink> sinks_;
  Tables& tables_;
  std::uint32_t tensor_;
  std::uint32_t first_shard_class_ = 0;
  std::uint32_t first_piece_ = 0;
  std::vector<Box> shard_boxes_;
  std::vector<Box> piece_boxes_;
  std::vector<Box> cell_boxes_;
};

}  // namespace

base::Status reshard(const CatalogTensor& tensor, std::span<const PlanSink> sinks, Tables& tables) {
  return Resharder(tensor, sinks, tables).run();
}

}  // namespace weightbus::plan
