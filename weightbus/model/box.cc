#include "weightbus/model/box.h"

#include <fmt/format.h>

#include "weightbus/base/checked_math.h"

namespace weightbus::model {

std::string to_string(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ", ")); }

Dims dense_strides(const Dims& shape) {
  Dims strides = Dims::filled(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  return strides;
}

std::optional<std::uint64_t> checked_volume(const Dims& extents) noexcept {
  std::uint64_t volume = 1;
  for (auto extent : extents) {
    if (extent < 0) return std::nullopt;
  }
  for (auto extent : extents) {
    if (extent == 0) return 0;
  }
  for (auto extent : extents) {
    const auto product = base::checked_mul<std::uint64_t>(volume, static_cast<std::uint64_t>(extent));
    if (!product) return std::nullopt;
    volume = *product;
  }
  return volume;
}

std::uint64_t Box::volume() const noexcept {
  std::uint64_t volume = 1;
  for (auto size : extent)
    volume *= static_cast<std::uint64_t>(size);
  return volume;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (std::size_t i = 0; i < box.rank(); ++i) {
    text += fmt::format("{}{}:{}", i ? ", " : "", box.offset[i], box.offset[i] + box.extent[i]);
  }
  return text + "]";
}

std::optional<Box> intersect(const Box& a, const Box& b) noexcept {
  WB_ASSERT(a.rank() == b.rank(), "boxes of one tensor have its rank");
  Box common{Dims::filled(a.rank(), 0), Dims::filled(a.rank(), 0)};
  for (std::size_t i = 0; i < a.rank(); ++i) {
    const auto begin = std::max(a.offset[i], b.offset[i]);
    const auto end = std::min(a.offset[i] + a.extent[i], b.offset[i] + b.extent[i]);
    if (begin >= end) return std::nullopt;
    common.offset[i] = begin;
    common.extent[i] = end - begin;
  }
  return common;
}

bool contains(const Box& outer, const Box& inner) noexcept {
  if (outer.rank() != inner.rank()) return false;
  if (inner.empty()) return true;
  for (std::size_t i = 0; i < outer.rank(); ++i) {
    if (inner.offset[i] < outer.offset[i]) return false;
    if (inner.offset[i] + inner.extent[i] > outer.offset[i] + outer.extent[i]) return false;
  }
  return true;
}

bool fits(const Box& box, const Dims& shape) noexcept {
  if (box.offset.size() != shape.size() || box.extent.size() != shape.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (box.offset[i] < 0 || box.extent[i] < 0) return false;
    const auto end = base::checked_add(box.offset[i], box.extent[i]);
    if (!end || *end > shape[i]) return false;
  }
  return true;
}

}  // namespace weightbus::model
