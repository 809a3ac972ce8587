#include "weightbus/channel/secret.h"

#include <sodium.h>

#include "weightbus/base/assert.h"

namespace weightbus::channel {
namespace {

void initialise() noexcept {
  static const bool ready = sodium_init() >= 0;
  WB_ASSERT(ready, "libsodium finds no source of randomness on this system");
}

Secret hash(std::string_view message, const unsigned char* key, std::size_t key_size) noexcept {
  initialise();
  Secret result{};
  crypto_generichash(result.data(), result.size(), reinterpret_cast<const unsigned char*>(message.data()),
                     message.size(), key, key_size);
  return result;
}

}  // namespace

Secret hash_token(std::string_view token) noexcept { return hash(token, nullptr, 0); }

Secret prove(const Secret& key, std::string_view message) noexcept { return hash(message, key.data(), key.size()); }

bool equal_secrets(const Secret& a, const Secret& b) noexcept {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Secret random_secret() noexcept {
  initialise();
  Secret result{};
  randombytes_buf(result.data(), result.size());
  return result;
}

std::uint64_t random_number() noexcept {
  initialise();
  std::uint64_t result = 0;
  randombytes_buf(&result, sizeof result);
  return result;
}

}  // namespace weightbus::channel
