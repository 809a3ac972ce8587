#include "weightbus/checkpoint/synthetic.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "weightbus/base/hash.h"
#include "weightbus/base/prng.h"
#include "weightbus/checkpoint/file.h"
#include "weightbus/checkpoint/safetensors.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;

struct Shape {
  std::int64_t hidden;
  std::int64_t layers;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t intermediate;
  std::int64_t vocab;
  std::size_t files;
};

Shape shape_of(SyntheticSize size) {
  switch (size) {
    case SyntheticSize::kTiny: return {66, 4, 4, 2, 18, 90, 302, 3};
    case SyntheticSize::kSmall: return {512, 6, 8, 4, 64, 1536, 16000, 2};
    case SyntheticSize::k06B: break;
  }
  return {1024, 28, 16, 8, 128, 3072, 151936, 2};
}

// Values between 1/128 and 1/32 in magnitude: finite in BF16, and no two bytes alike for long. Eight bytes a step.
void fill_values(std::span<std::byte> out, std::uint64_t seed, std::uint64_t first_step) {
  constexpr std::uint64_t kVarying = 0x80ff80ff80ff80ffULL;  // sign, lowest bit of the exponent, mantissa
  constexpr std::uint64_t kFixed = 0x3c003c003c003c00ULL;
  const auto value_at = [&](std::uint64_t step) { return (base::splitmix64(seed + step) & kVarying) | kFixed; };
  const auto whole = out.size() / 8;
  for (std::size_t i = 0; i < whole; ++i) {
    const auto value = value_at(first_step + i);
    std::memcpy(out.data() + i * 8, &value, 8);
  }
  const auto last = value_at(first_step + whole);
  std::memcpy(out.data() + whole * 8, &last, out.size() % 8);
}

std::uint64_t mix(std::string_view what, std::string_view name, std::uint64_t seed, std::uint64_t variant) {
  base::Hasher hasher;
  hasher.add(what);
  hasher.add(name);
  hasher.add(seed);
  hasher.add(variant);
  return hasher.finish().low;
}

// Which tensors a variant changes: those with the smallest hashes, so that the fraction is met exactly.
std::vector<bool> choose_changed(const std::vector<model::TensorSpec>& specs, const SyntheticOptions& options) {
  std::vector<bool> changed(specs.size(), false);
  if (options.variant == 0 || !(options.changed_fraction > 0)) return changed;
  const auto share = std::min(options.changed_fraction, 1.0) * static_cast<double>(specs.size());
  const auto count = std::clamp<std::size_t>(static_cast<std::size_t>(share), 1, specs.size());
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    order.emplace_back(mix("chosen", specs[i].name, options.seed, options.variant), i);
  }
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < count; ++i)
    changed[order[i].second] = true;
  return changed;
}

nlohmann::json config_of(const Shape& shape) {
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"model_type", "qwen3"},
          {"torch_dtype", "bfloat16"},
          {"hidden_size", shape.hidden},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.heads},
          {"num_key_value_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"intermediate_size", shape.intermediate},
          {"vocab_size", shape.vocab},
          {"tie_word_embeddings", true}};
}

// Consecutive tensors of about equal bytes for each file.
std::vector<std::vector<std::size_t>> divide(const std::vector<model::TensorSpec>& specs, std::size_t files) {
  std::uint64_t total = 0;
  for (const auto& spec : specs)
    total += *tensor_bytes(spec);
  std::vector<std::vector<std::size_t>> parts(files);
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    parts[std::min<std::size_t>(before * files / total, files - 1)].push_back(i);
    before += *tensor_bytes(specs[i]);
  }
  std::erase_if(parts, [](const auto& part) { return part.empty(); });
  return parts;
}

base::Status write_tensor(SafetensorsWriter& writer, std::size_t index, std::uint64_t bytes, std::uint64_t seed,
                          std::vector<std::byte>& buffer, device::Control& control) {
  for (std::uint64_t done = 0; done < bytes; done += buffer.size()) {
    if (control.cancelled.load(std::memory_order_relaxed)) {
      return base::fail(ErrorCode::kAborted, "making the checkpoint was cancelled");
    }
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), bytes - done));
    fill_values(piece, seed, done / 8);
    WB_TRY(writer.write(index, done, piece));
    control.bytes_done.fetch_add(piece.size(), std::memory_order_relaxed);
  }
  return {};
}

}  // namespace

std::optional<SyntheticSize> parse_synthetic_size(std::string_view name) noexcept {
  if (name == "tiny") return SyntheticSize::kTiny;
  if (name == "small") return SyntheticSize::kSmall;
  if (name == "0.6b") return SyntheticSize::k06B;
  return std::nullopt;
}

std::vector<model::TensorSpec> synthetic_tensors(SyntheticSize size) {
  const auto s = shape_of(size);
  std::vector<model::TensorSpec> specs;
  const auto add = [&specs](std::string name, model::Dims shape) {
    specs.push_back({std::move(name), model::DType::kBF16, shape});
  };
  add("model.embed_tokens.weight", {s.vocab, s.hidden});
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const auto prefix = fmt::format("model.layers.{}.", layer);
    add(prefix + "input_layernorm.weight", {s.hidden});
    add(prefix + "mlp.down_proj.weight", {s.hidden, s.intermediate});
    add(prefix + "mlp.gate_proj.weight", {s.intermediate, s.hidden});
    add(prefix + "mlp.up_proj.weight", {s.intermediate, s.hidden});
    add(prefix + "post_attention_layernorm.weight", {s.hidden});
    add(prefix + "self_attn.k_norm.weight", {s.head_dim});
    add(prefix + "self_attn.k_proj.weight", {s.kv_heads * s.head_dim, s.hidden});
    add(prefix + "self_attn.o_proj.weight", {s.hidden, s.heads * s.head_dim});
    add(prefix + "self_attn.q_norm.weight", {s.head_dim});
    add(prefix + "self_attn.q_proj.weight", {s.heads * s.head_dim, s.hidden});
    add(prefix + "self_attn.v_proj.weight", {s.kv_heads * s.head_dim, s.hidden});
  }
  add("model.norm.weight", {s.hidden});
  return specs;
}

base::Result<SyntheticCheckpoint> write_synthetic(const std::string& directory, const SyntheticOptions& options,
                                                  device::Control& control) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return base::fail(system_error(error.value(), "cannot make the folder", directory));
  for (const char* name : {"config.json", "model.safetensors.index.json", "model.safetensors"}) {
    if (std::filesystem::exists(directory + "/" + name, error)) {
      return base::fail(ErrorCode::kConflict, "{} holds {} already: choose an empty folder", directory, name);
    }
  }
  const auto shape = shape_of(options.size);
  const auto specs = synthetic_tensors(options.size);
  const auto changed = choose_changed(specs, options);
  const auto parts = divide(specs, shape.files);
  SyntheticCheckpoint made;
  made.files = static_cast<std::uint32_t>(parts.size());
  made.tensors = static_cast<std::uint32_t>(specs.size());
  nlohmann::json weight_map = nlohmann::json::object();
  std::vector<std::byte> buffer(4 << 20);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const auto name = fmt::format("model-{:05}-of-{:05}.safetensors", p + 1, parts.size());
    std::vector<model::TensorSpec> mine;
    for (const auto i : parts[p])
      mine.push_back(specs[i]);
    WB_ASSIGN(auto writer, SafetensorsWriter::create(directory + "/" + name, mine, {{"format", "pt"}}));
    for (std::size_t n = 0; n < mine.size(); ++n) {
      const bool is_changed = changed[parts[p][n]];
      const auto seed = mix("content", mine[n].name, options.seed, is_changed ? options.variant : 0);
      const auto bytes = *tensor_bytes(mine[n]);
      WB_TRY(write_tensor(writer, n, bytes, seed, buffer, control));
      weight_map[mine[n].name] = name;
      made.bytes += bytes;
      if (is_changed) made.changed.push_back(mine[n].name);
    }
    WB_TRY(writer.finish(false));
  }
  const nlohmann::json index{{"metadata", {{"total_size", made.bytes}}}, {"weight_map", weight_map}};
  WB_TRY(write_text_atomically(directory + "/config.json", config_of(shape).dump(2) + "\n"));
  WB_TRY(write_text_atomically(directory + "/model.safetensors.index.json", index.dump(2) + "\n"));
  return made;
}

}  // namespace weightbus::checkpoint
