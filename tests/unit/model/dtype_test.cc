#include "weightbus/model/dtype.h"

#include <gtest/gtest.h>

#include <string>

namespace weightbus::model {
namespace {

TEST(DType, NamesAreReadBackAndSizesFollowThem) {
  for (int value = 1; value <= 15; ++value) {
    const auto dtype = static_cast<DType>(value);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    const auto name = std::string(dtype_name(dtype));
    const std::uint32_t size = name.find("64") != name.npos   ? 8
                               : name.find("32") != name.npos ? 4
                               : name.find("16") != name.npos ? 2
                                                              : 1;
    EXPECT_EQ(dtype_size(dtype), size) << name;
  }
  EXPECT_EQ(parse_dtype("bf16"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

TEST(DType, CastsAreFoundByTheirEndsAndNames) {
  EXPECT_EQ(find_cast(DType::kF32, DType::kBF16), Cast::kF32ToBF16);
  EXPECT_EQ(find_cast(DType::kF32, DType::kF32), Cast::kNone);
  EXPECT_EQ(find_cast(DType::kI8, DType::kF32), std::nullopt);
  for (int value = 0; value <= 6; ++value) {
    const auto cast = static_cast<Cast>(value);
    EXPECT_EQ(parse_cast(cast_name(cast)), cast);
  }
  EXPECT_EQ(parse_cast("f32_to_i8"), std::nullopt);
}

}  // namespace
}  // namespace weightbus::model
