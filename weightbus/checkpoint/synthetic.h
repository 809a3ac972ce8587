// Checkpoints of made-up content in the shape of real Qwen3 models: for the demo, tests and benchmarks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/device/device.h"
#include "weightbus/model/manifest.h"

namespace weightbus::checkpoint {

enum class SyntheticSize {
  kTiny,   // about 300 KB in 3 files; extents that two ranks divide, and little else does
  kSmall,  // about 50 MB
  k06B,    // Qwen3-0.6B: 1.2 GB
};
// "tiny", "small", "0.6b".
std::optional<SyntheticSize> parse_synthetic_size(std::string_view name) noexcept;

struct SyntheticOptions {
  SyntheticSize size = SyntheticSize::kTiny;
  std::uint64_t seed = 1;  // equal seeds give equal bytes
  // A later version of the same model: this fraction of its tensors (at least one, when above 0) has other bytes than
  // variant 0 has, and than every other variant has. Variant 0 ignores the fraction.
  std::uint64_t variant = 0;
  double changed_fraction = 1.0;
};

struct SyntheticCheckpoint {
  std::uint64_t bytes = 0;  // of all tensors
  std::uint32_t tensors = 0;
  std::uint32_t files = 0;
  std::vector<std::string> changed;  // names of tensors that differ from variant 0
};

// The tensors of a synthetic model, all BF16, in the order of its files. Its embeddings are tied.
std::vector<model::TensorSpec> synthetic_tensors(SyntheticSize size);

// Writes config.json, the safetensors files and their index into `directory`, which is made if need be. kConflict when
// a file of those names is there. Values are finite and small. Not durable: a crash of the machine may lose it. Adds to
// control.bytes_done; kAborted when cancelled.
base::Result<SyntheticCheckpoint> write_synthetic(const std::string& directory, const SyntheticOptions& options,
                                                  device::Control& control);

}  // namespace weightbus::checkpoint
