#include "weightbus/runtime/arena.h"

#include <fmt/format.h>

#include <cstring>

#include "weightbus/checkpoint/slot_bytes.h"

namespace weightbus::runtime {
namespace {

std::string region_name(const std::string& prefix, std::uint32_t half, std::size_t region) {
  return fmt::format("{}h{}.r{}", prefix, half, region);
}

base::Status fill_constants(const model::SinkManifest& manifest, const std::vector<std::byte*>& regions) {
  for (const auto& slot : manifest.slots) {
    if (slot.kind != model::SlotKind::kConstant || slot.box.empty()) continue;
    const std::uint32_t element = model::dtype_size(manifest.tensors[slot.tensor].dtype);
    WB_TRY(checkpoint::for_each_piece(slot, element, checkpoint::kPieceBytes, [&](const checkpoint::SlotPiece& piece) {
      const std::vector<std::byte> filled(piece.bytes, std::byte{slot.fill});
      checkpoint::scatter(slot, piece, element, filled.data(), regions[slot.at.region]);
      return base::Status{};
    }));
  }
  return {};
}

}  // namespace

void Arena::remove(device::Device& device, const std::string& prefix, const model::SinkManifest& manifest) {
  for (std::uint32_t half = 0; half < 2; ++half) {
    for (std::size_t i = 0; i < manifest.region_bytes.size(); ++i)
      device.remove(region_name(prefix, half, i));
  }
}

base::Result<std::shared_ptr<Arena>> Arena::create(device::Device& device, const std::string& prefix,
                                                   const model::SinkManifest& manifest) {
  remove(device, prefix, manifest);
  std::shared_ptr<Arena> arena(new Arena());
  arena->manifest_ = manifest;
  for (std::uint32_t half = 0; half < 2; ++half) {
    for (std::size_t i = 0; i < manifest.region_bytes.size(); ++i) {
      auto memory = device.allocate(region_name(prefix, half, i), manifest.region_bytes[i]);
      if (!memory) {
        remove(device, prefix, manifest);
        return base::fail(memory.error().with(fmt::format("the arena's {} half", half == 0 ? "first" : "second")));
      }
      arena->halves_[half].push_back(std::move(*memory));
    }
    WB_TRY(fill_constants(manifest, arena->half(half)));
  }
  return arena;
}

base::Result<std::shared_ptr<Arena>> Arena::open(device::Device& device, const std::string& prefix,
                                                 const model::SinkManifest& manifest) {
  std::shared_ptr<Arena> arena(new Arena());
  arena->manifest_ = manifest;
  for (std::uint32_t half = 0; half < 2; ++half) {
    for (std::size_t i = 0; i < manifest.region_bytes.size(); ++i) {
      const std::string name = region_name(prefix, half, i);
      const model::Region region{model::RegionKind::kHostShm, device.uuid(), name, manifest.region_bytes[i], 0};
      WB_ASSIGN(auto memory, device.import_region(region, true));
      arena->halves_[half].push_back(std::move(memory));
    }
  }
  return arena;
}

std::vector<std::byte*> Arena::half(std::uint32_t index) const {
  std::vector<std::byte*> regions;
  for (const auto& memory : halves_[index])
    regions.push_back(memory->data());
  return regions;
}

std::vector<const std::byte*> Arena::half_const(std::uint32_t index) const {
  const auto regions = half(index);
  return {regions.begin(), regions.end()};
}

std::vector<device::Memory*> Arena::regions(std::uint32_t index) const {
  std::vector<device::Memory*> regions;
  for (const auto& memory : halves_[index])
    regions.push_back(memory.get());
  return regions;
}

std::uint64_t Arena::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& memory : halves_[0])
    sum += memory->bytes();
  return sum;
}

wire::ArenaInfo Arena::info() const {
  wire::ArenaInfo info;
  for (std::uint32_t half = 0; half < 2; ++half) {
    for (const auto& memory : halves_[half])
      info.halves[half].push_back(memory->region());
  }
  for (const auto& slot : manifest_.slots) {
    const auto& tensor = manifest_.tensors[slot.tensor];
    info.slots.push_back({tensor.name, slot.parameter, tensor.dtype, slot.kind, tensor.shape, slot.box, slot.at});
  }
  return info;
}

}  // namespace weightbus::runtime
