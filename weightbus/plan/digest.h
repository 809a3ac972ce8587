// The digest of design section 6: it does not depend on how a tensor is cut. This file and digest_keys.h are the CPU
// reference; a GPU kernel must agree bit for bit.
//
// Construction. A tensor is seen as the bytes of its row-major array, as 32-bit little-endian words in blocks of 1024
// words (4 KiB) counted from its first element. With w(i) the word i, b = i / 1024 and j = i % 1024, lane L is
//
//     D_L = sum over i of  R_L(b) * K_L(j) * w(i)   +   bytes * A_L        (mod 2^64)
//
//   K_L(j)  fixed odd 32-bit keys, one table a lane (digest_keys.h)
//   R_L(b)  odd 64-bit multipliers drawn from (seed, block): splitmix64(seed + (2b + L) * gamma) | 1
//   A_L     odd 64-bit, drawn from the seed, so that zeros too have a digest of their name, dtype, shape and count
//
// It is linear in the words. So a piece of a tensor is a tensor whose other bytes are zero in the sum, and digests add
// over *any* partition, down to single bytes: the result does not depend on the grain, which only says how finely boxes
// cut. A plan-grain digest and an element-grain digest of the same content are therefore equal, and one pass gives
// both. Per word it costs one 32x32->64 multiply-add a lane; R is applied once a block.
//
// What it finds, over the choice of keys (which nobody can see into the data, so the keys may be public: the digest
// detects faults, not malice):
//  - a change within one word, so any single byte or element: always, in both lanes. |d| < 2^32 and 0 < K < 2^32 make
//    K * d an integer in (-2^64, 2^64) other than 0, and R is odd, hence invertible.
//  - any change within one block (two words swapped, a run shifted): with all other keys fixed, at most one of the 2^31
//    values of one key makes the sum vanish, so 2^-31 a lane, 2^-62 for both, at worst. Two words of one block swapped:
//    always, as the keys of a lane are distinct.
//  - a change across blocks (slices or rows moved): the block sums differ by some D != 0 but for the odds above, and
//    R * D takes a given value with odds 2^(v - 63), v the trailing zeros of D. For the worst case, a sign bit moved to
//    the same place of another block, that is 2^-32 a lane and 2^-64 for both.
//  - another name, shape, dtype or length: all of R and A differ, 2^-63 a lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weightbus/model/box.h"
#include "weightbus/model/dtype.h"
#include "weightbus/model/manifest.h"
#include "weightbus/plan/plan.h"

namespace weightbus::plan {

// The seed of a tensor: a hash of its name, shape and dtype. The grain (1, 2, 4, 8 or 16) is checked and does not
// enter, so that digests of one content agree whatever the plan that asked for them (see above).
std::uint64_t digest_seed(std::string_view name, const model::Dims& shape, model::DType dtype,
                          std::uint32_t grain_bytes) noexcept;

// The digest of `box` of a tensor of `shape`, whose first element is at `data` and whose strides (in elements, of
// `element_bytes`) are `strides`. grain_bytes is one of 1, 2, 4, 8, 16, and divides the byte offset and length of every
// contiguous row-major run of the box (an innermost stride other than 1 requires grain_bytes <= element_bytes and
// dividing it). `data` needs no alignment. Thread safe. An empty box gives {0, 0}.
Digest digest_box(const std::byte* data, const model::Dims& strides, std::uint32_t element_bytes, const model::Box& box,
                  const model::Dims& shape, std::uint64_t seed, std::uint32_t grain_bytes) noexcept;

}  // namespace weightbus::plan
