// The state of decoding one frame: keeps the first error, so that conversions read straight through, and bounds what a
// small frame may grow into.
#pragma once

#include <capnp/blob.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weightbus/base/result.h"
#include "weightbus/wire/enums.h"

namespace weightbus::wire {

// A list holds at most so many elements, and all that a frame decodes to is at most kExpansion times the frame.
inline constexpr std::size_t kMaxListElements = 1U << 24;
inline constexpr std::size_t kExpansion = 16;
inline constexpr std::size_t kExpansionBase = 64U << 10;

// Whether `text` is UTF-8 without overlong forms, surrogates or NUL.
bool is_valid_text(std::string_view text) noexcept;
// `text` cut to at most `max_bytes`, each byte that does not belong to a valid character replaced by '?'.
std::string repaired_text(std::string_view text, std::size_t max_bytes);

class Reading {
 public:
  explicit Reading(std::size_t frame_bytes) noexcept : budget_(frame_bytes * kExpansion + kExpansionBase) {}

  // False once something was wrong: values read from then on mean nothing, and loops should end.
  bool ok() const noexcept { return !error_; }
  const std::optional<base::Error>& error() const noexcept { return error_; }
  void fail(base::ErrorCode code, std::string message) {
    if (!error_) error_ = base::Error{code, std::move(message)};
  }

  void require(bool present, const char* field) {
    if (!present) fail(base::ErrorCode::kCorrupted, std::string("field ") + field + " is missing");
  }
  // Text that names something, and text for people: both are checked, their limits differ.
  std::string name(capnp::Text::Reader text, const char* field);
  std::string text(capnp::Text::Reader text, const char* field);
  std::string blob(capnp::Data::Reader data, const char* field);

  // Whether a list of `count` elements, each `element_bytes` once decoded, may be made.
  bool admit(std::size_t count, std::size_t element_bytes, const char* field);

  // The enumerant with this number. An unknown one is an error (and the result then arbitrary).
  template <class E>
  E enumerant(std::uint64_t number, const char* field) {
    if (number <= 0xff && is_known(static_cast<E>(number))) return static_cast<E>(number);
    fail(base::ErrorCode::kUnsupported,
         std::string("field ") + field + " has the value " + std::to_string(number) + ", which is not known here");
    return static_cast<E>(1);
  }

 private:
  std::string checked(capnp::Text::Reader text, std::size_t max_bytes, const char* field);

  std::size_t budget_;
  std::optional<base::Error> error_;
};

}  // namespace weightbus::wire
