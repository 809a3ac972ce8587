#include "weightbus/checkpoint/snapshot_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "weightbus/checkpoint/safetensors.h"
#include "weightbus/checkpoint/slot_bytes.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;
using model::WeightVersion;
namespace fs = std::filesystem;

constexpr std::uint64_t kMaxIndexBytes = 256ULL << 20;
constexpr std::string_view kIndexExtension = ".json";

// "v12.json" is the index of version 12; other names are not ours.
std::optional<WeightVersion> index_version(std::string_view name) {
  if (!name.ends_with(kIndexExtension)) return std::nullopt;
  name.remove_suffix(kIndexExtension.size());
  const auto file = DataFileName::parse(std::string(name) + ".safetensors");
  return file && file->copy == 0 ? std::optional(file->version) : std::nullopt;
}

// Two slots with this key hold the same part of the same tensor.
std::string key_of(const model::TensorSpec& spec, const model::Box& box) {
  return fmt::format("{}\n{}{}{}", spec.name, model::dtype_name(spec.dtype), model::to_string(spec.shape),
                     model::to_string(box));
}

std::string stored_name(const model::TensorSpec& spec, const model::Box& box) {
  return box == model::Box::whole(spec.shape) ? spec.name : spec.name + model::to_string(box);
}

// Digests live memory; every slot with the same key must hold the same bytes.
base::Result<SnapshotIndex> digest_live(const DataFileName& file, const model::SinkManifest& manifest,
                                        std::span<const std::byte* const> regions, device::Control& control) {
  SnapshotIndex index{file.version, manifest, {}};
  std::map<std::string, plan::Digest> seen;
  for (const auto& slot : manifest.slots) {
    index.slots.emplace_back();
    if (!is_stored(slot)) continue;
    const SlotDigester digester(manifest.tensors[slot.tensor], slot);
    plan::Digest digest;
    const auto add = [&](const SlotPiece& piece) -> base::Status {
      WB_TRY(check_cancelled(control, "the capture", file.version));
      digest = digest + digester.in_region(piece, regions[slot.at.region]);
      control.bytes_done.fetch_add(piece.bytes, std::memory_order_relaxed);
      return {};
    };
    WB_TRY(for_each_piece(slot, digester.element_bytes(), kPieceBytes, add));
    const auto& first = seen.try_emplace(key_of(digester.spec(), slot.box), digest).first->second;
    if (first != digest) {
      return base::fail(ErrorCode::kCorrupted, "two slots of tensor {} {} hold different bytes; nothing was captured",
                        digester.spec().name, model::to_string(slot.box));
    }
    index.slots.back() = StoredSlot{file, stored_name(digester.spec(), slot.box), digest};
  }
  return index;
}

}  // namespace

base::Result<std::unique_ptr<SnapshotStore>> SnapshotStore::open(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return base::fail(system_error(error.value(), "cannot make the folder", directory));
  const auto lock_path = directory + "/lock";
  auto created = File::create(lock_path);
  if (!created && created.error().code != ErrorCode::kConflict) return base::fail(created.error());
  WB_ASSIGN(auto lock, File::open_for_reading(lock_path));
  // The system gives it up when this process ends, however it ends.
  if (::flock(lock.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    return base::fail(ErrorCode::kConflict,
                      "another process uses the snapshots in {}: give each engine rank its own folder", directory);
  }
  std::unique_ptr<SnapshotStore> store(new SnapshotStore(directory, std::move(lock)));
  WB_TRY(store->scan());
  return store;
}

base::Status SnapshotStore::scan() {
  std::error_code error;
  fs::directory_iterator entries(directory_, error);
  if (error) return base::fail(system_error(error.value(), "cannot list", directory_));
  for (const auto end = fs::directory_iterator(); entries != end; entries.increment(error)) {
    if (error) return base::fail(system_error(error.value(), "cannot list", directory_));
    const std::string file_name = entries->path().filename().native();
    std::string_view name = file_name;
    if (const auto version = index_version(name)) read_index(*version);
    if (!name.ends_with(kTemporarySuffix)) continue;
    name.remove_suffix(kTemporarySuffix.size());
    if (index_version(name) || DataFileName::parse(name)) ::unlink(entries->path().c_str());
  }
  // An index that cannot be read may refer to any file.
  return damaged_.empty() ? remove_unreferenced() : base::Status{};
}

void SnapshotStore::read_index(WeightVersion version) {
  const auto path = index_path(version);
  const auto read = [&]() -> base::Result<Held> {
    WB_ASSIGN(const auto json, read_text(path, kMaxIndexBytes));
    auto index = parse_snapshot_index(json);
    if (!index) return base::fail(index.error().with(path));
    if (index->version != version) {
      return base::fail(ErrorCode::kCorrupted, "{} says that it is version {}", path, index->version.value());
    }
    std::error_code error;
    std::set<DataFileName> files;
    for (const auto& slot : index->slots) {
      if (slot) files.insert(slot->file);
    }
    std::uint64_t bytes = 0;
    for (const auto& file : files) {
      const auto size = fs::file_size(data_path(file), error);
      if (error) return base::fail(ErrorCode::kCorrupted, "{} refers to {}, which is missing", path, data_path(file));
      if (file.version == version) bytes += size;
    }
    return Held{std::move(*index), bytes};
  };
  if (auto held = read()) {
    versions_.emplace(version, std::move(*held));
  } else {
    damaged_.push_back(version);
    damaged_errors_.push_back(held.error());
  }
}

std::string SnapshotStore::index_path(WeightVersion version) const {
  return fmt::format("{}/v{}{}", directory_, version.value(), kIndexExtension);
}
std::string SnapshotStore::data_path(const DataFileName& file) const { return directory_ + "/" + file.to_string(); }

// A version that was retired and is captured anew may find its file there, still in use by a later version.
DataFileName SnapshotStore::unused_name(WeightVersion version) const {
  DataFileName file{version, 0};
  std::error_code error;
  while (fs::exists(data_path(file), error))
    ++file.copy;
  return file;
}

protocol::HeldVersion SnapshotStore::describe(const Held& held) const {
  return {held.index.version, model::layout_hash(held.index.manifest), held.bytes};
}

std::vector<protocol::HeldVersion> SnapshotStore::list() const {
  std::vector<protocol::HeldVersion> held;
  for (const auto& [version, entry] : versions_)
    held.push_back(describe(entry));
  return held;
}

base::Result<const model::SinkManifest*> SnapshotStore::manifest(WeightVersion version) const {
  const auto held = versions_.find(version);
  if (held == versions_.end()) {
    return base::fail(ErrorCode::kNotFound, "there is no snapshot of version {} in {}", version.value(), directory_);
  }
  return &held->second.index.manifest;
}

SnapshotStore::StoredByKey SnapshotStore::newest_before(WeightVersion version) const {
  StoredByKey stored;
  auto at = versions_.lower_bound(version);
  if (at == versions_.begin()) return stored;
  const auto& index = (--at)->second.index;
  for (std::size_t i = 0; i < index.slots.size(); ++i) {
    const auto& slot = index.manifest.slots[i];
    if (index.slots[i]) stored.emplace(key_of(index.manifest.tensors[slot.tensor], slot.box), *index.slots[i]);
  }
  return stored;
}

base::Result<protocol::HeldVersion> SnapshotStore::capture(WeightVersion version, const model::SinkManifest& manifest,
                                                           std::span<const std::byte* const> regions,
                                                           device::Control& control) {
  if (const auto held = versions_.find(version); held != versions_.end()) {
    if (model::layout_hash(held->second.index.manifest) == model::layout_hash(manifest)) return describe(held->second);
    return base::fail(ErrorCode::kConflict, "version {} is stored in {} with another layout", version.value(),
                      directory_);
  }
  WB_TRY(model::validate(manifest));
  WB_TRY(check_region_count(manifest, regions.size()));
  const auto file = unused_name(version);
  WB_ASSIGN(auto index, digest_live(file, manifest, regions, control));
  const auto earlier = newest_before(version);
  for (std::size_t i = 0; i < index.slots.size(); ++i) {
    if (!index.slots[i]) continue;
    const auto& slot = manifest.slots[i];
    const auto same = earlier.find(key_of(manifest.tensors[slot.tensor], slot.box));
    if (same != earlier.end() && same->second.digest == index.slots[i]->digest) index.slots[i] = same->second;
  }
  auto bytes = write_data(index, file, regions, control);
  if (!bytes) return base::fail(bytes.error().with(fmt::format("capturing version {}", version.value())));
  if (auto status = write_text_atomically(index_path(version), to_json(index)); !status) {
    ::unlink(index_path(version).c_str());
    ::unlink(data_path(file).c_str());
    return base::fail(status.error().with(fmt::format("capturing version {}", version.value())));
  }
  std::erase(damaged_, version);
  const auto& held = versions_.emplace(version, Held{std::move(index), *bytes}).first->second;
  return describe(held);
}

// Writes the slots that are new with this version into its data file, if there are any, and returns the file's size.
base::Result<std::uint64_t> SnapshotStore::write_data(const SnapshotIndex& index, const DataFileName& file,
                                                      std::span<const std::byte* const> regions,
                                                      device::Control& control) {
  const auto& manifest = index.manifest;
  std::vector<std::size_t> chosen;  // slots
  std::vector<model::TensorSpec> specs;
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < index.slots.size(); ++i) {
    const auto& stored = index.slots[i];
    if (!stored || stored->file != file || !names.insert(stored->name).second) continue;
    chosen.push_back(i);
    specs.push_back({stored->name, manifest.tensors[manifest.slots[i].tensor].dtype, manifest.slots[i].box.extent});
  }
  if (chosen.empty()) return 0;
  const auto path = data_path(file);
  const auto temporary = path + std::string(kTemporarySuffix);
  ::unlink(temporary.c_str());
  WB_ASSIGN(auto writer, SafetensorsWriter::create(temporary, std::move(specs),
                                                   {{"weightbus_version", std::to_string(index.version.value())}}));
  std::vector<std::byte> buffer;
  for (std::size_t n = 0; n < chosen.size(); ++n) {
    const auto& slot = manifest.slots[chosen[n]];
    const SlotDigester digester(manifest.tensors[slot.tensor], slot);
    const bool dense = is_dense(slot);
    plan::Digest digest;
    const auto write = [&](const SlotPiece& piece) -> base::Status {
      WB_TRY(check_cancelled(control, "the capture", index.version));
      const auto* region = regions[slot.at.region];
      const auto* bytes = region + piece_offset(slot, piece, digester.element_bytes());
      if (!dense) {
        buffer.resize(piece.bytes);
        gather(slot, piece, digester.element_bytes(), region, buffer.data());
        bytes = buffer.data();
      }
      WB_TRY(writer.write(n, piece.offset, {bytes, piece.bytes}));
      digest = digest + digester.packed(piece, bytes);
      return {};
    };
    WB_TRY(for_each_piece(slot, digester.element_bytes(), kPieceBytes, write));
    if (digest != index.slots[chosen[n]]->digest) {
      return base::fail(ErrorCode::kConflict, "tensor {} changed while it was captured", digester.spec().name);
    }
  }
  const auto bytes = writer.file_bytes();
  WB_TRY(writer.finish_as(path, true));
  return bytes;
}

base::Status SnapshotStore::retire(std::span<const WeightVersion> keep) {
  const auto kept = [&](WeightVersion version) { return std::find(keep.begin(), keep.end(), version) != keep.end(); };
  base::Status first;
  const auto remove = [&](WeightVersion version) {
    if (::unlink(index_path(version).c_str()) == 0 || errno == ENOENT) return true;
    if (first) first = base::fail(system_error(errno, "cannot remove", index_path(version)));
    return false;
  };
  // The index first: a data file without an index is removed at the next start, an index without data would be damage.
  std::erase_if(versions_, [&](const auto& entry) { return !kept(entry.first) && remove(entry.first); });
  std::erase_if(damaged_, [&](WeightVersion version) { return !kept(version) && remove(version); });
  if (damaged_.empty()) damaged_errors_.clear();
  if (auto status = sync_directory(directory_); !status && first) first = status;
  if (!damaged_.empty()) return first;
  if (auto status = remove_unreferenced(); !status && first) first = status;
  return first;
}

base::Status SnapshotStore::remove_unreferenced() {
  std::set<DataFileName> used;
  for (const auto& [version, held] : versions_) {
    for (const auto& slot : held.index.slots) {
      if (slot) used.insert(slot->file);
    }
  }
  base::Status first;
  std::error_code error;
  fs::directory_iterator entries(directory_, error);
  if (error) return base::fail(system_error(error.value(), "cannot list", directory_));
  for (const auto end = fs::directory_iterator(); entries != end; entries.increment(error)) {
    if (error) return base::fail(system_error(error.value(), "cannot list", directory_));
    const auto file = DataFileName::parse(entries->path().filename().native());
    if (!file || used.contains(*file)) continue;
    if (::unlink(entries->path().c_str()) != 0 && errno != ENOENT && first) {
      first = base::fail(system_error(errno, "cannot remove", entries->path().string()));
    }
  }
  return first;
}

}  // namespace weightbus::checkpoint
