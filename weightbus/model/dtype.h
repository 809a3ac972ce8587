// Element types, named as safetensors names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weightbus::model {

// The numeric values are part of the wire protocol: append only.
enum class DType : std::uint8_t {
  kBool = 1,
  kU8 = 2,
  kI8 = 3,
  kF8E4M3 = 4,
  kF8E5M2 = 5,
  kU16 = 6,
  kI16 = 7,
  kF16 = 8,
  kBF16 = 9,
  kU32 = 10,
  kI32 = 11,
  kF32 = 12,
  kU64 = 13,
  kI64 = 14,
  kF64 = 15,
};

// Bytes of one element: 1, 2, 4 or 8.
std::uint32_t dtype_size(DType dtype) noexcept;
// The safetensors name ("BF16").
std::string_view dtype_name(DType dtype) noexcept;
std::optional<DType> parse_dtype(std::string_view name) noexcept;

// A conversion that a slot may ask for by name; without one a differing dtype is an error.
enum class Cast : std::uint8_t {
  kNone = 0,
  kF32ToBF16 = 1,
  kF32ToF16 = 2,
  kBF16ToF32 = 3,
  kF16ToF32 = 4,
  kBF16ToF16 = 5,
  kF16ToBF16 = 6
};

std::string_view cast_name(Cast cast) noexcept;  // "none", "f32_to_bf16", ...
std::optional<Cast> parse_cast(std::string_view name) noexcept;
// The cast from one dtype to another, if it is one of the named ones; kNone for equal dtypes.
std::optional<Cast> find_cast(DType from, DType to) noexcept;

}  // namespace weightbus::model
