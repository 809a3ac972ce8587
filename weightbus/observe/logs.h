// Structured logs: an event's name and fields, as text for people or as one JSON object a line.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightbus/base/result.h"

namespace weightbus::observe {

enum class Level : std::uint8_t { kDebug, kInfo, kWarn, kError };

// "debug", "info", "warn", "error"; kInvalidArgument for anything else.
base::Result<Level> parse_level(std::string_view text);
const char* level_name(Level level) noexcept;

// A key and a value. Numbers and booleans stay what they are in JSON.
class Field {
 public:
  enum class Kind : std::uint8_t { kText, kLiteral };

  Field(std::string_view key, std::string_view value) : key_(key), value_(value) {}
  Field(std::string_view key, const char* value) : Field(key, std::string_view(value)) {}
  Field(std::string_view key, const std::string& value) : Field(key, std::string_view(value)) {}
  Field(std::string_view key, bool value) : Field(key, value ? "true" : "false", Kind::kLiteral) {}
  Field(std::string_view key, double value);
  template <std::integral T>
  Field(std::string_view key, T value) : Field(key, std::to_string(value), Kind::kLiteral) {}

  std::string_view key() const noexcept { return key_; }
  const std::string& value() const noexcept { return value_; }
  Kind kind() const noexcept { return kind_; }

 private:
  Field(std::string_view key, std::string value, Kind kind) : key_(key), value_(std::move(value)), kind_(kind) {}
  std::string key_;
  std::string value_;
  Kind kind_ = Kind::kText;
};
using Fields = std::initializer_list<Field>;

struct LogOptions {
  Level level = Level::kInfo;
  bool json = false;
  // Added to every line, as {"member", "engine-0-1"}.
  std::vector<Field> common;
  // Takes each line (without a newline) instead of stderr, one at a time.
  std::function<void(const std::string&)> sink;
};

// Sets the process's log up; until then info and above goes to stderr as text. Call from main() before any thread logs.
void configure_logs(LogOptions options);

// Writes one line, from any thread. `event` is a fixed name with dots ("update.committed"); whatever varies is a field.
// Text of peers may be passed: control characters and broken UTF-8 are escaped, and a value ends after 4 KiB.
void log(Level level, std::string_view event, Fields fields = {});
bool is_logged(Level level) noexcept;

// A line as log() writes it. `time`: "2026-01-31T12:34:56.789Z".
std::string format_text(std::string_view time, Level level, std::string_view event, Fields fields,
                        const std::vector<Field>& common = {});
std::string format_json(std::string_view time, Level level, std::string_view event, Fields fields,
                        const std::vector<Field>& common = {});

}  // namespace weightbus::observe
