// The index of one snapshot: what it holds, where each slot's bytes are stored, and their digests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/model/manifest.h"
#include "weightbus/plan/plan.h"

namespace weightbus::checkpoint {

// The name of a data file: "v3.safetensors", or "v3-1.safetensors" where the first name was taken.
struct DataFileName {
  model::WeightVersion version;  // that first stored it
  std::uint32_t copy = 0;
  std::string to_string() const;
  static std::optional<DataFileName> parse(std::string_view text);
  friend auto operator<=>(const DataFileName&, const DataFileName&) = default;
};

// The bytes of a slot, packed densely: the tensor `name` in the data file `file`.
struct StoredSlot {
  DataFileName file;
  std::string name;
  plan::Digest digest;  // at element grain
  friend bool operator==(const StoredSlot&, const StoredSlot&) = default;
};

struct SnapshotIndex {
  model::WeightVersion version;
  model::SinkManifest manifest;                  // the arena that was captured
  std::vector<std::optional<StoredSlot>> slots;  // one a slot of the manifest; none for constant and empty ones
  friend bool operator==(const SnapshotIndex&, const SnapshotIndex&) = default;
};

std::string to_json(const SnapshotIndex& index);

// Reads an index; pure. kCorrupted says what is wrong with it, kUnsupported that a newer program wrote it. The manifest
// has passed model::validate and has the layout hash that the index states.
base::Result<SnapshotIndex> parse_snapshot_index(std::string_view json);

// Whether a slot's bytes are stored: not those of constant and of empty slots.
bool is_stored(const model::Slot& slot) noexcept;

}  // namespace weightbus::checkpoint
