// Integer arithmetic that reports overflow instead of wrapping: for every size that comes from outside.
#pragma once

#include <concepts>
#include <limits>
#include <optional>

namespace weightbus::base {

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) noexcept {
  T sum{};
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) noexcept {
  T product{};
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// `value` rounded up to a multiple of `unit` (a power of two is not required; unit > 0).
template <std::unsigned_integral T>
[[nodiscard]] constexpr std::optional<T> checked_round_up(T value, T unit) noexcept {
  auto padded = checked_add<T>(value, unit - 1);
  if (!padded) return std::nullopt;
  return *padded / unit * unit;
}

template <std::integral To, std::integral From>
[[nodiscard]] constexpr std::optional<To> checked_cast(From value) noexcept {
  if constexpr (std::numeric_limits<From>::is_signed && !std::numeric_limits<To>::is_signed) {
    if (value < 0) return std::nullopt;
  }
  const auto converted = static_cast<To>(value);
  if (static_cast<From>(converted) != value || (converted < To{}) != (value < From{})) return std::nullopt;
  return converted;
}

}  // namespace weightbus::base
