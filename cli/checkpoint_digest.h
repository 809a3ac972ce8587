// Digests of boxes of a checkpoint's tensors, at element grain, as engines give them of their live slots.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/checkpoint/checkpoint_folder.h"
#include "weightbus/model/manifest.h"
#include "weightbus/plan/plan.h"

namespace weightbus::cli {

// Remembers what it computed, since every replica asks for the same. Borrows the folder; one thread at a time.
class CheckpointDigests {
 public:
  explicit CheckpointDigests(const checkpoint::CheckpointFolder& folder);

  // Index of the tensor of that name, or of the one that it is tied to.
  std::optional<std::size_t> find(std::string_view name) const;
  // Of a box of the tensor, under the name that `spec` has (a tied name has digests of its own). The spec's shape and
  // dtype are the tensor's. Reads the file in pieces of some MiB.
  base::Result<plan::Digest> of(std::size_t tensor, const model::TensorSpec& spec, const model::Box& box);

 private:
  base::Result<plan::Digest> compute(std::size_t tensor, const model::TensorSpec& spec, const model::Box& box) const;
  const checkpoint::CheckpointFolder& folder_;
  std::map<std::string, std::string, std::less<>> aliases_;
  std::map<std::pair<std::string, model::Box>, plan::Digest> known_;
};

}  // namespace weightbus::cli
