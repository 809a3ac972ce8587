// An arena as a client sees it: where each slot lies in this process, and which version is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weightbus/model/manifest.h"
#include "weightbus/protocol/types.h"

namespace weightbus::client {

// `data` is the first element of the box and stays the same over exchanges. Elements are addressed by `strides`.
struct Slot {
  std::string tensor;
  std::string parameter;
  model::DType dtype = model::DType::kU8;
  model::SlotKind kind = model::SlotKind::kRaw;
  model::Dims shape;    // of the whole tensor
  model::Box box;       // the part of it that lies here
  model::Dims strides;  // in elements
  const std::byte* data = nullptr;
  std::uint64_t span_bytes = 0;  // from the first to one past the last addressed byte; 0 for an empty box
};

// Immutable. The memory behind it belongs to the Reader and may be read only inside a step of the same version.
struct Arena {
  protocol::Tag tag;
  std::shared_ptr<const std::vector<Slot>> slots;
};

}  // namespace weightbus::client
