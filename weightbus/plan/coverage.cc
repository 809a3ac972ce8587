#include "weightbus/plan/coverage.h"

#include <algorithm>

#include "weightbus/plan/box_index.h"

namespace weightbus::plan {

using model::Box;

std::vector<Box> subtract(const Box& whole, const Box& hole) {
  std::vector<Box> rest;
  Box middle = whole;  // what is left after the slabs on either side, one dimension after the other
  for (std::size_t d = 0; d < whole.rank(); ++d) {
    const auto begin = middle.offset[d];
    const auto end = begin + middle.extent[d];
    const auto hole_end = hole.offset[d] + hole.extent[d];
    if (begin < hole.offset[d]) {
      rest.push_back(middle);
      rest.back().extent[d] = hole.offset[d] - begin;
    }
    if (hole_end < end) {
      rest.push_back(middle);
      rest.back().offset[d] = hole_end;
      rest.back().extent[d] = end - hole_end;
    }
    middle.offset[d] = hole.offset[d];
    middle.extent[d] = hole.extent[d];
  }
  return rest;
}

std::optional<Box> cover(const Box& slot, std::vector<Covering>& parts, bool parts_disjoint) {
  if (parts_disjoint) {
    // Disjoint parts inside the slot cover it exactly when their volumes add up.
    std::uint64_t volume = 0;
    for (const auto& part : parts)
      volume += part.box.volume();
    if (volume == slot.volume()) return std::nullopt;
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.box.volume() > b.box.volume(); });
  std::vector<Covering> taken;
  std::vector<Box> missing{slot};
  for (const auto& part : parts) {
    std::vector<Box> still_missing;
    for (const auto& box : missing) {
      const auto common = intersect(box, part.box);
      if (!common) {
        still_missing.push_back(box);
        continue;
      }
      taken.push_back({part.shard, *common});
      for (auto& rest : subtract(box, *common))
        still_missing.push_back(rest);
    }
    missing = std::move(still_missing);
    if (missing.empty()) break;
  }
  if (!missing.empty()) return *std::min_element(missing.begin(), missing.end());
  std::sort(taken.begin(), taken.end(),
            [](const auto& a, const auto& b) { return a.shard != b.shard ? a.shard < b.shard : a.box < b.box; });
  parts = std::move(taken);
  return std::nullopt;
}

Refinement refine(const std::vector<Box>& boxes) {
  Refinement result;
  result.members.resize(boxes.size());
  if (BoxIndex(boxes).disjoint()) {
    result.cells = boxes;
    for (std::uint32_t i = 0; i < boxes.size(); ++i)
      result.members[i] = {i};
    return result;
  }
  for (const auto& box : boxes) {
    std::vector<Box> fresh{box};  // of this box, what no cell has yet
    std::vector<Box> cells;
    for (const auto& cell : result.cells) {
      const auto common = intersect(cell, box);
      if (!common) {
        cells.push_back(cell);
        continue;
      }
      cells.push_back(*common);
      for (auto& rest : subtract(cell, *common))
        cells.push_back(rest);
      std::vector<Box> left;
      for (const auto& part : fresh) {
        const auto met = intersect(part, *common);
        if (!met) {
          left.push_back(part);
          continue;
        }
        for (auto& rest : subtract(part, *met))
          left.push_back(rest);
      }
      fresh = std::move(left);
    }
    cells.insert(cells.end(), fresh.begin(), fresh.end());
    result.cells = std::move(cells);
  }
  std::sort(result.cells.begin(), result.cells.end());
  const BoxIndex index(result.cells);
  for (std::size_t i = 0; i < boxes.size(); ++i)
    result.members[i] = index.meeting(boxes[i]);
  return result;
}

}  // namespace weightbus::plan
