// Tagged<Tag, Rep>: numbers and names that differ in meaning differ in type. No default, no conversion to bool, so
// rank 0 and version 0 are ordinary values; absence is std::optional.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <utility>

namespace weightbus::base {

template <class Tag, class Rep>
class Tagged {
 public:
  using rep = Rep;
  constexpr explicit Tagged(Rep value) : value_(std::move(value)) {}
  constexpr const Rep& value() const noexcept { return value_; }
  friend constexpr auto operator<=>(const Tagged&, const Tagged&) = default;
  friend constexpr bool operator==(const Tagged&, const Tagged&) = default;

 private:
  Rep value_;
};

}  // namespace weightbus::base

template <class Tag, class Rep>
struct std::hash<weightbus::base::Tagged<Tag, Rep>> {
  std::size_t operator()(const weightbus::base::Tagged<Tag, Rep>& tagged) const noexcept {
    return std::hash<Rep>{}(tagged.value());
  }
};
