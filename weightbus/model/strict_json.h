// JSON from outside: no name twice in one object, bounded depth, errors as values.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "weightbus/base/result.h"

namespace weightbus::model {

// kCorrupted says what is wrong and where. A whole document, UTF-8, without comments. Pure.
base::Result<nlohmann::json> parse_strict_json(std::string_view text, std::size_t max_depth);

// A name from outside as it may stand in a message: shortened, control characters replaced.
std::string printable(std::string_view name);

// The JSON library's reason without its prefix and without the bytes that it read.
std::string json_error_text(std::string_view what);

}  // namespace weightbus::model
