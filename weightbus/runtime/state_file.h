// Small files that are either as before or whole: what an agent must know after its death.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "weightbus/base/result.h"

namespace weightbus::runtime {

enum class Durability { kProcess, kMachine };  // survives the death of the process; of the machine (fsync)

// Replaces the file: written beside it as "<path>.tmp", then renamed, mode 0600. One writer a path. An error
// (kResourceExhausted: the disk is full; kPermissionDenied) leaves the file as it was.
base::Status write_file(const std::string& path, std::string_view bytes, Durability durability);

// kNotFound when there is none; kCorrupted when it has more than `max_bytes`.
base::Result<std::string> read_file(const std::string& path, std::size_t max_bytes);

}  // namespace weightbus::runtime
