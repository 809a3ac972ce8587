#include "weightbus/wire/reading.h"

#include <fmt/format.h>

#include "weightbus/base/checked_math.h"
#include "weightbus/wire/codec.h"

namespace weightbus::wire {
namespace {

// Bytes of the character that `text` starts with, or 0 when it is not a valid one.
std::size_t character_bytes(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return first == 0 ? 0 : 1;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0U) != 0x80) return 0;
  }
  // The second byte tells overlong forms, surrogates and what lies past U+10FFFF.
  const unsigned second = at(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
  return bytes;
}

}  // namespace

bool is_valid_text(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string repaired_text(std::string_view text, std::size_t max_bytes) {
  std::string repaired;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (repaired.size() + (bytes == 0 ? 1 : bytes) > max_bytes) break;
    if (bytes == 0) {
      repaired.push_back('?');
      text.remove_prefix(1);
    } else {
      repaired.append(text.substr(0, bytes));
      text.remove_prefix(bytes);
    }
  }
  return repaired;
}

std::string Reading::checked(capnp::Text::Reader text, std::size_t max_bytes, const char* field) {
  const std::string_view view(text.begin(), text.size());
  if (view.size() > max_bytes) {
    fail(base::ErrorCode::kCorrupted,
         fmt::format("field {} holds {} bytes of text; at most {} are allowed", field, view.size(), max_bytes));
    return {};
  }
  if (!is_valid_text(view)) {
    fail(base::ErrorCode::kCorrupted, fmt::format("field {} is not valid UTF-8 text without NUL", field));
    return {};
  }
  return std::string(view);
}

std::string Reading::name(capnp::Text::Reader text, const char* field) { return checked(text, kMaxNameBytes, field); }

std::string Reading::text(capnp::Text::Reader text, const char* field) { return checked(text, kMaxTextBytes, field); }

std::string Reading::blob(capnp::Data::Reader data, const char* field) {
  if (data.size() > kMaxTextBytes) {
    fail(base::ErrorCode::kCorrupted,
         fmt::format("field {} holds {} bytes; at most {} are allowed", field, data.size(), kMaxTextBytes));
    return {};
  }
  return std::string(reinterpret_cast<const char*>(data.begin()), data.size());
}

bool Reading::admit(std::size_t count, std::size_t element_bytes, const char* field) {
  if (!ok()) return false;
  const auto bytes = base::checked_mul<std::size_t>(count, element_bytes);
  if (count > kMaxListElements || !bytes || *bytes > budget_) {
    fail(base::ErrorCode::kCorrupted,
         fmt::format("list {} claims {} elements, more than a frame of this size may hold", field, count));
    return false;
  }
  budget_ -= *bytes;
  return true;
}

}  // namespace weightbus::wire
