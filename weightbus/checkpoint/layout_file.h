// Layouts by name or by file.
#pragma once

#include <string>

#include "weightbus/base/result.h"
#include "weightbus/model/layout.h"

namespace weightbus::checkpoint {

// A shipped layout's name, or else (when it contains a slash or ends in ".json") the path of a layout file. Errors name
// the file.
base::Result<model::Layout> load_layout(const std::string& name_or_path);

}  // namespace weightbus::checkpoint
