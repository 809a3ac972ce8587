// Bytes of descriptors and frames: little-endian numbers, strings with their length in front.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace weightbus::channel {

class Encoder {
 public:
  template <class T>
  requires std::is_unsigned_v<T>
  void number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<char>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xff));
    }
  }
  void raw(std::string_view bytes) { bytes_.append(bytes); }
  void string(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    raw(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what came from outside: past the end, everything is nullopt.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : rest_(bytes) {}
  template <class T>
  requires std::is_unsigned_v<T> std::optional<T> number() {
    const auto bytes = raw(sizeof(T));
    if (!bytes) return std::nullopt;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= std::uint64_t{static_cast<unsigned char>((*bytes)[i])} << (8 * i);
    }
    return static_cast<T>(value);
  }
  std::optional<std::string_view> raw(std::size_t size) {
    if (size > rest_.size()) return std::nullopt;
    const auto bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  std::optional<std::string_view> string(std::size_t size_max) {
    const auto size = number<std::uint32_t>();
    if (!size || *size > size_max) return std::nullopt;
    return raw(*size);
  }
  bool done() const noexcept { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace weightbus::channel
