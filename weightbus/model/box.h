// A box: an N-dimensional half-open range of a tensor, and small fixed-capacity vectors of its dimensions.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "weightbus/base/assert.h"

namespace weightbus::model {

inline constexpr std::size_t kMaxDims = 8;

// Up to kMaxDims signed numbers (offsets, extents or strides), stored inline. Rank 0 is ordinary: a scalar.
class Dims {
 public:
  constexpr Dims() = default;
  constexpr Dims(std::initializer_list<std::int64_t> values) {
    for (auto value : values)
      push_back(value);
  }
  static constexpr Dims filled(std::size_t rank, std::int64_t value) {
    Dims dims;
    for (std::size_t i = 0; i < rank; ++i)
      dims.push_back(value);
    return dims;
  }
  constexpr void push_back(std::int64_t value) {
    WB_ASSERT(rank_ < kMaxDims, "more than 8 dimensions must be refused where they enter");
    values_[rank_++] = value;
  }
  constexpr std::size_t size() const noexcept { return rank_; }
  constexpr std::int64_t operator[](std::size_t i) const noexcept { return values_[i]; }
  constexpr std::int64_t& operator[](std::size_t i) noexcept { return values_[i]; }
  constexpr const std::int64_t* begin() const noexcept { return values_.data(); }
  constexpr const std::int64_t* end() const noexcept { return values_.data() + rank_; }
  friend constexpr bool operator==(const Dims& a, const Dims& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend constexpr auto operator<=>(const Dims& a, const Dims& b) noexcept {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<std::int64_t, kMaxDims> values_{};
  std::uint8_t rank_ = 0;
};

// "[2, 3]"
std::string to_string(const Dims& dims);

// Row-major strides in elements of a dense array of this shape.
Dims dense_strides(const Dims& shape);

// The product of the extents, or nullopt when one is negative or the product overflows. Rank 0 gives 1.
std::optional<std::uint64_t> checked_volume(const Dims& extents) noexcept;

struct Box {
  Dims offset;
  Dims extent;  // as many as offset; each >= 0

  static Box whole(const Dims& shape) { return Box{Dims::filled(shape.size(), 0), shape}; }
  std::size_t rank() const noexcept { return extent.size(); }
  // Elements inside; the extents must have been checked (checked_volume) where they entered.
  std::uint64_t volume() const noexcept;
  bool empty() const noexcept { return volume() == 0; }
  friend bool operator==(const Box&, const Box&) = default;
  friend auto operator<=>(const Box&, const Box&) = default;
};

// "[0:2, 4:8]"
std::string to_string(const Box& box);

// The common part of two boxes of the same rank; nullopt when it is empty. Two scalars intersect in the scalar.
std::optional<Box> intersect(const Box& a, const Box& b) noexcept;

// Whether `inner` lies wholly inside `outer`; an empty inner box does.
bool contains(const Box& outer, const Box& inner) noexcept;

// Whether the box is a valid range of a tensor of this shape: equal rank, nothing negative, nothing past the end.
bool fits(const Box& box, const Dims& shape) noexcept;

}  // namespace weightbus::model
