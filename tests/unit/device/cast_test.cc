#include "weightbus/device/host/cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "weightbus/base/prng.h"

namespace weightbus::device {
namespace {

using model::Cast;

// The value of a format with `mantissa` bits below the point and exponent bias `bias`, in double arithmetic.
double value_of(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const std::uint32_t mantissa = bits & ((1U << mantissa_bits) - 1);
  const std::uint32_t exponent = (bits >> mantissa_bits) & ((1U << exponent_bits) - 1);
  const double sign = (bits >> (exponent_bits + mantissa_bits)) & 1U ? -1.0 : 1.0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1U << exponent_bits) - 1) {
    return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias)
                               : std::ldexp(1.0 + fraction, static_cast<int>(exponent) - bias));
}
double f16_value(std::uint16_t bits) { return value_of(bits, 5, 10); }
double bf16_value(std::uint16_t bits) { return value_of(bits, 8, 7); }

// Round to nearest even by search: the neighbour whose value is closest, the even one on a tie. The largest finite
// value's upper neighbour counts as the next power of two.
template <class Value>
std::uint16_t nearest(double x, std::uint16_t infinity, int exponent_bits, Value value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double magnitude = std::fabs(x);
  std::uint16_t low = 0;
  std::uint16_t high = infinity;
  const double top = std::ldexp(1.0, 1 << (exponent_bits - 1));
  const auto of = [&](std::uint16_t bits) { return bits == infinity ? top : value(bits); };
  if (magnitude >= top) return sign | infinity;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (of(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - of(low);
  const double above = of(high) - magnitude;
  const bool up = above < below || (above == below && low % 2 == 1);
  return static_cast<std::uint16_t>(sign | (up ? high : low));
}
std::uint16_t nearest_f16(double x) { return nearest(x, 0x7c00, 5, f16_value); }
std::uint16_t nearest_bf16(double x) { return nearest(x, 0x7f80, 8, bf16_value); }

bool f16_nan(std::uint16_t bits) { return (bits & 0x7fff) > 0x7c00; }
bool bf16_nan(std::uint16_t bits) { return (bits & 0x7fff) > 0x7f80; }

template <class To, class From>
std::vector<To> convert_all(Cast cast, const std::vector<From>& in) {
  std::vector<To> out(in.size());
  convert(cast, reinterpret_cast<const std::byte*>(in.data()), sizeof(From), reinterpret_cast<std::byte*>(out.data()),
          sizeof(To), in.size());
  return out;
}

std::vector<std::uint16_t> all_16_bits() {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<std::uint16_t>(i);
  return all;
}

TEST(Cast, WidensEveryHalfAndBFloatExactly) {
  const auto all = all_16_bits();
  const auto halves = convert_all<float>(Cast::kF16ToF32, all);
  const auto bfloats = convert_all<float>(Cast::kBF16ToF32, all);
  for (const auto bits : all) {
    if (f16_nan(bits)) {
      ASSERT_TRUE(std::isnan(halves[bits])) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(halves[bits]), f16_value(bits)) << bits;
      ASSERT_EQ(std::signbit(halves[bits]), bits >= 0x8000) << bits;
    }
    if (bf16_nan(bits)) {
      ASSERT_TRUE(std::isnan(bfloats[bits])) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(bfloats[bits]), bf16_value(bits)) << bits;
    }
  }
}

TEST(Cast, WideningAndNarrowingAgainGivesEveryValueBack) {
  const auto all = all_16_bits();
  const auto halves = convert_all<std::uint16_t>(Cast::kF32ToF16, convert_all<std::uint32_t>(Cast::kF16ToF32, all));
  const auto bfloats = convert_all<std::uint16_t>(Cast::kF32ToBF16, convert_all<std::uint32_t>(Cast::kBF16ToF32, all));
  for (const auto bits : all) {
    ASSERT_TRUE(f16_nan(bits) ? f16_nan(halves[bits]) : halves[bits] == bits) << bits;
    ASSERT_TRUE(bf16_nan(bits) ? bf16_nan(bfloats[bits]) : bfloats[bits] == bits) << bits;
  }
}

TEST(Cast, BetweenTheTwoShortFormatsRoundsToNearestEven) {
  const auto all = all_16_bits();
  const auto to_half = convert_all<std::uint16_t>(Cast::kBF16ToF16, all);
  const auto to_bfloat = convert_all<std::uint16_t>(Cast::kF16ToBF16, all);
  for (const auto bits : all) {
    if (bf16_nan(bits)) {
      ASSERT_TRUE(f16_nan(to_half[bits])) << bits;
    } else {
      ASSERT_EQ(to_half[bits], nearest_f16(bf16_value(bits))) << bits;
    }
    if (f16_nan(bits)) {
      ASSERT_TRUE(bf16_nan(to_bfloat[bits])) << bits;
    } else {
      ASSERT_EQ(to_bfloat[bits], nearest_bf16(f16_value(bits))) << bits;
    }
  }
}

// Around every short value: the value itself, the midpoint to the next one, and one float to either side of both.
TEST(Cast, NarrowingRoundsToNearestEvenAroundEveryValueAndMidpoint) {
  std::vector<std::uint32_t> inputs;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = f16_to_f32(static_cast<std::uint16_t>(bits));
    for (std::uint32_t around : {half, half + 0x1000U, bits << 16, (bits << 16) + 0x8000U}) {
      inputs.insert(inputs.end(), {around - 1, around, around + 1});
    }
  }
  base::Prng prng(7);
  for (int i = 0; i < 100000; ++i)
    inputs.push_back(static_cast<std::uint32_t>(prng.next()));
  const auto halves = convert_all<std::uint16_t>(Cast::kF32ToF16, inputs);
  const auto bfloats = convert_all<std::uint16_t>(Cast::kF32ToBF16, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto value = std::bit_cast<float>(inputs[i]);
    if (std::isnan(value)) {
      ASSERT_TRUE(f16_nan(halves[i]) && bf16_nan(bfloats[i])) << inputs[i];
      continue;
    }
    ASSERT_EQ(halves[i], nearest_f16(value)) << inputs[i];
    ASSERT_EQ(bfloats[i], nearest_bf16(value)) << inputs[i];
  }
}

TEST(Cast, FollowsStridesOnBothSides) {
  const std::vector<float> in{1.0F, -9.0F, 2.0F, -9.0F, 3.0F, -9.0F};
  std::vector<std::uint16_t> out(9, 0xffff);
  convert(Cast::kF32ToBF16, reinterpret_cast<const std::byte*>(in.data()), 8, reinterpret_cast<std::byte*>(out.data()),
          6, 3);
  EXPECT_EQ(out, (std::vector<std::uint16_t>{0x3f80, 0xffff, 0xffff, 0x4000, 0xffff, 0xffff, 0x4040, 0xffff, 0xffff}));
}

}  // namespace
}  // namespace weightbus::device
