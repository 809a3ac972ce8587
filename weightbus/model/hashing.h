// Adds the values of this folder to a hash, field by field.
#pragma once

#include "weightbus/base/hash.h"
#include "weightbus/model/box.h"
#include "weightbus/model/manifest.h"

namespace weightbus::model {

inline void add(base::Hasher& hasher, const Dims& dims) {
  hasher.add(static_cast<std::uint8_t>(dims.size()));
  for (auto value : dims)
    hasher.add(value);
}
inline void add(base::Hasher& hasher, const Box& box) {
  add(hasher, box.offset);
  add(hasher, box.extent);
}
inline void add(base::Hasher& hasher, const Placement& at) {
  hasher.add(at.region);
  hasher.add(at.offset);
  add(hasher, at.strides);
}

}  // namespace weightbus::model
