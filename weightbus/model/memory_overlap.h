// Whether strided boxes share a byte of memory: without enumerating their elements, so that a manifest of any size is
// checked in about n log n.
#pragma once

#include <cstdint>
#include <vector>

#include "weightbus/model/box.h"

namespace weightbus::model {

// The bytes that a strided box addresses, as nested repetitions: outermost first, ending in a run of single bytes.
struct Footprint {
  struct Level {
    std::int64_t stride;  // bytes from one repetition to the next
    std::int64_t count;
  };
  std::int64_t begin = 0;  // byte offset in the region
  std::vector<Level> levels;
};

// The footprint of a box that is not empty, whose span has been checked to end below 2^63.
Footprint footprint(const Box& box, std::uint64_t offset, const Dims& strides, std::uint32_t element_bytes);

// Whether each element has bytes of its own: stride 0, or rows that run into each other, do not.
bool self_overlaps(const Footprint& footprint);

// Whether the two share a byte. Both must not overlap themselves. Says true when that cannot be decided within a
// bounded number of steps (two strides that have nothing to do with each other).
bool overlap(const Footprint& a, const Footprint& b);

}  // namespace weightbus::model
