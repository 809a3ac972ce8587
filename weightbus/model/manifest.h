// Manifests: every shard of a source rank, every slot of an engine rank, with where each lies in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/model/box.h"
#include "weightbus/model/dtype.h"
#include "weightbus/model/ids.h"

namespace weightbus::model {

// A named parameter or buffer with its *global* shape.
struct TensorSpec {
  std::string name;
  DType dtype;
  Dims shape;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// Where a box lies: its first element is at `offset` bytes into region `region` of the rank; strides in elements, one a
// dimension. Strides are part of the address: a transposed or sliced tensor is packed by them, never assumed dense.
struct Placement {
  std::uint32_t region = 0;
  std::uint64_t offset = 0;
  Dims strides;
  friend bool operator==(const Placement&, const Placement&) = default;
};

struct Shard {
  std::uint32_t tensor;  // index into SourceManifest::tensors
  Box box;               // the part of the global tensor that this rank holds; may be empty
  Placement at;
  friend bool operator==(const Shard&, const Shard&) = default;
};

// The numeric values are part of the wire protocol: append only.
enum class SlotKind : std::uint8_t {
  kRaw = 1,       // written from shards
  kDerived = 2,   // computed by the engine's own post-load step
  kConstant = 3,  // filled (padding); written into both halves when the arena is made
};

struct Slot {
  std::uint32_t tensor;  // index into SinkManifest::tensors
  Box box;               // the part of the global tensor that this rank needs
  Placement at;
  SlotKind kind = SlotKind::kRaw;
  Cast cast = Cast::kNone;  // applied while writing; the spec's dtype is the dtype *after* the cast
  std::uint8_t fill = 0;    // kConstant: the byte to fill with
  std::string parameter;    // the engine's own name for where it lies ("...qkv_proj.weight"); for people
  friend bool operator==(const Slot&, const Slot&) = default;
};

// Two names for one tensor (tied weights). Both names hold the same bytes; they travel once.
struct Alias {
  std::string name;
  std::string target;
  friend bool operator==(const Alias&, const Alias&) = default;
};

struct SourceManifest {
  std::vector<TensorSpec> tensors;
  std::vector<Shard> shards;
  std::vector<std::uint64_t> region_bytes;  // size of each region that placements refer to
  std::vector<Alias> aliases;
  std::vector<std::string> ignored;  // tensor names (`*` matches any run) that no engine needs
  friend bool operator==(const SourceManifest&, const SourceManifest&) = default;
};

struct SinkManifest {
  std::vector<TensorSpec> tensors;
  std::vector<Slot> slots;
  std::vector<std::uint64_t> region_bytes;
  std::vector<Alias> aliases;
  std::vector<std::string> ignored;  // source tensor names (`*` matches any run) that this engine does not need
  friend bool operator==(const SinkManifest&, const SinkManifest&) = default;
};

// The layout hash: everything of the manifest, nothing of where its regions are mapped.
Hash128 layout_hash(const SourceManifest& manifest);
Hash128 layout_hash(const SinkManifest& manifest);

// Checks a manifest that came from outside: indices in range, boxes inside their tensors, sizes that do not overflow,
// every addressed byte inside its region, strides >= 0, no name twice, slots that do not overlap in memory.
// kInvalidArgument names the first tensor that is wrong.
base::Status validate(const SourceManifest& manifest);
base::Status validate(const SinkManifest& manifest);

// Bytes from the first to one past the last addressed byte of a box with these strides; 0 for an empty box, nullopt on
// overflow.
std::optional<std::uint64_t> span_bytes(const Box& box, const Dims& strides, std::uint32_t element_bytes) noexcept;

// `pattern` with `*` for any run of characters, against a whole name.
bool name_matches(std::string_view pattern, std::string_view name) noexcept;

// What an engine rank holds, seen as a source: its raw slots as shards (for catch-up from a peer, and snapshots).
// Of slots with equal tensor and box one is kept.
SourceManifest as_source(const SinkManifest& manifest);

}  // namespace weightbus::model
