// A Hugging Face model folder: one safetensors file, or several with an index, and config.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/checkpoint/safetensors.h"
#include "weightbus/model/manifest.h"

namespace weightbus::checkpoint {

// Reads model.safetensors.index.json; pure. Tensor name and file name pairs, sorted by tensor name. A file name that is
// not a plain name ending in ".safetensors" is refused: an index must not lead out of its folder.
base::Result<std::vector<std::pair<std::string, std::string>>> parse_index(std::string_view json);

// What Weightbus reads of config.json.
struct ModelConfig {
  bool tie_word_embeddings = false;
  // Numbers that layouts may name: head_dim, num_attention_heads, num_key_value_heads, num_experts, vocab_size,
  // hidden_size. Those that the file does not give (directly or, as head_dim, by division) are absent.
  std::map<std::string, std::uint64_t> numbers;
};

// Reads config.json; pure. Of a multimodal model, text_config counts where the top level is silent.
base::Result<ModelConfig> parse_config(std::string_view json);

// An open checkpoint. Immutable; any thread may use it.
class CheckpointFolder {
 public:
  struct Tensor {
    std::uint32_t file = 0;   // index into files()
    std::uint32_t entry = 0;  // index into that file's tensors()
  };

  // Opens, in this order of preference: model.safetensors, model.safetensors.index.json and its files, the one
  // *.safetensors file that the folder holds. Errors name the file and the tensor.
  static base::Result<CheckpointFolder> open(const std::string& directory);

  const std::string& directory() const noexcept { return directory_; }
  const std::vector<SafetensorsFile>& files() const noexcept { return files_; }
  // Every tensor's spec, sorted by name, and where it lies.
  const std::vector<model::TensorSpec>& tensors() const noexcept { return specs_; }
  const SafetensorsFile& file_of(std::size_t tensor) const noexcept { return files_[where_[tensor].file]; }
  const TensorEntry& entry_of(std::size_t tensor) const noexcept {
    return files_[where_[tensor].file].tensors()[where_[tensor].entry];
  }
  // Index into tensors().
  std::optional<std::size_t> find(std::string_view name) const noexcept;
  // Tied weights: a name that the files leave out because it equals another.
  const std::vector<model::Alias>& aliases() const noexcept { return aliases_; }
  const ModelConfig& config() const noexcept { return config_; }
  // Bytes of all tensors.
  std::uint64_t bytes() const noexcept { return bytes_; }
  // kConflict when a file was written to since it was opened.
  base::Status check_unmodified() const;

 private:
  CheckpointFolder() = default;
  base::Status open_files();
  base::Status open_indexed(const std::string& index_path);
  base::Status collect();
  base::Status read_config();

  std::string directory_;
  std::vector<SafetensorsFile> files_;
  std::vector<model::TensorSpec> specs_;
  std::vector<Tensor> where_;
  std::vector<model::Alias> aliases_;
  ModelConfig config_;
  std::uint64_t bytes_ = 0;
};

}  // namespace weightbus::checkpoint
