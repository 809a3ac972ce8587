#include "weightbus/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

namespace weightbus::base {

std::string Hash128::to_string() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<Hash128> Hash128::parse(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  Hash128 hash;
  const auto part = [&](std::string_view digits, std::uint64_t& out) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out, 16);
    return error == std::errc{} && end == digits.data() + digits.size();
  };
  if (!part(text.substr(0, 16), hash.high) || !part(text.substr(16), hash.low)) return std::nullopt;
  return hash;
}

Hash128 hash128(const void* data, std::size_t size) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return Hash128{hash.high64, hash.low64};
}

}  // namespace weightbus::base
