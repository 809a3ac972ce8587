// The digest of design section 6: it does not depend on how a tensor is cut.
//
// A tensor is seen as a row-major array of grains (1, 2, 4, 8 or 16 bytes). Each grain is mixed with its global position,
// the mixed values are summed modulo 2^64 in two lanes, seeded with name, shape, dtype and grain. This file is the CPU
// reference; a GPU kernel must agree bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weightbus/model/box.h"
#include "weightbus/model/dtype.h"
#include "weightbus/model/manifest.h"
#include "weightbus/plan/plan.h"

namespace weightbus::plan {

// The seed of a tensor: a hash of its name, shape, dtype and grain.
std::uint64_t digest_seed(std::string_view name, const model::Dims& shape, model::DType dtype,
                          std::uint32_t grain_bytes) noexcept;

// The digest of `box` of a tensor of `shape`, whose first element is at `data` and whose strides (in elements, of
// `element_bytes`) are `strides`. grain_bytes is one of 1, 2, 4, 8, 16, and divides the byte offset and length of every
// contiguous row-major run of the box (an innermost stride other than 1 requires grain_bytes <= element_bytes and
// dividing it). `data` needs no alignment. Thread safe.
Digest digest_box(const std::byte* data, const model::Dims& strides, std::uint32_t element_bytes,
                  const model::Box& box, const model::Dims& shape, std::uint64_t seed,
                  std::uint32_t grain_bytes) noexcept;

}  // namespace weightbus::plan
