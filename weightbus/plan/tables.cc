#include "weightbus/plan/tables.h"

#include <algorithm>
#include <numeric>

namespace weightbus::plan {
namespace {

template <class Row, class Member>
IndexRange range(const std::vector<Row>& rows, std::uint32_t row, Member begin, std::size_t end) {
  const auto next = row + 1 < rows.size() ? rows[row + 1].*begin : static_cast<std::uint32_t>(end);
  return {rows[row].*begin, next};
}

}  // namespace

std::uint64_t Tables::add_box(const model::Box& box) {
  const std::uint64_t at = numbers.size();
  numbers.insert(numbers.end(), box.offset.begin(), box.offset.end());
  numbers.insert(numbers.end(), box.extent.begin(), box.extent.end());
  return at;
}

Place Tables::add_place(const model::Placement& at) {
  // A model has a handful of different strides.
  const auto [found, added] = stride_index_.emplace(at.strides, static_cast<std::uint32_t>(strides.size()));
  if (added) strides.push_back(at.strides);
  return {at.offset, at.region, found->second};
}

model::Box Tables::box(std::uint64_t at, std::uint32_t tensor) const {
  const auto rank = tensors[tensor].planned.shape.size();
  model::Box box;
  for (std::size_t i = 0; i < rank; ++i) {
    box.offset.push_back(numbers[at + i]);
    box.extent.push_back(numbers[at + rank + i]);
  }
  return box;
}

std::uint64_t Tables::volume(std::uint64_t at, std::uint32_t tensor) const {
  const auto rank = tensors[tensor].planned.shape.size();
  std::uint64_t volume = 1;
  for (std::size_t i = 0; i < rank; ++i)
    volume *= static_cast<std::uint64_t>(numbers[at + rank + i]);
  return volume;
}

IndexRange Tables::holders_of(std::uint32_t shard_class) const {
  return range(shard_classes, shard_class, &ShardClass::holders, holders.size());
}
IndexRange Tables::entries_of(std::uint32_t slot_class) const {
  return range(slot_classes, slot_class, &SlotClass::entries, entries.size());
}
IndexRange Tables::pieces_of(std::uint32_t slot_class) const {
  return range(slot_classes, slot_class, &SlotClass::pieces, pieces.size());
}
IndexRange Tables::units_of(std::uint32_t cell) const { return range(cells, cell, &Cell::units, units.size()); }

std::span<const std::uint32_t> Tables::cells_of(std::uint32_t piece) const {
  return std::span(piece_cells).subspan(pieces[piece].cells, pieces[piece].cell_count);
}

std::uint32_t Tables::chosen_holder(std::uint32_t piece, std::uint32_t entry) const {
  const auto& row = pieces[piece];
  if (row.choices == kOneHolder) return shard_classes[row.shard_class].holders;
  return choices[row.choices + (entry - slot_classes[row.slot_class].entries)];
}

std::uint64_t Tables::piece_bytes(std::uint32_t piece) const {
  const auto tensor = tensor_of_piece(piece);
  return volume(pieces[piece].box, tensor) * model::dtype_size(tensors[tensor].planned.dtype);
}

model::Placement Tables::placement(const Place& at, const model::Box& whole, const model::Box& part,
                                   std::uint32_t element_bytes) const {
  model::Placement place{at.region, at.offset, strides[at.strides]};
  for (std::size_t i = 0; i < part.rank(); ++i) {
    place.offset += static_cast<std::uint64_t>((part.offset[i] - whole.offset[i]) * place.strides[i]) * element_bytes;
  }
  return place;
}

void Tables::index_members(std::size_t sources, std::size_t sinks) {
  source_holders.resize(sources);
  source_units.resize(sources);
  sink_entries.resize(sinks);
  for (std::uint32_t i = 0; i < holders.size(); ++i)
    source_holders[holders[i].source].push_back(i);
  for (std::uint32_t i = 0; i < entries.size(); ++i)
    sink_entries[entries[i].sink].push_back(i);
  for (std::uint32_t i = 0; i < units.size(); ++i)
    source_units[units[i].source].push_back(i);

  shard_class_pieces_begin.assign(shard_classes.size() + 1, 0);
  for (const auto& piece : pieces)
    ++shard_class_pieces_begin[piece.shard_class + 1];
  std::partial_sum(shard_class_pieces_begin.begin(), shard_class_pieces_begin.end(), shard_class_pieces_begin.begin());
  shard_class_pieces.resize(pieces.size());
  auto next = shard_class_pieces_begin;
  for (std::uint32_t i = 0; i < pieces.size(); ++i)
    shard_class_pieces[next[pieces[i].shard_class]++] = i;
}

}  // namespace weightbus::plan
