#include "weightbus/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "simulation/simulate.h"
#include "weightbus/plan/digest.h"

namespace weightbus::plan {
namespace {

using model::Box;
using model::Cast;
using model::Dims;
using model::DType;
using testing::add_shard;
using testing::add_slot;
using testing::check_plan;
using testing::Fleet;
using testing::SinkRank;
using testing::SourceRank;

Fleet members(std::size_t sources, std::size_t sinks) {
  Fleet fleet;
  for (std::size_t i = 0; i < sources; ++i)
    fleet.sources.push_back({"s" + std::to_string(i), "host", {}, {}});
  for (std::size_t i = 0; i < sinks; ++i)
    fleet.sinks.push_back({"e" + std::to_string(i), "host", {}, {}});
  return fleet;
}

std::shared_ptr<const ReshardPlan> make(const Fleet& fleet, std::uint64_t bucket_bytes = kDefaultBucketBytes) {
  auto planned = plan(fleet.plan_sources(), fleet.plan_sinks(), {bucket_bytes});
  EXPECT_TRUE(planned) << planned.error().message;
  return *planned;
}

// Which source serves each sink, where each sink reads from one only.
std::vector<std::uint32_t> serving(const ReshardPlan& plan) {
  std::vector<std::uint32_t> sources(plan.sink_count(), 999);
  for (const auto& link : plan.links())
    sources[link.sink] = link.source;
  return sources;
}

TEST(Aliases, ATiedTensorTravelsOnceWhicheverSideDeclaresIt) {
  for (const bool at_source : {true, false}) {
    for (const bool sink_asks_for_alias : {true, false}) {
      auto fleet = members(1, 1);
      add_shard(fleet.sources[0], "embed", DType::kBF16, {6, 4}, Box::whole({6, 4}));
      add_slot(fleet.sinks[0], sink_asks_for_alias ? "lm_head" : "embed", DType::kBF16, {6, 4}, Box::whole({6, 4}));
      auto& aliases = at_source ? fleet.sources[0].manifest.aliases : fleet.sinks[0].manifest.aliases;
      aliases = {{"lm_head", "embed"}};
      fleet.content = {{"lm_head", "embed"}};
      ASSERT_EQ(check_plan(fleet, 1 << 20), "") << at_source << sink_asks_for_alias;
      const auto planned = make(fleet);
      EXPECT_EQ(planned->bytes(), 48U);
      EXPECT_EQ(planned->sink_part(0).tensors[0].name, "embed");
    }
  }
}

TEST(Aliases, BothNamesInDifferentMemoryAreBothWrittenFromTheCanonicalContent) {
  auto fleet = members(1, 1);
  // A stale copy under the alias's name, as checkpoints have it, is not taken.
  add_shard(fleet.sources[0], "lm_head", DType::kBF16, {6, 4}, Box::whole({6, 4}));
  add_shard(fleet.sources[0], "embed", DType::kBF16, {6, 4}, Box::whole({6, 4}));
  add_slot(fleet.sinks[0], "lm_head", DType::kBF16, {6, 4}, Box::whole({6, 4}));
  add_slot(fleet.sinks[0], "embed", DType::kBF16, {6, 4}, Box::whole({6, 4}));
  fleet.sinks[0].manifest.aliases = {{"lm_head", "embed"}};
  const auto planned = make(fleet);
  EXPECT_EQ(planned->bytes(), 96U);
  const auto part = planned->source_part(0);
  ASSERT_EQ(part.units.size(), 1U);
  EXPECT_EQ(part.units[0].from.region, 1U) << "the shard of 'embed'";
  ASSERT_EQ(part.buckets.size(), 1U);
  for (const auto& fragment : part.buckets[0].fragments)
    EXPECT_EQ(fragment.from.region, 1U);
}

TEST(Aliases, OppositeDeclarationsAndChainsMeetInOneClass) {
  auto fleet = members(1, 2);
  add_shard(fleet.sources[0], "b", DType::kU8, {8}, Box::whole({8}));
  add_slot(fleet.sinks[0], "a", DType::kU8, {8}, Box::whole({8}));
  add_slot(fleet.sinks[1], "c", DType::kU8, {8}, Box::whole({8}));
  fleet.sources[0].manifest.aliases = {{"a", "b"}};
  fleet.sinks[0].manifest.aliases = {{"b", "a"}};
  fleet.sinks[1].manifest.aliases = {{"c", "b"}};
  fleet.content = {{"b", "a"}, {"c", "a"}};
  EXPECT_EQ(check_plan(fleet, 1 << 20), "");
  EXPECT_EQ(make(fleet)->sink_part(1).tensors[0].name, "a");
}

TEST(SourceChoice, TheSameHostComesFirst) {
  auto fleet = members(4, 4);
  for (std::size_t i = 0; i < 4; ++i) {
    fleet.sources[i].host = "host-" + std::to_string(i);
    fleet.sinks[i].host = "host-" + std::to_string(3 - i);
    add_shard(fleet.sources[i], "w", DType::kU8, {64}, Box::whole({64}));
    add_slot(fleet.sinks[i], "w", DType::kU8, {64}, Box::whole({64}));
  }
  EXPECT_EQ(serving(*make(fleet)), (std::vector<std::uint32_t>{3, 2, 1, 0}));
  EXPECT_EQ(check_plan(fleet, 1 << 20), "");
}

TEST(SourceChoice, TheSameDeviceComesBeforeTheSameHost) {
  auto fleet = members(2, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    add_shard(fleet.sources[i], "w", DType::kU8, {64}, Box::whole({64}));
    add_slot(fleet.sinks[i], "w", DType::kU8, {64}, Box::whole({64}));
  }
  auto sources = fleet.plan_sources();
  auto sinks = fleet.plan_sinks();
  sources[0].device_uuid = sinks[1].device_uuid = "GPU-a";
  sources[1].device_uuid = sinks[0].device_uuid = "GPU-b";
  EXPECT_EQ(serving(**plan(sources, sinks, {})), (std::vector<std::uint32_t>{1, 0}));
}

TEST(SourceChoice, ReplicasShareTheLoadEvenly) {
  auto fleet = members(3, 6);
  for (auto& source : fleet.sources)
    add_shard(source, "w", DType::kU8, {64}, Box::whole({64}));
  for (auto& sink : fleet.sinks)
    add_slot(sink, "w", DType::kU8, {64}, Box::whole({64}));
  std::map<std::uint32_t, std::uint64_t> load;
  for (const auto& link : make(fleet)->links())
    load[link.source] += link.bytes;
  EXPECT_EQ(load, (std::map<std::uint32_t, std::uint64_t>{{0, 128}, {1, 128}, {2, 128}}));
  EXPECT_EQ(check_plan(fleet, 1 << 20), "");
}

TEST(SourceChoice, WhatOnlyOneSourceHoldsCountsBeforeAnyChoice) {
  auto fleet = members(2, 1);
  add_shard(fleet.sources[0], "a", DType::kU8, {64}, Box::whole({64}));
  add_shard(fleet.sources[1], "a", DType::kU8, {64}, Box::whole({64}));
  add_shard(fleet.sources[0], "z", DType::kU8, {64}, Box::whole({64}));
  add_slot(fleet.sinks[0], "a", DType::kU8, {64}, Box::whole({64}));
  add_slot(fleet.sinks[0], "z", DType::kU8, {64}, Box::whole({64}));
  for (const auto& link : make(fleet)->links())
    EXPECT_EQ(link.bytes, 64U);
}

TEST(Overlaps, PartlyOverlappingShardsWriteEverySlotByteOnce) {
  auto fleet = members(3, 2);
  add_shard(fleet.sources[0], "w", DType::kBF16, {10, 3}, {{0, 0}, {6, 3}});
  add_shard(fleet.sources[1], "w", DType::kBF16, {10, 3}, {{4, 0}, {6, 3}});
  add_shard(fleet.sources[2], "w", DType::kBF16, {10, 3}, {{2, 1}, {4, 1}});
  add_slot(fleet.sinks[0], "w", DType::kBF16, {10, 3}, Box::whole({10, 3}));
  add_slot(fleet.sinks[1], "w", DType::kBF16, {10, 3}, {{3, 0}, {4, 2}});
  EXPECT_EQ(check_plan(fleet, 1 << 20), "");
  EXPECT_EQ(check_plan(fleet, 16), "");
}

TEST(Units, AreSharedByAllSinksThatGetTheSameBox) {
  auto fleet = members(2, 8);
  for (std::size_t i = 0; i < 2; ++i) {
    add_shard(fleet.sources[i], "w", DType::kBF16, {8, 4}, {{static_cast<std::int64_t>(4 * i), 0}, {4, 4}});
  }
  for (auto& sink : fleet.sinks)
    add_slot(sink, "w", DType::kBF16, {8, 4}, Box::whole({8, 4}));
  const auto planned = make(fleet);
  EXPECT_EQ(planned->source_part(0).units.size(), 1U);
  EXPECT_EQ(planned->source_part(1).units.size(), 1U);
  EXPECT_EQ(planned->source_part(0).buckets.size(), 8U);
}

TEST(Units, DigestEachElementOnceWhenEnginesCutDifferently) {
  auto fleet = members(1, 5);
  add_shard(fleet.sources[0], "w", DType::kBF16, {12, 4}, Box::whole({12, 4}));
  for (std::int64_t i = 0; i < 2; ++i)
    add_slot(fleet.sinks[static_cast<std::size_t>(i)], "w", DType::kBF16, {12, 4}, {{6 * i, 0}, {6, 4}});
  for (std::int64_t i = 0; i < 3; ++i)
    add_slot(fleet.sinks[static_cast<std::size_t>(2 + i)], "w", DType::kBF16, {12, 4}, {{4 * i, 0}, {4, 4}});
  const auto part = make(fleet)->source_part(0);
  std::uint64_t volume = 0;
  for (const auto& unit : part.units) {
    EXPECT_TRUE(unit.primary);
    volume += unit.box.volume();
  }
  EXPECT_EQ(volume, 48U);
  EXPECT_EQ(part.units.size(), 4U) << "cut at rows 4, 6 and 8";
  EXPECT_EQ(check_plan(fleet, 1 << 20), "");
}

TEST(Units, OnePrimaryPerElementAmongReplicasAndCasts) {
  auto fleet = members(2, 4);
  for (auto& source : fleet.sources)
    add_shard(source, "w", DType::kBF16, {4, 4}, Box::whole({4, 4}));
  for (std::size_t i = 0; i < 2; ++i) {
    add_slot(fleet.sinks[i], "w", DType::kBF16, {4, 4}, Box::whole({4, 4}));
    add_slot(fleet.sinks[2 + i], "w", DType::kF32, {4, 4}, Box::whole({4, 4}), Cast::kBF16ToF32);
  }
  const auto planned = make(fleet);
  std::uint64_t primary = 0;
  std::uint64_t units = 0;
  for (std::size_t s = 0; s < 2; ++s) {
    const auto part = planned->source_part(s);
    for (const auto& unit : part.units) {
      ++units;
      if (!unit.primary) continue;
      ++primary;
      EXPECT_EQ(part.tensors[unit.tensor].cast, Cast::kNone);
    }
  }
  EXPECT_EQ(units, 4U);
  EXPECT_EQ(primary, 1U);
  EXPECT_EQ(check_plan(fleet, 1 << 20), "");
}

TEST(Grain, IsTheLargestThatDividesEveryRowBoundary) {
  const auto grain = [](DType dtype, const Dims& shape, std::vector<std::pair<Box, bool>> shards) {
    auto fleet = members(shards.size(), 1);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      add_shard(fleet.sources[i], "w", dtype, shape, shards[i].first, shards[i].second);
    }
    add_slot(fleet.sinks[0], "w", dtype, shape, Box::whole(shape));
    EXPECT_EQ(check_plan(fleet, 1 << 20), "");
    return make(fleet)->sink_part(0).tensors[0].grain_bytes;
  };
  EXPECT_EQ(grain(DType::kBF16, {4, 64}, {{{{0, 0}, {4, 64}}, false}}), 16U);
  EXPECT_EQ(grain(DType::kBF16, {4, 64}, {{{{0, 0}, {4, 20}}, false}, {{{0, 20}, {4, 44}}, false}}), 8U);
  EXPECT_EQ(grain(DType::kBF16, {4, 6}, {{{{0, 0}, {4, 6}}, false}}), 4U);
  EXPECT_EQ(grain(DType::kBF16, {4, 3}, {{{{0, 0}, {4, 3}}, false}}), 2U);
  EXPECT_EQ(grain(DType::kBF16, {16, 16}, {{{{0, 0}, {16, 16}}, true}}), 2U) << "elements apart in memory";
  EXPECT_EQ(grain(DType::kF64, {}, {{Box{}, false}}), 8U);
  EXPECT_EQ(grain(DType::kU8, {5}, {{{{0}, {5}}, false}}), 1U);
}

TEST(Compare, FindsALostFragment) {
  auto fleet = members(2, 1);
  for (std::size_t i = 0; i < 2; ++i) {
    add_shard(fleet.sources[i], "w", DType::kBF16, {8, 4}, {{static_cast<std::int64_t>(4 * i), 0}, {4, 4}});
    add_shard(fleet.sources[i], "v", DType::kBF16, {8}, {{static_cast<std::int64_t>(4 * i)}, {4}});
  }
  add_slot(fleet.sinks[0], "w", DType::kBF16, {8, 4}, Box::whole({8, 4}));
  add_slot(fleet.sinks[0], "v", DType::kBF16, {8}, Box::whole({8}));
  testing::fill(fleet);
  const auto planned = make(fleet);
  std::vector<std::vector<Digest>> units;
  for (std::size_t s = 0; s < 2; ++s) {
    const auto part = planned->source_part(s);
    auto& digests = units.emplace_back();
    for (const auto& unit : part.units) {
      const auto& tensor = part.tensors[unit.tensor];
      digests.push_back(digest_box(
          fleet.sources[s].regions[unit.from.region].data() + unit.from.offset, unit.from.strides, 2, unit.box,
          tensor.shape, digest_seed(tensor.name, tensor.shape, tensor.dtype, tensor.grain_bytes), tensor.grain_bytes));
    }
  }
  const auto part = planned->sink_part(0);
  ASSERT_EQ(part.buckets.size(), 2U);
  ASSERT_EQ(part.buckets[1].fragments.size(), 2U);
  // Everything but the second source's fragment of "v" arrives: dense rows, copied whole.
  for (const auto& bucket : part.buckets) {
    for (const auto& fragment : bucket.fragments) {
      if (bucket.source.value() == "s1" && part.tensors[fragment.tensor].name == "v") continue;
      const auto& source = fleet.sources[bucket.source.value() == "s0" ? 0 : 1];
      std::copy_n(source.regions[fragment.from.region].begin() + static_cast<std::ptrdiff_t>(fragment.from.offset),
                  fragment.box.volume() * 2,
                  fleet.sinks[0].regions[fragment.to.region].begin() + static_cast<std::ptrdiff_t>(fragment.to.offset));
    }
  }
  std::vector<Digest> slots;
  for (const auto& row : part.slots) {
    const auto& slot = fleet.sinks[0].manifest.slots[row.slot];
    const auto& tensor = part.tensors[row.tensor];
    slots.push_back(digest_box(
        fleet.sinks[0].regions[slot.at.region].data() + slot.at.offset, slot.at.strides, 2, slot.box, tensor.shape,
        digest_seed(tensor.name, tensor.shape, tensor.dtype, tensor.grain_bytes), tensor.grain_bytes));
  }
  const auto mismatches = planned->compare(units, 0, slots);
  ASSERT_TRUE(mismatches);
  ASSERT_EQ(mismatches->size(), 1U);
  EXPECT_EQ(mismatches->front().tensor, "v");
  EXPECT_EQ(mismatches->front().sink.value(), "e0");
  EXPECT_EQ(mismatches->front().box, Box::whole({8}));
}

TEST(Compare, RefusesReportsOfTheWrongLength) {
  auto fleet = members(1, 1);
  add_shard(fleet.sources[0], "w", DType::kU8, {8}, Box::whole({8}));
  add_slot(fleet.sinks[0], "w", DType::kU8, {8}, Box::whole({8}));
  const auto planned = make(fleet);
  const std::vector<Digest> one(1);
  const std::vector<Digest> two(2);
  EXPECT_TRUE(planned->compare({one}, 0, one));
  EXPECT_FALSE(planned->compare({}, 0, one));
  EXPECT_FALSE(planned->compare({two}, 0, one));
  EXPECT_FALSE(planned->compare({one}, 0, two));
  EXPECT_FALSE(planned->compare({one}, 1, one));
  EXPECT_FALSE(planned->version_digest({two}));
  EXPECT_TRUE(planned->version_digest({one}));
}

TEST(VersionDigest, IsTheSameHoweverTheVersionIsCut) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  for (std::int64_t parts : {1, 2, 3, 5}) {
    auto fleet = members(static_cast<std::size_t>(parts), 2);
    for (std::int64_t i = 0; i < parts; ++i) {
      const auto begin = 15 * i / parts;
      const auto end = 15 * (i + 1) / parts;
      add_shard(fleet.sources[static_cast<std::size_t>(i)], "w", DType::kBF16, {15, 4}, {{begin, 0}, {end - begin, 4}});
    }
    add_slot(fleet.sinks[0], "w", DType::kBF16, {15, 4}, {{0, 0}, {15, parts == 2 ? 1 : 4}});
    add_slot(fleet.sinks[1], "w", DType::kBF16, {15, 4}, {{0, parts == 2 ? 1 : 0}, {15, parts == 2 ? 3 : 4}});
    testing::fill(fleet);
    const auto planned = make(fleet);
    std::vector<std::vector<Digest>> element;
    for (std::size_t s = 0; s < fleet.sources.size(); ++s) {
      const auto part = planned->source_part(s);
      auto& digests = element.emplace_back();
      for (const auto& unit : part.units) {
        digests.push_back(digest_box(fleet.sources[s].regions[unit.from.region].data() + unit.from.offset,
                                     unit.from.strides, 2, unit.box, {15, 4},
                                     digest_seed("w", {15, 4}, DType::kBF16, 2), 2));
      }
    }
    const auto version = planned->version_digest(element);
    ASSERT_TRUE(version);
    ASSERT_EQ(version->size(), 1U);
    seen.emplace(version->front().second.lane0, version->front().second.lane1);
  }
  EXPECT_EQ(seen.size(), 1U);
}

TEST(Hashes, TheSameInputGivesTheSamePlanAndAnyChangeAnother) {
  const auto base = [] {
    auto fleet = members(2, 2);
    for (std::size_t i = 0; i < 2; ++i) {
      add_shard(fleet.sources[i], "w", DType::kBF16, {8, 4}, {{static_cast<std::int64_t>(4 * i), 0}, {4, 4}});
      add_slot(fleet.sinks[i], "w", DType::kBF16, {8, 4}, Box::whole({8, 4}));
    }
    return fleet;
  };
  std::vector<Fleet> variants(6, base());
  variants[1].sources[0].manifest.shards[0].at.offset = 4;
  variants[2].sinks[1].manifest.slots[0].box.extent[0] = 7;
  variants[3].sinks[0].id = "other";
  variants[4].sources[1].manifest.shards[0].at.strides = {4, 2};
  variants[5].sources[0].manifest.tensors[0].name = "v";
  variants[5].sources[1].manifest.tensors[0].name = "v";
  for (auto& sink : variants[5].sinks)
    sink.manifest.tensors[0].name = "v";
  std::set<std::string> hashes;
  for (const auto& variant : variants)
    hashes.insert(make(variant)->hash().to_string());
  hashes.insert(make(base(), 64)->hash().to_string());
  EXPECT_EQ(hashes.size(), variants.size() + 1);

  const auto a = make(base());
  const auto b = make(base());
  EXPECT_EQ(a->hash(), b->hash());
  EXPECT_EQ(a->source_part(1), b->source_part(1));
  EXPECT_EQ(a->sink_part(1).hash(), b->sink_part(1).hash());
  auto part = a->sink_part(0);
  const auto before = part.hash();
  part.buckets[0].fragments[0].to.offset ^= 1;
  EXPECT_NE(part.hash(), before);
  auto source = a->source_part(0);
  const auto source_before = source.hash();
  source.units[0].primary = !source.units[0].primary;
  EXPECT_NE(source.hash(), source_before);
}

TEST(Buckets, ATensorLargerThanABucketIsSplitOverBuckets) {
  auto fleet = members(1, 1);
  add_shard(fleet.sources[0], "w", DType::kBF16, {100, 8}, Box::whole({100, 8}));
  add_shard(fleet.sources[0], "odd", DType::kU8, {3}, Box::whole({3}));
  add_slot(fleet.sinks[0], "w", DType::kBF16, {100, 8}, Box::whole({100, 8}));
  add_slot(fleet.sinks[0], "odd", DType::kU8, {3}, Box::whole({3}));
  EXPECT_EQ(check_plan(fleet, 256), "");
  const auto part = make(fleet, 256)->sink_part(0);
  EXPECT_EQ(part.buckets.size(), 7U);
  for (const auto& bucket : part.buckets) {
    std::uint64_t offset = 0;
    for (const auto& fragment : bucket.fragments) {
      EXPECT_EQ(offset % 16, 0U);
      offset += fragment.box.volume() * dtype_size(part.tensors[fragment.tensor].dtype);
    }
  }
}

TEST(Fused, QkvAndGateUpFillTheirPartsOfOneParameter) {
  // Two engine ranks, each with q, k and v of its heads in one block, from three row shards.
  auto fleet = members(3, 2);
  const std::map<std::string, std::int64_t> rows{{"q", 8}, {"k", 4}, {"v", 4}};
  for (const auto& [name, count] : rows) {
    const auto chunk = (count + 2) / 3;
    for (std::int64_t s = 0; s < 3; ++s) {
      const auto begin = std::min(count, s * chunk);
      add_shard(fleet.sources[static_cast<std::size_t>(s)], name, DType::kBF16, {count, 6},
                {{begin, 0}, {std::min(chunk, count - begin), 6}});
    }
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    auto& manifest = fleet.sinks[rank].manifest;
    manifest.region_bytes = {8 * 6 * 2};
    std::uint64_t offset = 0;
    for (const auto* name : {"q", "k", "v"}) {
      const auto count = rows.at(name) / 2;
      const auto tensor = testing::tensor_index(manifest.tensors, name, DType::kBF16, {rows.at(name), 6});
      manifest.slots.push_back({tensor,
                                {{static_cast<std::int64_t>(rank) * count, 0}, {count, 6}},
                                {0, offset, {6, 1}},
                                model::SlotKind::kRaw,
                                Cast::kNone,
                                0,
                                "qkv_proj.weight"});
      offset += static_cast<std::uint64_t>(count) * 6 * 2;
    }
  }
  EXPECT_EQ(check_plan(fleet, 1 << 20), "");
  EXPECT_EQ(check_plan(fleet, 32), "");
}

}  // namespace
}  // namespace weightbus::plan
