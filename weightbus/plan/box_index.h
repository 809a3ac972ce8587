// Finds which of many boxes meet a given one, by a sweep along the dimension that splits them most.
#pragma once

#include <cstdint>
#include <vector>

#include "weightbus/model/box.h"

namespace weightbus::plan {

class BoxIndex {
 public:
  // Boxes of one rank, none empty; borrowed.
  explicit BoxIndex(const std::vector<model::Box>& boxes);

  // Whether no two of them share an element.
  bool disjoint() const { return disjoint_; }
  // The numbers of the boxes that share an element with `box`, ascending.
  std::vector<std::uint32_t> meeting(const model::Box& box) const;

 private:
  void choose_dimension();
  bool check_disjoint() const;
  std::int64_t begin(std::uint32_t i) const { return boxes_[i].offset[dimension_]; }
  std::int64_t end(std::uint32_t i) const { return begin(i) + boxes_[i].extent[dimension_]; }

  const std::vector<model::Box>& boxes_;
  std::size_t dimension_ = 0;
  std::vector<std::uint32_t> order_;    // by beginning along the dimension
  std::vector<std::int64_t> furthest_;  // the largest end of any box up to here in that order
  bool disjoint_ = true;
};

}  // namespace weightbus::plan
