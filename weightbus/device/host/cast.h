// Conversions between floating-point formats, rounding to nearest even; a NaN stays a NaN, an infinity an infinity.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "weightbus/model/dtype.h"

namespace weightbus::device {

inline std::uint16_t f32_to_bf16(std::uint32_t bits) noexcept {
  // The quiet bit is set, since cutting a NaN's low mantissa off could leave an infinity.
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40U : rounded >> 16);
}

inline std::uint32_t bf16_to_f32(std::uint16_t bits) noexcept { return static_cast<std::uint32_t>(bits) << 16; }

inline std::uint16_t f32_to_f16(std::uint32_t bits) noexcept {
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  // Below 2^-14 the result is subnormal: its unit is 2^-24, which is the unit of floats in [0.5, 1), so that adding 0.5
  // lets the FPU round (to nearest even).
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  // Otherwise: 13 mantissa bits go, the exponent's bias falls by 112. A carry out of the mantissa is the next exponent.
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  const std::uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  std::uint32_t result = magnitude < 0x38800000U ? subnormal : normal;
  result = magnitude >= 0x477ff000U ? 0x7c00U : result;  // 65520 and up round to infinity
  result = magnitude > 0x7f800000U ? nan : result;
  return static_cast<std::uint16_t>(sign | result);
}

inline std::uint32_t f16_to_f32(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  // Seen as a float, the shifted bits are the value times 2^-112, subnormal or not.
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112F);
  const std::uint32_t special = 0x7f800000U | ((magnitude & 0x3ffU) << 13);
  return sign | (magnitude >= 0x7c00U ? special : finite);
}

// Converts `count` elements; the strides are bytes from one element to the next. Alignment is not needed.
// kNone is not a conversion and must not be passed.
void convert(model::Cast cast, const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride,
             std::uint64_t count) noexcept;

}  // namespace weightbus::device
