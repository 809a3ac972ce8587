// The shipped layouts on tensors named and shaped as the models they are for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "weightbus/model/layout.h"

namespace weightbus::model {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<TensorSpec>;

void add(Tensors& tensors, const std::string& name, Dims shape, DType dtype = DType::kBF16) {
  tensors.push_back({name, dtype, shape});
}

void add_attention(Tensors& tensors, const std::string& prefix, std::int64_t hidden, std::int64_t heads,
                   std::int64_t kv_heads, std::int64_t head_dim, bool qwen3) {
  add(tensors, prefix + "input_layernorm.weight", {hidden});
  add(tensors, prefix + "post_attention_layernorm.weight", {hidden});
  add(tensors, prefix + "self_attn.q_proj.weight", {heads * head_dim, hidden});
  add(tensors, prefix + "self_attn.k_proj.weight", {kv_heads * head_dim, hidden});
  add(tensors, prefix + "self_attn.v_proj.weight", {kv_heads * head_dim, hidden});
  add(tensors, prefix + "self_attn.o_proj.weight", {hidden, heads * head_dim});
  if (!qwen3) return;
  add(tensors, prefix + "self_attn.q_norm.weight", {head_dim});
  add(tensors, prefix + "self_attn.k_norm.weight", {head_dim});
}

void add_mlp(Tensors& tensors, const std::string& prefix, std::int64_t hidden, std::int64_t inner,
             DType dtype = DType::kBF16) {
  for (const auto& [name, shape] :
       {std::pair("gate_proj", Dims{inner, hidden}), std::pair("up_proj", Dims{inner, hidden}),
        std::pair("down_proj", Dims{hidden, inner})}) {
    add(tensors, prefix + name + ".weight", shape, dtype);
    if (dtype != DType::kF8E4M3) continue;
    add(tensors, prefix + name + ".weight_scale_inv", {(shape[0] + 127) / 128, (shape[1] + 127) / 128}, DType::kF32);
  }
}

Tensors dense_model(bool qwen3) {
  Tensors tensors;
  add(tensors, "model.embed_tokens.weight", {302, 66});
  add(tensors, "model.norm.weight", {66});
  for (int layer = 0; layer < 2; ++layer) {
    const auto prefix = fmt::format("model.layers.{}.", layer);
    add_attention(tensors, prefix, 66, 4, 2, 18, qwen3);
    add_mlp(tensors, prefix + "mlp.", 66, 90);
  }
  return tensors;
}

// Over all ranks, how often each element of each tensor is held: its boxes' volumes over its volume.
std::map<std::string, double> copies(std::string_view layout_name, const Tensors& tensors, std::uint32_t ranks,
                                     const std::vector<Alias>& aliases, const LayoutNumbers& numbers = {}) {
  const auto layout = builtin_layout(layout_name);
  EXPECT_TRUE(layout);
  std::map<std::string, double> held;
  for (std::uint32_t rank = 0; layout && rank < ranks; ++rank) {
    const auto manifest = make_sink_manifest(*layout, tensors, aliases, TpRank(rank), ranks, numbers);
    EXPECT_TRUE(manifest) << manifest.error().message;
    if (!manifest) return held;
    const auto valid = validate(*manifest);
    EXPECT_TRUE(valid) << valid.error().message;
    for (const auto& slot : manifest->slots) {
      if (slot.kind != SlotKind::kRaw) continue;
      const auto& spec = manifest->tensors[slot.tensor];
      held[spec.name] += static_cast<double>(slot.box.volume()) / static_cast<double>(*checked_volume(spec.shape));
    }
  }
  EXPECT_EQ(held.size(), tensors.size());
  return held;
}

TEST(ShippedLayouts, DenseQwen3WithTiedEmbeddings) {
  const std::vector<Alias> tied{{"lm_head.weight", "model.embed_tokens.weight"}};
  const auto one = copies("llama", dense_model(true), 1, tied);
  for (const auto& [name, count] : one)
    EXPECT_EQ(count, 1) << name;
  const auto two = copies("llama", dense_model(true), 2, tied);
  EXPECT_EQ(two.at("model.layers.1.self_attn.k_proj.weight"), 1);
  EXPECT_EQ(two.at("model.layers.1.input_layernorm.weight"), 2);
  EXPECT_DOUBLE_EQ(two.at("model.embed_tokens.weight"), 1);
  EXPECT_EQ(copies("replicate", dense_model(true), 3, {}).at("model.layers.0.mlp.up_proj.weight"), 3);
}

TEST(ShippedLayouts, LlamaSharesKvHeadsOnceHeadDimIsKnown) {
  auto tensors = dense_model(false);
  add(tensors, "lm_head.weight", {302, 66});
  for (auto& spec : tensors) {
    if (spec.name.find("mlp") != std::string::npos) {
      for (std::size_t d = 0; d < spec.shape.size(); ++d)
        spec.shape[d] = spec.shape[d] == 90 ? 96 : spec.shape[d];
    }
  }
  const auto four = copies("llama", tensors, 4, {}, {{"head_dim", 18}});
  EXPECT_EQ(four.at("model.layers.0.self_attn.q_proj.weight"), 1);
  EXPECT_EQ(four.at("model.layers.0.self_attn.k_proj.weight"), 2);
  const auto unknown = make_sink_manifest(*builtin_layout("llama"), tensors, {}, TpRank(0), 4);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("head_dim"));
}

TEST(ShippedLayouts, Qwen2HasBiases) {
  auto tensors = dense_model(false);
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    for (int layer = 0; layer < 2; ++layer) {
      add(tensors, fmt::format("model.layers.{}.self_attn.{}.bias", layer, name), {name[0] == 'q' ? 72 : 36});
    }
  }
  add(tensors, "lm_head.weight", {302, 66});
  EXPECT_EQ(copies("llama", tensors, 2, {}, {{"head_dim", 18}}).at("model.layers.0.self_attn.k_proj.bias"), 1);
  tensors.erase(tensors.end() - 2);  // one of the biases
  EXPECT_FALSE(make_sink_manifest(*builtin_layout("llama"), tensors, {}, TpRank(0), 2, {{"head_dim", 18}}));
}

TEST(ShippedLayouts, Qwen3MoeDividesExperts) {
  Tensors tensors;
  add(tensors, "model.embed_tokens.weight", {128, 32});
  add(tensors, "lm_head.weight", {128, 32});
  add(tensors, "model.norm.weight", {32});
  add_attention(tensors, "model.layers.0.", 32, 4, 2, 8, true);
  add(tensors, "model.layers.0.mlp.gate.weight", {16, 32});
  for (int e = 0; e < 16; ++e)
    add_mlp(tensors, fmt::format("model.layers.0.mlp.experts.{}.", e), 32, 24);
  const auto held = copies("qwen3_moe", tensors, 4, {});
  EXPECT_EQ(held.at("model.layers.0.mlp.experts.11.up_proj.weight"), 1);
  EXPECT_EQ(held.at("model.layers.0.mlp.gate.weight"), 4);
  EXPECT_EQ(held.at("model.layers.0.self_attn.v_proj.weight"), 2);
}

Tensors deepseek(DType dtype) {
  Tensors tensors;
  const auto weight = [&](const std::string& name, Dims shape) {
    add(tensors, name + ".weight", shape, dtype);
    if (dtype != DType::kF8E4M3) return;
    add(tensors, name + ".weight_scale_inv", {(shape[0] + 127) / 128, (shape[1] + 127) / 128}, DType::kF32);
  };
  add(tensors, "model.embed_tokens.weight", {1280, 7168});
  add(tensors, "lm_head.weight", {1280, 7168});
  add(tensors, "model.norm.weight", {7168});
  for (int layer : {0, 3, 61}) {
    const auto prefix = fmt::format("model.layers.{}.", layer);
    add(tensors, prefix + "input_layernorm.weight", {7168});
    add(tensors, prefix + "post_attention_layernorm.weight", {7168});
    weight(prefix + "self_attn.q_a_proj", {1536, 7168});
    add(tensors, prefix + "self_attn.q_a_layernorm.weight", {1536});
    weight(prefix + "self_attn.q_b_proj", {24576, 1536});
    weight(prefix + "self_attn.kv_a_proj_with_mqa", {576, 7168});
    add(tensors, prefix + "self_attn.kv_a_layernorm.weight", {512});
    weight(prefix + "self_attn.kv_b_proj", {32768, 512});
    weight(prefix + "self_attn.o_proj", {7168, 16384});
    if (layer == 0) {
      add_mlp(tensors, prefix + "mlp.", 7168, 18432, dtype);
      continue;
    }
    add(tensors, prefix + "mlp.gate.weight", {16, 7168});
    add(tensors, prefix + "mlp.gate.e_score_correction_bias", {16}, DType::kF32);
    add_mlp(tensors, prefix + "mlp.shared_experts.", 7168, 2048, dtype);
    for (int e = 0; e < 16; ++e)
      add_mlp(tensors, fmt::format("{}mlp.experts.{}.", prefix, e), 7168, 2048, dtype);
  }
  for (const char* name : {"embed_tokens", "shared_head.head"})
    add(tensors, fmt::format("model.layers.61.{}.weight", name), {1280, 7168});
  for (const char* name : {"enorm", "hnorm", "shared_head.norm"})
    add(tensors, fmt::format("model.layers.61.{}.weight", name), {7168});
  add(tensors, "model.layers.61.eh_proj.weight", {7168, 14336});
  return tensors;
}

TEST(ShippedLayouts, DeepSeekV3InBothFormats) {
  for (const auto dtype : {DType::kBF16, DType::kF8E4M3}) {
    const auto held = copies("deepseek_v3", deepseek(dtype), 8, {});
    EXPECT_EQ(held.at("model.layers.3.mlp.experts.15.down_proj.weight"), 1);
    EXPECT_EQ(held.at("model.layers.3.self_attn.q_b_proj.weight"), 1);
    EXPECT_EQ(held.at("model.layers.3.self_attn.q_a_proj.weight"), 8);
    EXPECT_EQ(held.at("model.layers.0.mlp.down_proj.weight"), 1);
  }
}

TEST(ShippedLayouts, DeepSeekV3RefusesFp8WithoutScales) {
  auto tensors = deepseek(DType::kF8E4M3);
  std::erase_if(tensors, [](const TensorSpec& spec) { return spec.name.ends_with("o_proj.weight_scale_inv"); });
  const auto manifest = make_sink_manifest(*builtin_layout("deepseek_v3"), tensors, {}, TpRank(0), 8);
  ASSERT_FALSE(manifest);
  EXPECT_THAT(manifest.error().message, HasSubstr("o_proj.weight_scale_inv"));
}

TEST(ShippedLayouts, AnotherModelIsRefused) {
  EXPECT_FALSE(make_sink_manifest(*builtin_layout("deepseek_v3"), dense_model(true), {}, TpRank(0), 1));
  const auto wrong = make_sink_manifest(*builtin_layout("llama"), deepseek(DType::kBF16), {}, TpRank(0), 1);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("no rule for tensor"));
}

}  // namespace
}  // namespace weightbus::model
