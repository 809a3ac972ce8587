#include "weightbus/plan/digest_kernel.h"

#include <bit>
#include <cstring>

#include "weightbus/plan/digest_keys.h"

namespace weightbus::plan {
namespace {

static_assert(std::endian::native == std::endian::little, "the digest reads words as little-endian");

alignas(64) constexpr DigestKeys kKeys = make_digest_keys();

// A plain loop, inlined into one function for each instruction set, so that the compiler vectorises each its own way.
// Words are taken in pairs (even, odd), since vector units multiply the even 32-bit halves of their lanes.
[[gnu::always_inline]] inline BlockSums sum_pairs(const std::byte* data, std::size_t first_word, std::size_t words) {
  BlockSums sums;
  const auto* key0 = kKeys.lane0.data() + first_word;
  const auto* key1 = kKeys.lane1.data() + first_word;
  const std::size_t pairs = words / 2;
  for (std::size_t i = 0; i < pairs; ++i) {
    std::uint64_t data_pair;
    std::uint64_t key0_pair;
    std::uint64_t key1_pair;
    std::memcpy(&data_pair, data + 8 * i, 8);
    std::memcpy(&key0_pair, key0 + 2 * i, 8);
    std::memcpy(&key1_pair, key1 + 2 * i, 8);
    sums.lane0 += (data_pair & 0xffffffffU) * (key0_pair & 0xffffffffU) + (data_pair >> 32) * (key0_pair >> 32);
    sums.lane1 += (data_pair & 0xffffffffU) * (key1_pair & 0xffffffffU) + (data_pair >> 32) * (key1_pair >> 32);
  }
  if (words % 2 != 0) {
    std::uint32_t word;
    std::memcpy(&word, data + 8 * pairs, 4);
    sums.lane0 += std::uint64_t{word} * key0[words - 1];
    sums.lane1 += std::uint64_t{word} * key1[words - 1];
  }
  return sums;
}

using Kernel = BlockSums (*)(const std::byte*, std::size_t, std::size_t);

[[gnu::target("avx2")]] BlockSums sum_avx2(const std::byte* data, std::size_t first_word, std::size_t words) {
  return sum_pairs(data, first_word, words);
}
[[gnu::target("avx512f,prefer-vector-width=512")]] BlockSums sum_avx512(const std::byte* data, std::size_t first_word,
                                                                        std::size_t words) {
  return sum_pairs(data, first_word, words);
}

// Chosen by hand and not by an ifunc: resolvers of those run before the sanitizers are ready.
Kernel choose() noexcept {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return sum_avx512;
  if (__builtin_cpu_supports("avx2")) return sum_avx2;
  return sum_words_portable;
}

}  // namespace

BlockSums sum_words_portable(const std::byte* data, std::size_t first_word, std::size_t words) noexcept {
  return sum_pairs(data, first_word, words);
}

BlockSums sum_words(const std::byte* data, std::size_t first_word, std::size_t words) noexcept {
  static const Kernel kernel = choose();
  return kernel(data, first_word, words);
}

BlockSums word_keys(std::size_t word) noexcept { return {kKeys.lane0[word], kKeys.lane1[word]}; }

}  // namespace weightbus::plan
