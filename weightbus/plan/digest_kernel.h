// The inner loop of the digest: sums of key times word over part of one block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weightbus::plan {

struct BlockSums {
  std::uint64_t lane0 = 0;
  std::uint64_t lane1 = 0;
};

// Sums K_L(first_word + i) * word(i) over `words` little-endian words at `data` (any alignment); the words lie in one
// block. Picks the widest instructions of this CPU; every choice gives the same sums.
BlockSums sum_words(const std::byte* data, std::size_t first_word, std::size_t words) noexcept;

// The same without choosing: what every machine can run, for tests to compare with.
BlockSums sum_words_portable(const std::byte* data, std::size_t first_word, std::size_t words) noexcept;

// K_L(word), for partial words.
BlockSums word_keys(std::size_t word) noexcept;

}  // namespace weightbus::plan
