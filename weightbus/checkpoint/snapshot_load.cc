// Reading a snapshot back into an arena, each slot proved as it lies there.
#include <map>

#include "weightbus/checkpoint/safetensors.h"
#include "weightbus/checkpoint/slot_bytes.h"
#include "weightbus/checkpoint/snapshot_store.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;
using model::WeightVersion;

// A data file, opened once for all slots that refer to it.
struct DataFile {
  SafetensorsFile file;
  std::map<std::string, const TensorEntry*, std::less<>> entries;
};

class Loader {
 public:
  Loader(WeightVersion version, std::string directory, device::Control& control)
      : version_(version), directory_(std::move(directory)), control_(control) {}

  base::Status fill(const model::TensorSpec& spec, const model::Slot& slot, std::byte* region) {
    const auto element = model::dtype_size(spec.dtype);
    const auto write = [&](const SlotPiece& piece) -> base::Status {
      WB_TRY(check_cancelled(control_, "the load", version_));
      buffer_.assign(piece.bytes, static_cast<std::byte>(slot.fill));
      scatter(slot, piece, element, buffer_.data(), region);
      return {};
    };
    return for_each_piece(slot, element, kPieceBytes, write);
  }

  base::Status read(const model::TensorSpec& spec, const model::Slot& slot, const StoredSlot& stored,
                    std::byte* region) {
    WB_ASSIGN(const auto* data, open(stored.file));
    const auto found = data->entries.find(stored.name);
    const model::TensorSpec expected{stored.name, spec.dtype, slot.box.extent};
    if (found == data->entries.end() || found->second->spec != expected) {
      return base::fail(ErrorCode::kCorrupted, "snapshot of version {}: {} does not hold tensor {} as it was stored",
                        version_.value(), data->file.path(), stored.name);
    }
    const auto& entry = *found->second;
    const SlotDigester digester(spec, slot);
    const bool dense = is_dense(slot);
    plan::Digest digest;
    const auto place = [&](const SlotPiece& piece) -> base::Status {
      WB_TRY(check_cancelled(control_, "the load", version_));
      if (dense) {
        auto* to = region + piece_offset(slot, piece, digester.element_bytes());
        WB_TRY(data->file.read(entry, piece.offset, {to, piece.bytes}));
      } else {
        buffer_.resize(piece.bytes);
        WB_TRY(data->file.read(entry, piece.offset, buffer_));
        scatter(slot, piece, digester.element_bytes(), buffer_.data(), region);
      }
      digest = digest + digester.in_region(piece, region);
      control_.bytes_done.fetch_add(piece.bytes, std::memory_order_relaxed);
      return {};
    };
    WB_TRY(for_each_piece(slot, digester.element_bytes(), kPieceBytes, place));
    if (digest == stored.digest) return {};
    return base::fail(ErrorCode::kCorrupted,
                      "snapshot of version {}: tensor {} in {} is not what was captured: its digest differs",
                      version_.value(), stored.name, data->file.path());
  }

 private:
  base::Result<const DataFile*> open(const DataFileName& name) {
    if (const auto known = files_.find(name); known != files_.end()) return &known->second;
    auto file = SafetensorsFile::open(directory_ + "/" + name.to_string());
    if (!file) return base::fail(file.error().with(fmt::format("snapshot of version {}", version_.value())));
    auto& data = files_.emplace(name, DataFile{std::move(*file), {}}).first->second;
    for (const auto& entry : data.file.tensors())
      data.entries.emplace(entry.spec.name, &entry);
    return &data;
  }

  WeightVersion version_;
  std::string directory_;
  device::Control& control_;
  std::map<DataFileName, DataFile> files_;
  std::vector<std::byte> buffer_;
};

}  // namespace

base::Status SnapshotStore::load(WeightVersion version, std::span<std::byte* const> regions,
                                 device::Control& control) const {
  WB_TRY(manifest(version));
  const auto& index = versions_.at(version).index;
  WB_TRY(check_region_count(index.manifest, regions.size()));
  Loader loader(version, directory_, control);
  for (std::size_t i = 0; i < index.slots.size(); ++i) {
    const auto& slot = index.manifest.slots[i];
    if (slot.box.empty()) continue;
    const auto& spec = index.manifest.tensors[slot.tensor];
    auto* region = regions[slot.at.region];
    WB_TRY(index.slots[i] ? loader.read(spec, slot, *index.slots[i], region) : loader.fill(spec, slot, region));
  }
  return {};
}

}  // namespace weightbus::checkpoint
