#include "weightbus/checkpoint/layout_file.h"

#include "weightbus/checkpoint/file.h"

namespace weightbus::checkpoint {

base::Result<model::Layout> load_layout(const std::string& name_or_path) {
  constexpr std::uint64_t kMaxBytes = 4'000'000;
  const bool is_path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
  if (!is_path) return model::builtin_layout(name_or_path);
  WB_ASSIGN(const auto text, read_text(name_or_path, kMaxBytes));
  auto layout = model::parse_layout(text);
  if (!layout) return base::fail(layout.error().with(name_or_path));
  return layout;
}

}  // namespace weightbus::checkpoint
