#include "deepseek.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace weightbus::bench {
namespace {

using model::Box;
using model::Dims;
using model::DType;

constexpr std::int64_t kLayers = 61;
constexpr std::int64_t kDenseLayers = 3;
constexpr std::int64_t kExperts = 256;
constexpr std::int64_t kHidden = 7168;
constexpr std::int64_t kMoeWidth = 2048;
constexpr std::int64_t kDenseWidth = 18432;
constexpr std::int64_t kQLora = 1536;
constexpr std::int64_t kKvLora = 512;
constexpr std::int64_t kHeads = 128;
constexpr std::int64_t kNope = 128;
constexpr std::int64_t kRope = 64;
constexpr std::int64_t kValue = 128;
constexpr std::int64_t kVocabulary = 129280;
constexpr std::int64_t kTrainers = 256;
constexpr std::int64_t kTrainerEp = 64;
constexpr std::int64_t kTrainerFsdp = 4;
constexpr std::int64_t kEngines = 128;
constexpr std::int64_t kTp = 8;

// Part `index` of `parts` along a dimension, in chunks of the ceiling as FSDP cuts.
Box part_of(const Dims& shape, std::size_t dim, std::int64_t parts, std::int64_t index) {
  Box box = Box::whole(shape);
  const auto chunk = (shape[dim] + parts - 1) / parts;
  box.offset[dim] = std::min(shape[dim], index * chunk);
  box.extent[dim] = std::min(chunk, shape[dim] - box.offset[dim]);
  return box;
}

template <class Manifest>
model::Placement append(Manifest& manifest, const std::string& name, DType dtype, const Dims& shape, const Box& box) {
  manifest.tensors.push_back({name, dtype, shape});
  if (manifest.region_bytes.empty()) manifest.region_bytes.push_back(0);
  auto& end = manifest.region_bytes[0];
  const model::Placement at{0, end, model::dense_strides(box.extent)};
  end += (box.volume() * model::dtype_size(dtype) + 255) / 256 * 256;
  return at;
}

class Maker {
 public:
  DeepSeekLayout make() {
    layout_.sources.resize(kTrainers);
    layout_.sinks.resize(kEngines);
    split("model.embed_tokens.weight", {kVocabulary, kHidden}, 0);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      attention(fmt::format("model.layers.{}.", layer));
      mlp(layer, fmt::format("model.layers.{}.mlp.", layer));
    }
    replicated("model.norm.weight", {kHidden});
    split("lm_head.weight", {kVocabulary, kHidden}, 0);
    return std::move(layout_);
  }

 private:
  void attention(const std::string& prefix) {
    replicated(prefix + "input_layernorm.weight", {kHidden});
    replicated(prefix + "self_attn.q_a_proj.weight", {kQLora, kHidden});
    replicated(prefix + "self_attn.q_a_layernorm.weight", {kQLora});
    replicated(prefix + "self_attn.q_b_proj.weight", {kHeads * (kNope + kRope), kQLora});
    replicated(prefix + "self_attn.kv_a_proj_with_mqa.weight", {kKvLora + kRope, kHidden});
    replicated(prefix + "self_attn.kv_a_layernorm.weight", {kKvLora});
    replicated(prefix + "self_attn.kv_b_proj.weight", {kHeads * (kNope + kValue), kKvLora});
    replicated(prefix + "self_attn.o_proj.weight", {kHidden, kHeads * kValue});
    replicated(prefix + "post_attention_layernorm.weight", {kHidden});
  }

  void mlp(std::int64_t layer, const std::string& prefix) {
    if (layer < kDenseLayers) return gated(prefix, kDenseWidth);
    replicated(prefix + "gate.weight", {kExperts, kHidden});
    replicated(prefix + "gate.e_score_correction_bias", {kExperts}, DType::kF32);
    gated(prefix + "shared_experts.", kMoeWidth);
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const auto expert = fmt::format("{}experts.{}.", prefix, e);
      routed(e, expert + "gate_proj.weight", {kMoeWidth, kHidden});
      routed(e, expert + "up_proj.weight", {kMoeWidth, kHidden});
      routed(e, expert + "down_proj.weight", {kHidden, kMoeWidth});
    }
  }

  void gated(const std::string& prefix, std::int64_t width) {
    split(prefix + "gate_proj.weight", {width, kHidden}, 0);
    split(prefix + "up_proj.weight", {width, kHidden}, 0);
    split(prefix + "down_proj.weight", {kHidden, width}, 1);
  }

  void shard(std::int64_t rank, const std::string& name, DType dtype, const Dims& shape, const Box& box) {
    auto& manifest = layout_.sources[static_cast<std::size_t>(rank)];
    const auto at = append(manifest, name, dtype, shape, box);
    manifest.shards.push_back({static_cast<std::uint32_t>(manifest.tensors.size() - 1), box, at});
  }
  void slot(std::int64_t rank, const std::string& name, DType dtype, const Dims& shape, const Box& box) {
    auto& manifest = layout_.sinks[static_cast<std::size_t>(rank)];
    const auto at = append(manifest, name, dtype, shape, box);
    manifest.slots.push_back({static_cast<std::uint32_t>(manifest.tensors.size() - 1), box, at, model::SlotKind::kRaw,
                              model::Cast::kNone, 0, name});
  }
  void fsdp(const std::string& name, const Dims& shape, DType dtype) {
    for (std::int64_t r = 0; r < kTrainers; ++r)
      shard(r, name, dtype, shape, part_of(shape, 0, kTrainers, r));
  }
  void replicated(const std::string& name, const Dims& shape, DType dtype = DType::kBF16) {
    fsdp(name, shape, dtype);
    for (std::int64_t r = 0; r < kEngines; ++r)
      slot(r, name, dtype, shape, Box::whole(shape));
  }
  void split(const std::string& name, const Dims& shape, std::size_t dim) {
    fsdp(name, shape, DType::kBF16);
    for (std::int64_t r = 0; r < kEngines; ++r)
      slot(r, name, DType::kBF16, shape, part_of(shape, dim, kTp, r % kTp));
  }
  void routed(std::int64_t expert, const std::string& name, const Dims& shape) {
    const auto group = expert / (kExperts / kTrainerEp);
    for (std::int64_t f = 0; f < kTrainerFsdp; ++f) {
      shard(group * kTrainerFsdp + f, name, DType::kBF16, shape, part_of(shape, 0, kTrainerFsdp, f));
    }
    slot(expert / (kExperts / kEngines), name, DType::kBF16, shape, Box::whole(shape));
  }

  DeepSeekLayout layout_;
};

}  // namespace

DeepSeekLayout make_deepseek_layout() { return Maker().make(); }

}  // namespace weightbus::bench
