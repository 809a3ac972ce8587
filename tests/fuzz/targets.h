// What the fuzzers feed: one function for each parser of text from outside. Each checks, beyond not crashing, that what
// the parser accepts is what it promises; a broken promise aborts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weightbus::fuzz {

void safetensors_header(std::string_view input);
void hf_index(std::string_view input);
void model_config(std::string_view input);
void layout(std::string_view input);
void snapshot_index(std::string_view input);

}  // namespace weightbus::fuzz
