#include "targets.h"

#include <algorithm>

#include "weightbus/base/assert.h"
#include "weightbus/checkpoint/checkpoint_folder.h"
#include "weightbus/checkpoint/safetensors.h"
#include "weightbus/checkpoint/snapshot_index.h"
#include "weightbus/model/layout.h"

namespace weightbus::fuzz {
namespace {

// An error is a sentence for a person: not empty, and text that can be printed and sent.
template <class T>
bool explained(const base::Result<T>& result) {
  if (result) return true;
  const auto& message = result.error().message;
  WB_ASSERT(!message.empty() && message.size() < 100'000, "an error explains itself in a sentence");
  WB_ASSERT(std::none_of(message.begin(), message.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }),
            "no control characters in messages");
  return false;
}

}  // namespace

void safetensors_header(std::string_view input) {
  // The first byte chooses how much data is said to follow.
  if (input.empty()) return;
  const std::uint64_t data_bytes = static_cast<unsigned char>(input.front());
  const auto entries = checkpoint::parse_header(input.substr(1), data_bytes);
  if (!explained(entries) || !entries) return;
  std::uint64_t end = 0;
  for (const auto& entry : *entries) {
    WB_ASSERT(entry.begin == end, "tensors cover the data without gap or overlap");
    WB_ASSERT(checkpoint::tensor_bytes(entry.spec) == entry.end - entry.begin, "sizes agree with shapes");
    end = entry.end;
  }
  WB_ASSERT(end == data_bytes, "tensors cover all data");
}

void hf_index(std::string_view input) {
  const auto index = checkpoint::parse_index(input);
  if (!explained(index) || !index) return;
  WB_ASSERT(std::is_sorted(index->begin(), index->end()), "sorted by tensor");
  for (const auto& [tensor, file] : *index) {
    WB_ASSERT(file.find('/') == std::string::npos && file.ends_with(".safetensors"), "inside the folder");
  }
}

void model_config(std::string_view input) { explained(checkpoint::parse_config(input)); }

void layout(std::string_view input) {
  const auto layout = model::parse_layout(input);
  if (!explained(layout) || !layout) return;
  const std::vector<model::TensorSpec> tensors{
      {"model.embed_tokens.weight", model::DType::kBF16, {302, 66}},
      {"model.layers.0.self_attn.q_proj.weight", model::DType::kBF16, {72, 66}},
      {"model.layers.0.self_attn.k_proj.weight", model::DType::kBF16, {36, 66}},
      {"model.layers.0.self_attn.v_proj.weight", model::DType::kBF16, {36, 66}},
      {"model.layers.0.mlp.experts.0.up_proj.weight", model::DType::kF8E4M3, {4, 0}},
      {"model.layers.0.mlp.experts.1.up_proj.weight", model::DType::kF8E4M3, {4, 0}},
      {"a", model::DType::kF32, {}},
      {"b", model::DType::kF32, {std::int64_t{1} << 40, 1 << 20}}};
  const std::vector<model::Alias> aliases{{"lm_head.weight", "model.embed_tokens.weight"}};
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    // The whole model, and one tensor of it: most layouts have no rule for all.
    for (const auto& given : {std::span(tensors), std::span(tensors).first(1), std::span(tensors).subspan(6, 1)}) {
      const auto manifest = model::make_sink_manifest(*layout, given, {}, model::TpRank(rank), 4, {{"head_dim", 18}});
      if (explained(manifest) && manifest) WB_ASSERT(model::validate(*manifest), "a manifest of ours is valid");
    }
    explained(model::make_sink_manifest(*layout, tensors, aliases, model::TpRank(rank), 4));
  }
}

void snapshot_index(std::string_view input) {
  const auto index = checkpoint::parse_snapshot_index(input);
  if (!explained(index) || !index) return;
  const auto again = checkpoint::parse_snapshot_index(checkpoint::to_json(*index));
  WB_ASSERT(again && *again == *index, "what is read can be written and read again");
}

}  // namespace weightbus::fuzz
