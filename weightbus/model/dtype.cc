#include "weightbus/model/dtype.h"

#include <array>

#include "weightbus/base/assert.h"

namespace weightbus::model {
namespace {

struct DTypeRow {
  DType dtype;
  std::uint32_t size;
  std::string_view name;
};
constexpr std::array<DTypeRow, 15> kDTypes{{
    {DType::kBool, 1, "BOOL"},
    {DType::kU8, 1, "U8"},
    {DType::kI8, 1, "I8"},
    {DType::kF8E4M3, 1, "F8_E4M3"},
    {DType::kF8E5M2, 1, "F8_E5M2"},
    {DType::kU16, 2, "U16"},
    {DType::kI16, 2, "I16"},
    {DType::kF16, 2, "F16"},
    {DType::kBF16, 2, "BF16"},
    {DType::kU32, 4, "U32"},
    {DType::kI32, 4, "I32"},
    {DType::kF32, 4, "F32"},
    {DType::kU64, 8, "U64"},
    {DType::kI64, 8, "I64"},
    {DType::kF64, 8, "F64"},
}};

struct CastRow {
  Cast cast;
  DType from;
  DType to;
  std::string_view name;
};
constexpr std::array<CastRow, 6> kCasts{{
    {Cast::kF32ToBF16, DType::kF32, DType::kBF16, "f32_to_bf16"},
    {Cast::kF32ToF16, DType::kF32, DType::kF16, "f32_to_f16"},
    {Cast::kBF16ToF32, DType::kBF16, DType::kF32, "bf16_to_f32"},
    {Cast::kF16ToF32, DType::kF16, DType::kF32, "f16_to_f32"},
    {Cast::kBF16ToF16, DType::kBF16, DType::kF16, "bf16_to_f16"},
    {Cast::kF16ToBF16, DType::kF16, DType::kBF16, "f16_to_bf16"},
}};

const DTypeRow& row(DType dtype) {
  for (const auto& candidate : kDTypes) {
    if (candidate.dtype == dtype) return candidate;
  }
  WB_ASSERT(false, "a DType from outside must be checked when it is decoded");
}

}  // namespace

std::uint32_t dtype_size(DType dtype) noexcept { return row(dtype).size; }
std::string_view dtype_name(DType dtype) noexcept { return row(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) noexcept {
  for (const auto& candidate : kDTypes) {
    if (candidate.name == name) return candidate.dtype;
  }
  return std::nullopt;
}

std::string_view cast_name(Cast cast) noexcept {
  for (const auto& candidate : kCasts) {
    if (candidate.cast == cast) return candidate.name;
  }
  return "none";
}

std::optional<Cast> parse_cast(std::string_view name) noexcept {
  if (name == "none") return Cast::kNone;
  for (const auto& candidate : kCasts) {
    if (candidate.name == name) return candidate.cast;
  }
  return std::nullopt;
}

std::optional<Cast> find_cast(DType from, DType to) noexcept {
  if (from == to) return Cast::kNone;
  for (const auto& candidate : kCasts) {
    if (candidate.from == from && candidate.to == to) return candidate.cast;
  }
  return std::nullopt;
}

}  // namespace weightbus::model
