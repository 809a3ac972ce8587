#include "weightbus/plan/box_index.h"

#include <algorithm>
#include <numeric>

namespace weightbus::plan {

BoxIndex::BoxIndex(const std::vector<model::Box>& boxes) : boxes_(boxes), order_(boxes.size()) {
  std::iota(order_.begin(), order_.end(), 0U);
  if (boxes_.size() < 2) return;
  if (boxes_[0].rank() == 0) {
    disjoint_ = false;  // a scalar has one element, which both are
    return;
  }
  choose_dimension();
  std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) { return begin(a) < begin(b); });
  furthest_.reserve(order_.size());
  for (const auto i : order_)
    furthest_.push_back(furthest_.empty() ? end(i) : std::max(furthest_.back(), end(i)));
  disjoint_ = check_disjoint();
}

void BoxIndex::choose_dimension() {
  std::size_t most = 0;
  std::vector<std::int64_t> offsets(boxes_.size());
  for (std::size_t d = 0; d < boxes_[0].rank(); ++d) {
    for (std::size_t i = 0; i < boxes_.size(); ++i)
      offsets[i] = boxes_[i].offset[d];
    std::sort(offsets.begin(), offsets.end());
    const auto distinct = static_cast<std::size_t>(std::unique(offsets.begin(), offsets.end()) - offsets.begin());
    if (distinct > most) {
      most = distinct;
      dimension_ = d;
    }
  }
}

bool BoxIndex::check_disjoint() const {
  std::vector<std::uint32_t> active;  // those that reach past the current beginning
  for (const auto i : order_) {
    std::erase_if(active, [&](auto a) { return end(a) <= begin(i); });
    for (const auto a : active) {
      if (intersect(boxes_[a], boxes_[i])) return false;
    }
    active.push_back(i);
  }
  return true;
}

std::vector<std::uint32_t> BoxIndex::meeting(const model::Box& box) const {
  std::vector<std::uint32_t> found;
  std::size_t from = 0;
  std::size_t to = order_.size();
  if (!furthest_.empty()) {
    const auto low = box.offset[dimension_];
    const auto high = low + box.extent[dimension_];
    from = static_cast<std::size_t>(std::upper_bound(furthest_.begin(), furthest_.end(), low) - furthest_.begin());
    to = static_cast<std::size_t>(
        std::lower_bound(order_.begin(), order_.end(), high, [&](auto i, auto value) { return begin(i) < value; }) -
        order_.begin());
  }
  for (auto at = from; at < to; ++at) {
    if (intersect(boxes_[order_[at]], box)) found.push_back(order_[at]);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace weightbus::plan
