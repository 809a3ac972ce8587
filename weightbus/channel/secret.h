// Tokens: hashed before they are stored or compared, compared in constant time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weightbus::channel {

using Secret = std::array<unsigned char, 32>;

// The BLAKE2b-256 hash of a token.
Secret hash_token(std::string_view token) noexcept;
// A keyed BLAKE2b-256 of `message`: proves to hold the key without sending it.
Secret prove(const Secret& key, std::string_view message) noexcept;
bool equal_secrets(const Secret& a, const Secret& b) noexcept;

// From the system's generator for secrets.
Secret random_secret() noexcept;
std::uint64_t random_number() noexcept;

inline std::string_view view(const Secret& secret) noexcept {
  return {reinterpret_cast<const char*>(secret.data()), secret.size()};
}

}  // namespace weightbus::channel
