// Versions of one engine rank on disk, for rollback and catch-up. A folder holds, for each version, an index
// (v<version>.json) and, when anything in it is new, a data file (v<version>.safetensors), which is never changed and
// to which later versions refer for what did not change. The index is written last and durably: a version is there
// whole or not at all.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/checkpoint/file.h"
#include "weightbus/checkpoint/snapshot_index.h"
#include "weightbus/device/device.h"
#include "weightbus/protocol/types.h"

namespace weightbus::checkpoint {

// Not thread safe: calls are made one after the other (capture and load may run in any thread).
class SnapshotStore {
 public:
  // Makes the folder if need be, and removes what a crash left. kConflict when another process has it open.
  static base::Result<std::unique_ptr<SnapshotStore>> open(const std::string& directory);

  // Stores a version from the live memory: `regions[i]` has manifest.region_bytes[i] bytes and must not change
  // meanwhile (kConflict when it did). Slots with the digest of the newest earlier version are not stored again. A
  // version that is stored already, with the same layout, is left as it is. kResourceExhausted: the disk is full;
  // kAborted: cancelled. After any error nothing of the version is left. Adds to control.bytes_done.
  base::Result<protocol::HeldVersion> capture(model::WeightVersion version, const model::SinkManifest& manifest,
                                              std::span<const std::byte* const> regions, device::Control& control);

  // Ascending.
  std::vector<protocol::HeldVersion> list() const;
  // Indexes that cannot be used, each error naming its file: for the log. retire() removes them.
  const std::vector<base::Error>& damaged() const noexcept { return damaged_errors_; }

  // The arena that a version was captured from; kNotFound when it is not stored. Valid until capture or retire.
  base::Result<const model::SinkManifest*> manifest(model::WeightVersion version) const;
  // Writes every slot into `regions` (sizes as manifest(version).region_bytes), constants too, and digests what was
  // written. kCorrupted names the tensor and the file; kAborted when cancelled. After an error their content is
  // undefined.
  base::Status load(model::WeightVersion version, std::span<std::byte* const> regions, device::Control& control) const;

  // Removes every version that is not in `keep`, and data files that no kept version refers to. Goes on after an error
  // and returns the first.
  base::Status retire(std::span<const model::WeightVersion> keep);

 private:
  struct Held {
    SnapshotIndex index;
    std::uint64_t bytes;  // of its own data file
  };
  using StoredByKey = std::map<std::string, StoredSlot>;

  SnapshotStore(std::string directory, File lock) : directory_(std::move(directory)), lock_(std::move(lock)) {}
  base::Status scan();
  void read_index(model::WeightVersion version);
  base::Status remove_unreferenced();
  std::string index_path(model::WeightVersion version) const;
  std::string data_path(const DataFileName& file) const;
  DataFileName unused_name(model::WeightVersion version) const;
  protocol::HeldVersion describe(const Held& held) const;
  StoredByKey newest_before(model::WeightVersion version) const;
  base::Result<std::uint64_t> write_data(const SnapshotIndex& index, const DataFileName& file,
                                         std::span<const std::byte* const> regions, device::Control& control);

  std::string directory_;
  File lock_;
  std::map<model::WeightVersion, Held> versions_;
  std::vector<model::WeightVersion> damaged_;
  std::vector<base::Error> damaged_errors_;
};

}  // namespace weightbus::checkpoint
