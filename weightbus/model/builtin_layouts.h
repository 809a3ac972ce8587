// The layout files that ship with Weightbus (layouts/*.json), as text. Generated into the library by the build.
#pragma once

#include <span>
#include <string_view>

namespace weightbus::model {

struct BuiltinLayout {
  std::string_view name;
  std::string_view json;
};
std::span<const BuiltinLayout> builtin_layouts() noexcept;

}  // namespace weightbus::model
