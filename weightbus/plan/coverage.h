// Proves that boxes cover a box exactly once, or says what is missing; and cuts boxes so that they do.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weightbus/model/box.h"

namespace weightbus::plan {

// `whole` without `hole` (which lies inside it), as disjoint boxes.
std::vector<model::Box> subtract(const model::Box& whole, const model::Box& hole);

// A part of a slot, and the number of the shard it comes from.
struct Covering {
  std::uint32_t shard;
  model::Box box;
};

// Turns `parts` (intersections of a slot with shards) into disjoint parts whose union is the slot. Where shards
// overlap, the one whose part is larger gives the common elements, of equal ones the first. Returns the first box that
// no part covers, if any; `parts_disjoint` spares the search when the caller knows it.
std::optional<model::Box> cover(const model::Box& slot, std::vector<Covering>& parts, bool parts_disjoint);

// Disjoint cells such that every one of `boxes` (distinct) is a union of them; `members[i]` are the cells of box i.
struct Refinement {
  std::vector<model::Box> cells;
  std::vector<std::vector<std::uint32_t>> members;
};
Refinement refine(const std::vector<model::Box>& boxes);

}  // namespace weightbus::plan
