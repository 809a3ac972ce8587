// Random models on random trainer and engine layouts, against direct slicing.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "simulation/simulate.h"

namespace weightbus::testing {
namespace {

using model::Box;
using model::Cast;
using model::Dims;
using model::DType;

std::int64_t draw(std::int64_t least, std::int64_t most) { return *rc::gen::inRange(least, most + 1); }
bool draw_bool() { return *rc::gen::arbitrary<bool>(); }

// How an engine needs a tensor.
enum class Need { kReplicated, kRows, kColumns, kExpert };

struct ModelTensor {
  std::string name;
  Dims shape;
  Need need;
  std::int64_t layer;   // pipeline stages follow it; -1 is the first, 1000 the last
  std::int64_t expert;  // of kExpert
  std::string fused;    // the parameter that holds it beside others; empty: by itself
};

std::vector<ModelTensor> draw_model() {
  std::vector<ModelTensor> tensors;
  const auto hidden = draw(1, 10);
  const auto width = draw(1, 12);
  tensors.push_back({"embed", {draw(1, 20), hidden}, Need::kRows, -1, 0, ""});
  const auto layers = draw(1, 3);
  const auto experts = draw(0, 5);
  for (std::int64_t l = 0; l < layers; ++l) {
    const auto prefix = "layers." + std::to_string(l) + ".";
    tensors.push_back({prefix + "norm", {hidden}, Need::kReplicated, l, 0, ""});
    for (const auto* part : {"q", "k", "v"}) {
      tensors.push_back({prefix + part, {draw(1, 16), hidden}, Need::kRows, l, 0, prefix + "qkv"});
    }
    tensors.push_back({prefix + "gate", {width, hidden}, Need::kRows, l, 0, prefix + "gate_up"});
    tensors.push_back({prefix + "up", {width, hidden}, Need::kRows, l, 0, prefix + "gate_up"});
    tensors.push_back({prefix + "down", {hidden, width}, Need::kColumns, l, 0, ""});
    tensors.push_back({prefix + "conv", {draw(1, 4), draw(1, 3), draw(1, 4)}, Need::kColumns, l, 0, ""});
    tensors.push_back({prefix + "scale", {}, Need::kReplicated, l, 0, ""});
    tensors.push_back({prefix + "none", {0, hidden}, Need::kRows, l, 0, ""});
    for (std::int64_t e = 0; e < experts; ++e) {
      tensors.push_back({prefix + "experts." + std::to_string(e), {width, hidden}, Need::kExpert, l, e, ""});
    }
  }
  return tensors;
}

Box chunk(const Dims& shape, std::size_t dim, std::int64_t parts, std::int64_t index) {
  Box box = Box::whole(shape);
  const auto size = (shape[dim] + parts - 1) / parts;
  box.offset[dim] = std::min(shape[dim], index * size);
  box.extent[dim] = std::min(size, shape[dim] - box.offset[dim]);
  return box;
}

std::int64_t stage_of(const ModelTensor& tensor, std::int64_t stages) {
  return tensor.layer < 0 ? 0 : tensor.layer % stages;
}

// One trainer: pipeline stages x replicas x parts. Each tensor is split by rows or columns, experts by rank; some lie
// transposed or padded. Scalars are whole everywhere.
void add_trainer(Fleet& fleet, const std::vector<ModelTensor>& tensors, DType dtype) {
  const auto stages = draw(1, 2);
  const auto replicas = draw(1, 3);
  const auto parts = draw(1, 5);
  const auto first = fleet.sources.size();
  for (std::int64_t r = 0; r < stages * replicas * parts; ++r) {
    const auto id = std::to_string(fleet.sources.size());
    fleet.sources.push_back({"trainer-" + id, "host-" + std::to_string(r % 3), {}, {}});
  }
  for (const auto& tensor : tensors) {
    const bool by_columns = tensor.shape.size() > 1 && draw(0, 3) == 0;
    const bool by_expert = tensor.need == Need::kExpert && draw_bool();
    const bool transposed = draw(0, 4) == 0;
    const auto pad = draw(0, 3) == 0 ? draw(1, 3) : 0;
    for (std::int64_t replica = 0; replica < replicas; ++replica) {
      for (std::int64_t part = 0; part < parts; ++part) {
        const auto rank = (stage_of(tensor, stages) * replicas + replica) * parts + part;
        auto box = Box::whole(tensor.shape);
        if (by_expert && tensor.expert % parts != part) continue;
        if (!by_expert && tensor.shape.size() > 0) box = chunk(tensor.shape, by_columns ? 1 : 0, parts, part);
        add_shard(fleet.sources[first + static_cast<std::size_t>(rank)], tensor.name, dtype, tensor.shape, box,
                  transposed, pad);
      }
    }
  }
}

// The parts of one fused parameter, one after the other in a region of their own.
void add_fused(SinkRank& rank, const ModelTensor& tensor, DType dtype, const Box& box, Cast cast,
               std::map<std::string, std::uint32_t>& regions) {
  auto& manifest = rank.manifest;
  const auto [found, added] = regions.emplace(rank.id + tensor.fused, manifest.region_bytes.size());
  if (added) manifest.region_bytes.push_back(0);
  const auto index = tensor_index(manifest.tensors, tensor.name, dtype, tensor.shape);
  auto& end = manifest.region_bytes[found->second];
  manifest.slots.push_back({index,
                            box,
                            {found->second, end, model::dense_strides(box.extent)},
                            model::SlotKind::kRaw,
                            cast,
                            0,
                            tensor.fused});
  end += box.volume() * model::dtype_size(dtype);
}

void add_engine(Fleet& fleet, const std::vector<ModelTensor>& tensors, DType dtype, Cast cast) {
  const auto stages = draw(1, 2);
  const auto ranks = draw(1, 4);
  const bool tied = draw_bool();
  const bool fuse = draw_bool();
  const auto first = fleet.sinks.size();
  for (std::int64_t r = 0; r < stages * ranks; ++r) {
    const auto id = std::to_string(fleet.sinks.size());
    fleet.sinks.push_back({"engine-" + id, "host-" + std::to_string(r % 4), {}, {}});
  }
  std::map<std::string, std::uint32_t> regions;
  for (const auto& tensor : tensors) {
    const bool transposed = draw(0, 4) == 0;
    const auto pad = draw(0, 3) == 0 ? draw(1, 3) : 0;
    for (std::int64_t r = 0; r < ranks; ++r) {
      auto& rank = fleet.sinks[first + static_cast<std::size_t>(stage_of(tensor, stages) * ranks + r)];
      auto box = Box::whole(tensor.shape);
      if (tensor.need == Need::kExpert && tensor.expert % ranks != r) continue;
      if (tensor.need == Need::kRows) box = chunk(tensor.shape, 0, ranks, r);
      if (tensor.need == Need::kColumns) box = chunk(tensor.shape, 1, ranks, r);
      if (fuse && !tensor.fused.empty()) {
        add_fused(rank, tensor, dtype, box, cast, regions);
      } else {
        add_slot(rank, tensor.name, dtype, tensor.shape, box, cast, transposed, pad);
      }
      if (tensor.name == "embed" && tied) {
        // The tied name on the last stage, in memory of its own.
        auto& last = fleet.sinks[first + static_cast<std::size_t>((stages - 1) * ranks + r)];
        add_slot(last, "lm_head", dtype, tensor.shape, box, cast);
        last.manifest.aliases = {{"lm_head", "embed"}};
      }
    }
  }
}

std::string random_fleet_problem() {
  const auto tensors = draw_model();
  const auto trainer_dtype = *rc::gen::element(DType::kF32, DType::kBF16, DType::kU8, DType::kF64);
  Fleet fleet;
  fleet.content = {{"lm_head", "embed"}};
  const auto trainers = draw(1, 2);
  for (std::int64_t i = 0; i < trainers; ++i)
    add_trainer(fleet, tensors, trainer_dtype);
  const auto engines = draw(1, 3);
  for (std::int64_t i = 0; i < engines; ++i) {
    auto dtype = trainer_dtype;
    auto cast = Cast::kNone;
    if (trainer_dtype == DType::kF32 && draw_bool()) {
      dtype = DType::kBF16;
      cast = Cast::kF32ToBF16;
    }
    if (trainer_dtype == DType::kBF16 && draw_bool()) {
      dtype = DType::kF32;
      cast = Cast::kBF16ToF32;
    }
    add_engine(fleet, tensors, dtype, cast);
  }
  const auto bucket_bytes = *rc::gen::element<std::uint64_t>(16, 48, 100, 256, 1 << 20);
  return check_plan(fleet, bucket_bytes);
}

// RC_PARAMS in the environment overrides the count; a failure prints what replays it.
class Layouts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("RC_PARAMS", "max_success=2000", 0); }
};

TEST_F(Layouts, RandomModelsOnRandomLayoutsArriveExactly) {
  EXPECT_TRUE(rc::check("every slot gets its bytes once", [] {
    const auto problem = random_fleet_problem();
    RC_ASSERT(problem == std::string());
  }));
}

// Sources that hold any boxes at all, overlapping or not: either the plan is exact, or the gap is named.
TEST_F(Layouts, ArbitraryOverlappingShardsAreExactOrRefused) {
  EXPECT_TRUE(rc::check("exact or refused", [] {
    const Dims shape{draw(1, 8), draw(1, 6), draw(1, 3)};
    const auto draw_box = [&] {
      Box box;
      for (auto size : shape) {
        const auto begin = draw(0, size - 1);
        box.offset.push_back(begin);
        box.extent.push_back(draw(1, size - begin));
      }
      return box;
    };
    Fleet fleet;
    const auto sources = draw(1, 9);
    for (std::int64_t i = 0; i < sources; ++i) {
      fleet.sources.push_back({"s" + std::to_string(i), "h", {}, {}});
      add_shard(fleet.sources.back(), "w", DType::kU16, shape, draw(0, 9) == 0 ? Box::whole(shape) : draw_box());
    }
    const auto sinks = draw(1, 5);
    for (std::int64_t i = 0; i < sinks; ++i) {
      fleet.sinks.push_back({"e" + std::to_string(i), "h", {}, {}});
      add_slot(fleet.sinks.back(), "w", DType::kU16, shape, draw_box());
    }
    const auto problem = check_plan(fleet, 32);
    RC_CLASSIFY(problem.empty());
    RC_ASSERT(problem.empty() || problem.find("no source holds") != std::string::npos);
  }));
}

}  // namespace
}  // namespace weightbus::testing
