// A plan as flat tables: stored per class of equal boxes, with dimensions and strides pooled, so that its size follows
// the layout and not ranks squared. Ranges are kept as their beginning; they end where the next row's begins.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weightbus/model/box.h"
#include "weightbus/model/manifest.h"
#include "weightbus/plan/plan.h"

namespace weightbus::plan {

inline constexpr std::uint32_t kOneHolder = 0xffffffffU;

struct IndexRange {
  std::uint32_t begin;
  std::uint32_t end;
};

struct Place {
  std::uint64_t offset;
  std::uint32_t region;
  std::uint32_t strides;  // into Tables::strides
};
// A source that holds the box of a shard class.
struct Holder {
  Place at;
  std::uint32_t source;
  std::uint32_t shard_class;
};
// A sink's slot with the box of a slot class. Entries are in the order of (tensor, box, sink, slot).
struct Entry {
  Place at;
  std::uint32_t sink;
  std::uint32_t slot;
  std::uint32_t slot_class;
};
struct ShardClass {
  std::uint64_t box;
  std::uint32_t tensor;
  std::uint32_t holders;
};
struct SlotClass {
  std::uint64_t box;
  std::uint32_t tensor;
  std::uint32_t entries;
  std::uint32_t pieces;
};
// What a slot class takes from a shard class. Each entry of the slot class takes it from a holder of its own choice.
struct Piece {
  std::uint64_t box;
  std::uint32_t shard_class;
  std::uint32_t slot_class;
  std::uint32_t choices;  // into Tables::choices, one an entry; kOneHolder: there is one holder only
  std::uint32_t cells;    // into Tables::piece_cells
  std::uint32_t cell_count;
};
// Cells are disjoint; every piece is a union of them. A cell and a source that serves it make a digest unit.
struct Cell {
  std::uint64_t box;
  std::uint32_t tensor;
  std::uint32_t units;
};
struct Unit {
  std::uint32_t cell;
  std::uint32_t holder;
  std::uint32_t source;
  std::uint32_t index;  // within the source's units
};

struct TableTensor {
  PlannedTensor planned;
  bool primary;  // of the tensors of this name, the one that the version digest is made of
};

class Tables {
 public:
  std::vector<TableTensor> tensors;   // by (name, cast)
  std::vector<std::int64_t> numbers;  // boxes: offsets, then extents
  std::vector<model::Dims> strides;
  std::vector<ShardClass> shard_classes;
  std::vector<Holder> holders;
  std::vector<SlotClass> slot_classes;
  std::vector<Entry> entries;
  std::vector<Piece> pieces;
  std::vector<std::uint32_t> piece_cells;
  std::vector<std::uint32_t> choices;  // holders
  std::vector<Cell> cells;
  std::vector<Unit> units;  // of one cell by source
  // Indexes, filled by index_members().
  std::vector<std::vector<std::uint32_t>> source_holders;
  std::vector<std::vector<std::uint32_t>> source_units;
  std::vector<std::vector<std::uint32_t>> sink_entries;
  std::vector<std::uint32_t> shard_class_pieces;  // grouped by shard class
  std::vector<std::uint32_t> shard_class_pieces_begin;

  std::uint64_t add_box(const model::Box& box);
  Place add_place(const model::Placement& at);
  model::Box box(std::uint64_t at, std::uint32_t tensor) const;
  std::uint64_t volume(std::uint64_t at, std::uint32_t tensor) const;

  IndexRange holders_of(std::uint32_t shard_class) const;
  IndexRange entries_of(std::uint32_t slot_class) const;
  IndexRange pieces_of(std::uint32_t slot_class) const;
  IndexRange units_of(std::uint32_t cell) const;
  std::span<const std::uint32_t> cells_of(std::uint32_t piece) const;
  std::uint32_t chosen_holder(std::uint32_t piece, std::uint32_t entry) const;
  // The bytes of a piece as they travel.
  std::uint64_t piece_bytes(std::uint32_t piece) const;
  std::uint32_t tensor_of_piece(std::uint32_t piece) const { return slot_classes[pieces[piece].slot_class].tensor; }

  // Where `part` lies, given where the box `whole` that contains it does.
  model::Placement placement(const Place& at, const model::Box& whole, const model::Box& part,
                             std::uint32_t element_bytes) const;

  void index_members(std::size_t sources, std::size_t sinks);

 private:
  std::map<model::Dims, std::uint32_t> stride_index_;
};

}  // namespace weightbus::plan
