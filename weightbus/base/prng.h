// A small seeded generator for simulations and generated test data; never for secrets.
#pragma once

#include <cstdint>

namespace weightbus::base {

// One step of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
constexpr std::uint64_t splitmix64(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Prng {
 public:
  constexpr explicit Prng(std::uint64_t seed) noexcept : state_(splitmix64(seed)) {}
  constexpr std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15ULL;
    return splitmix64(state_);
  }
  // Uniform in [0, bound); bound > 0. The bias of the modulo is below bound / 2^64.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept { return next() % bound; }
  // True with `percent` percent probability.
  constexpr bool chance(std::uint64_t percent) noexcept { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

}  // namespace weightbus::base
