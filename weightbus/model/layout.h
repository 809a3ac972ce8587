// Layouts: how an engine arranges a model's tensors in its arena. A layout file (docs/LAYOUTS.md) says, for name
// patterns, which dimension tensor parallelism splits, what is fused into one parameter, and which experts a rank
// holds.
//
// Pure: the text of a file in, manifests out. checkpoint/layout_file.h reads files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/model/ids.h"
#include "weightbus/model/manifest.h"

namespace weightbus::model {

// Every parameter begins at a multiple of this in the arena.
inline constexpr std::uint64_t kParameterAlignment = 256;

// How many rows (of the split dimension) must stay together, as an attention head's. The first that is known counts:
// the named number, the extent of dimension 0 of the first tensor that `dim_of` matches, `rows`. 0 rows: none known.
struct SplitUnit {
  std::string number;
  std::string dim_of;
  std::uint64_t rows = 1;
};

// Tensor parallelism along one dimension: equal parts, of whole units each. With `replicate`, more ranks than units
// share a unit among neighbouring ranks instead of being refused.
struct Split {
  std::uint32_t dim = 0;
  SplitUnit unit;
  bool replicate = false;
};

// Constant rows after the last, up to a multiple, so that the dimension divides evenly.
struct Padding {
  std::uint32_t dim = 0;
  std::uint64_t multiple = 1;
  std::uint8_t fill = 0;
};

// Tensors whose name matches, and what becomes of them. In a pattern `*` is any run of characters, and `{word}` any run
// without a dot, whose text can be used in a parameter's name.
struct LayoutPart {
  std::string pattern;
  std::optional<Split> split;  // none: every rank holds the whole tensor
  std::optional<Padding> padding;
  Cast cast = Cast::kNone;
};

// One parameter of the engine for each distinct expansion of `parameter`. Several parts are fused: they lie one after
// the other along `fuse_dim`. With `expert`, the placeholder of that name counts experts: a rank holds an equal run of
// them, one behind the other.
struct LayoutRule {
  std::string parameter;  // empty: the tensor's own name (one part only)
  std::vector<LayoutPart> parts;
  std::uint32_t fuse_dim = 0;
  std::string expert;
  bool optional = false;  // no error when it matches nothing
};

// A dtype that is meaningless without a second tensor, as FP8 without its scales.
struct Companion {
  DType dtype;
  std::string suffix;
};

struct Layout {
  std::string name;
  std::vector<LayoutRule> rules;     // the first whose pattern matches a name has it
  std::vector<std::string> ignored;  // as SinkManifest::ignored: only `*`
  std::vector<Companion> companions;
};

// Values for SplitUnit::number, as "head_dim".
using LayoutNumbers = std::map<std::string, std::uint64_t>;

// Reads a layout file. kCorrupted: not JSON; kInvalidArgument: a key that is unknown, missing or of the wrong type.
base::Result<Layout> parse_layout(std::string_view json);

// A shipped layout: "llama" (Llama, Qwen2, Qwen3), "qwen3_moe", "deepseek_v3", "replicate". kNotFound names them all.
base::Result<Layout> builtin_layout(std::string_view name);

// What rank tp_rank of tp_size needs of these tensors (global specs, as the sources state them; no name twice), in one
// region. The same input gives the same manifest. kInvalidArgument names the tensor or rule that does not fit: a tensor
// without a rule, a required rule without a tensor, a dimension that does not divide, fused parts that do not add up,
// experts missing, a tied tensor whose two names are laid out differently, a missing companion.
base::Result<SinkManifest> make_sink_manifest(const Layout& layout, std::span<const TensorSpec> tensors,
                                              std::span<const Alias> aliases, TpRank tp_rank, std::uint32_t tp_size,
                                              const LayoutNumbers& numbers = {});

// `pattern` against a whole name: the text of each placeholder by its word, or nullopt. A word that stands twice must
// match equal text.
using Captures = std::map<std::string, std::string>;
std::optional<Captures> match_pattern(std::string_view pattern, std::string_view name);

}  // namespace weightbus::model
