// The manifests of a DeepSeek-V3-shaped model: 256 trainer ranks (experts EP 64 x FSDP 4, the rest FSDP 256) and 128
// engine ranks (experts EP 128, dense and shared MLPs and vocabulary TP 8, attention replicated).
#pragma once

#include <vector>

#include "weightbus/model/manifest.h"

namespace weightbus::bench {

struct DeepSeekLayout {
  std::vector<model::SourceManifest> sources;
  std::vector<model::SinkManifest> sinks;
};

DeepSeekLayout make_deepseek_layout();

}  // namespace weightbus::bench
