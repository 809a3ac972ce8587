#include "weightbus/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "weightbus/base/checked_math.h"
#include "weightbus/model/strict_json.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;
namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr std::uint64_t kMaxIndexBytes = 100'000'000;
constexpr std::uint64_t kMaxConfigBytes = 4'000'000;
constexpr std::size_t kMaxDepth = 32;

bool is_plain_file_name(std::string_view name) {
  return name.size() > kExtension.size() && name.ends_with(kExtension) && name.size() <= 255 &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

// The field itself, or that of text_config.
const nlohmann::json* find_field(const nlohmann::json& config, const char* name) {
  if (const auto field = config.find(name); field != config.end() && !field->is_null()) return &*field;
  const auto text_config = config.find("text_config");
  if (text_config == config.end() || !text_config->is_object()) return nullptr;
  const auto field = text_config->find(name);
  return field != text_config->end() && !field->is_null() ? &*field : nullptr;
}

}  // namespace

base::Result<std::vector<std::pair<std::string, std::string>>> parse_index(std::string_view json) {
  WB_ASSIGN(const auto document, model::parse_strict_json(json, kMaxDepth));
  if (!document.is_object()) return base::fail(ErrorCode::kCorrupted, "the index is not an object");
  const auto map = document.find("weight_map");
  if (map == document.end() || !map->is_object()) {
    return base::fail(ErrorCode::kCorrupted, "the index has no object \"weight_map\"");
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  pairs.reserve(map->size());
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) {
      return base::fail(ErrorCode::kCorrupted, "tensor {}: its file is not a string", model::printable(name));
    }
    const auto& file_name = file.get_ref<const std::string&>();
    if (!is_plain_file_name(file_name)) {
      return base::fail(ErrorCode::kCorrupted,
                        "tensor {}: \"{}\" is not the plain name of a .safetensors file in the same folder",
                        model::printable(name), model::printable(file_name));
    }
    pairs.emplace_back(name, file_name);
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

base::Result<ModelConfig> parse_config(std::string_view json) {
  WB_ASSIGN(const auto document, model::parse_strict_json(json, kMaxDepth));
  if (!document.is_object()) return base::fail(ErrorCode::kCorrupted, "the configuration is not an object");
  ModelConfig config;
  if (const auto* tie = find_field(document, "tie_word_embeddings")) {
    if (!tie->is_boolean()) return base::fail(ErrorCode::kCorrupted, "tie_word_embeddings is neither true nor false");
    config.tie_word_embeddings = tie->get<bool>();
  }
  for (const char* name :
       {"head_dim", "hidden_size", "num_attention_heads", "num_experts", "num_key_value_heads", "vocab_size"}) {
    const auto* field = find_field(document, name);
    if (!field) continue;
    if (!field->is_number_unsigned())
      return base::fail(ErrorCode::kCorrupted, "{} is not a positive whole number", name);
    config.numbers[name] = field->get<std::uint64_t>();
  }
  const auto hidden = config.numbers.find("hidden_size");
  const auto heads = config.numbers.find("num_attention_heads");
  const bool known = hidden != config.numbers.end() && heads != config.numbers.end();
  if (known && heads->second > 0 && hidden->second % heads->second == 0) {
    config.numbers.try_emplace("head_dim", hidden->second / heads->second);
  }
  return config;
}

base::Result<CheckpointFolder> CheckpointFolder::open(const std::string& directory) {
  CheckpointFolder folder;
  folder.directory_ = directory;
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return base::fail(ErrorCode::kNotFound, "{} is not a folder that can be read here", directory);
  }
  WB_TRY(folder.open_files());
  WB_TRY(folder.collect());
  WB_TRY(folder.read_config());
  return folder;
}

base::Status CheckpointFolder::open_files() {
  std::error_code error;
  const auto single = (fs::path(directory_) / "model.safetensors").string();
  const auto index = (fs::path(directory_) / kIndexName).string();
  if (fs::exists(single, error)) {
    WB_ASSIGN(auto file, SafetensorsFile::open(single));
    files_.push_back(std::move(file));
    return {};
  }
  if (fs::exists(index, error)) return open_indexed(index);
  std::vector<std::string> found;
  fs::directory_iterator entries(directory_, error);
  if (error) return base::fail(system_error(error.value(), "cannot list", directory_));
  for (const auto end = fs::directory_iterator(); entries != end; entries.increment(error)) {
    if (error) return base::fail(system_error(error.value(), "cannot list", directory_));
    if (entries->path().extension() == kExtension) found.push_back(entries->path().string());
  }
  if (found.empty()) {
    return base::fail(ErrorCode::kNotFound, "{} holds no safetensors file: neither model.safetensors nor {}",
                      directory_, kIndexName);
  }
  if (found.size() > 1) {
    return base::fail(ErrorCode::kNotFound,
                      "{} holds {} safetensors files and no {} that says what belongs to the model", directory_,
                      found.size(), kIndexName);
  }
  WB_ASSIGN(auto file, SafetensorsFile::open(found.front()));
  files_.push_back(std::move(file));
  return {};
}

base::Status CheckpointFolder::open_indexed(const std::string& index_path) {
  WB_ASSIGN(const auto text, read_text(index_path, kMaxIndexBytes));
  auto index = parse_index(text);
  if (!index) return base::fail(index.error().with(index_path));
  std::map<std::string, std::set<std::string_view>> wanted;  // by file
  for (const auto& [tensor, file] : *index)
    wanted[file].insert(tensor);
  for (auto& [name, tensors] : wanted) {
    auto file = SafetensorsFile::open((fs::path(directory_) / name).string());
    if (!file)
      return base::fail(file.error().with(fmt::format("{} names {} (tensor {})", index_path, name, *tensors.begin())));
    for (const auto& entry : file->tensors()) {
      if (tensors.erase(entry.spec.name) == 0) {
        return base::fail(ErrorCode::kCorrupted, "{}: tensor {} is not listed for this file in {}", file->path(),
                          model::printable(entry.spec.name), index_path);
      }
    }
    if (!tensors.empty()) {
      return base::fail(ErrorCode::kCorrupted, "{} says that {} holds tensor {}, but it does not", index_path, name,
                        model::printable(*tensors.begin()));
    }
    files_.push_back(std::move(*file));
  }
  return {};
}

base::Status CheckpointFolder::collect() {
  for (std::uint32_t file = 0; file < files_.size(); ++file) {
    for (std::uint32_t entry = 0; entry < files_[file].tensors().size(); ++entry)
      where_.push_back({file, entry});
  }
  const auto spec_of = [this](const Tensor& tensor) -> const model::TensorSpec& {
    return files_[tensor.file].tensors()[tensor.entry].spec;
  };
  std::sort(where_.begin(), where_.end(),
            [&](const Tensor& a, const Tensor& b) { return spec_of(a).name < spec_of(b).name; });
  for (const auto& tensor : where_) {
    const auto& entry = files_[tensor.file].tensors()[tensor.entry];
    const auto sum = base::checked_add(bytes_, entry.end - entry.begin);
    if (!sum) return base::fail(ErrorCode::kCorrupted, "{}: the size of all tensors overflows", directory_);
    bytes_ = *sum;
    specs_.push_back(entry.spec);
  }
  if (specs_.empty()) return base::fail(ErrorCode::kCorrupted, "{}: the checkpoint holds no tensor", directory_);
  return {};
}

base::Status CheckpointFolder::read_config() {
  const auto path = (fs::path(directory_) / "config.json").string();
  auto text = read_text(path, kMaxConfigBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return {};
  if (!text) return base::fail(text.error());
  auto config = parse_config(*text);
  if (!config) return base::fail(config.error().with(path));
  config_ = std::move(*config);
  if (!config_.tie_word_embeddings) return {};
  // The output layer is left out of the files, and named as its embedding is.
  for (const auto& spec : specs_) {
    constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
    if (!spec.name.ends_with(kEmbedding)) continue;
    const auto prefix = spec.name.substr(0, spec.name.size() - kEmbedding.size());
    if (!prefix.empty() && prefix.back() != '.') continue;
    if (!find(prefix + "lm_head.weight")) aliases_.push_back({prefix + "lm_head.weight", spec.name});
  }
  return {};
}

std::optional<std::size_t> CheckpointFolder::find(std::string_view name) const noexcept {
  const auto at = std::lower_bound(specs_.begin(), specs_.end(), name,
                                   [](const model::TensorSpec& spec, std::string_view key) { return spec.name < key; });
  if (at == specs_.end() || at->name != name) return std::nullopt;
  return static_cast<std::size_t>(at - specs_.begin());
}

base::Status CheckpointFolder::check_unmodified() const {
  for (const auto& file : files_)
    WB_TRY(file.check_unmodified());
  return {};
}

}  // namespace weightbus::checkpoint
