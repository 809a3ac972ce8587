// The arena of an engine agent: the memory of its rank's slots, twice, in named regions that outlive the worker.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "weightbus/device/device.h"
#include "weightbus/model/manifest.h"
#include "weightbus/wire/attach.h"

namespace weightbus::runtime {

// Immutable after create() or open(); any thread may use it.
class Arena {
 public:
  // Reserves both halves under "<prefix>h<half>.r<region>" and fills constant slots. What an earlier arena left under
  // these names is removed. kResourceExhausted says needed and free bytes; nothing is left then.
  static base::Result<std::shared_ptr<Arena>> create(device::Device& device, const std::string& prefix,
                                                     const model::SinkManifest& manifest);
  // Maps one that an earlier start of the process made. kNotFound or kCorrupted when it is gone or of another size.
  static base::Result<std::shared_ptr<Arena>> open(device::Device& device, const std::string& prefix,
                                                   const model::SinkManifest& manifest);
  static void remove(device::Device& device, const std::string& prefix, const model::SinkManifest& manifest);

  const model::SinkManifest& manifest() const { return manifest_; }
  std::vector<std::byte*> half(std::uint32_t index) const;
  std::vector<const std::byte*> half_const(std::uint32_t index) const;
  std::vector<device::Memory*> regions(std::uint32_t index) const;
  std::uint64_t bytes() const;  // of one half
  // What clients are told (without live half and tag).
  wire::ArenaInfo info() const;

 private:
  Arena() = default;
  model::SinkManifest manifest_;
  std::array<std::vector<std::unique_ptr<device::Memory>>, 2> halves_;
};

}  // namespace weightbus::runtime
