// 128-bit content hash (XXH3) for layout hashes and plan hashes. Not cryptographic: it detects difference, not malice.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace weightbus::base {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
  // 32 lower-case hexadecimal digits.
  std::string to_string() const;
  static std::optional<Hash128> parse(std::string_view text);
};

Hash128 hash128(const void* data, std::size_t size) noexcept;

// Incremental hashing of typed fields: strings are length-prefixed, so that ("ab","c") and ("a","bc") differ.
class Hasher {
 public:
  void add(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    buffer_.append(text);
  }
  void add(const char* text) { add(std::string_view(text)); }
  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void add(T value) {
    const auto wide = static_cast<std::uint64_t>(value);
    for (int shift = 0; shift < 64; shift += 8)
      buffer_.push_back(static_cast<char>((wide >> shift) & 0xff));
  }
  void add(const Hash128& hash) {
    add(hash.high);
    add(hash.low);
  }
  Hash128 finish() const noexcept { return hash128(buffer_.data(), buffer_.size()); }

 private:
  std::string buffer_;
};

}  // namespace weightbus::base

template <>
struct std::hash<weightbus::base::Hash128> {
  std::size_t operator()(const weightbus::base::Hash128& value) const noexcept {
    return static_cast<std::size_t>(value.high ^ value.low);
  }
};
