// Checks of option values that several commands share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "weightbus/base/time.h"

namespace weightbus::cli {

// For CLI::Option::check: what is wrong with the text, or nothing.
std::function<std::string(const std::string&)> duration_check();
// A whole number without a sign. The option's own conversion would wrap -1 around.
std::function<std::string(const std::string&)> count_check();
// A duration that passed duration_check(), in milliseconds of 32 bits.
std::uint32_t duration_ms(const std::string& text);
// An absolute path, since agents have another working directory. Symbolic links stay.
std::string absolute_path(const std::string& path);

}  // namespace weightbus::cli
