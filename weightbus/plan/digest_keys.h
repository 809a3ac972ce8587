// The constants of the digest (digest.h): free of anything but integers, so that device code can include it.
#pragma once

#include <array>
#include <cstdint>

#include "weightbus/base/prng.h"

namespace weightbus::plan {

inline constexpr std::uint32_t kDigestWordBytes = 4;
inline constexpr std::uint32_t kDigestBlockWords = 1024;
inline constexpr std::uint32_t kDigestBlockBytes = kDigestBlockWords * kDigestWordBytes;
inline constexpr std::uint64_t kDigestGamma = 0x9e3779b97f4a7c15ULL;

struct DigestKeys {
  std::array<std::uint32_t, kDigestBlockWords> lane0{};
  std::array<std::uint32_t, kDigestBlockWords> lane1{};
};

// K_L(j): the halves of consecutive outputs of splitmix64, made odd.
constexpr DigestKeys make_digest_keys() {
  DigestKeys keys;
  for (std::uint32_t j = 0; j < kDigestBlockWords; ++j) {
    const auto random = base::splitmix64(j * kDigestGamma + 0x57656967687462ULL);
    keys.lane0[j] = static_cast<std::uint32_t>(random) | 1U;
    keys.lane1[j] = static_cast<std::uint32_t>(random >> 32) | 1U;
  }
  return keys;
}

// R_L(block).
constexpr std::uint64_t digest_multiplier(std::uint64_t seed, std::uint64_t block, std::uint32_t lane) noexcept {
  return base::splitmix64(seed + (2 * block + lane) * kDigestGamma) | 1U;
}

// A_L.
constexpr std::uint64_t digest_length_key(std::uint64_t seed, std::uint32_t lane) noexcept {
  return base::splitmix64(~seed + lane * kDigestGamma) | 1U;
}

}  // namespace weightbus::plan
