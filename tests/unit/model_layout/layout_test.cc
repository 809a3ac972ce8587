#include "weightbus/model/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weightbus/model/builtin_layouts.h"

namespace weightbus::model {
namespace {

using base::ErrorCode;
using testing::AllOf;
using testing::HasSubstr;

Layout layout_of(std::string_view rules, std::string_view rest = "") {
  auto layout = parse_layout(fmt::format(R"({{"weightbus_layout":1,"name":"test","rules":[{}]{}}})", rules, rest));
  EXPECT_TRUE(layout) << layout.error().message;
  return layout ? *layout : Layout{};
}

std::string error_of(const Layout& layout, const std::vector<TensorSpec>& tensors, std::uint32_t tp_size = 2,
                     const std::vector<Alias>& aliases = {}) {
  const auto manifest = make_sink_manifest(layout, tensors, aliases, TpRank(0), tp_size);
  if (manifest) return "no error";
  EXPECT_EQ(manifest.error().code, ErrorCode::kInvalidArgument);
  return manifest.error().message;
}

SinkManifest make(const Layout& layout, const std::vector<TensorSpec>& tensors, std::uint32_t rank, std::uint32_t size,
                  const LayoutNumbers& numbers = {}, const std::vector<Alias>& aliases = {}) {
  auto manifest = make_sink_manifest(layout, tensors, aliases, TpRank(rank), size, numbers);
  EXPECT_TRUE(manifest) << manifest.error().message;
  return manifest ? *manifest : SinkManifest{};
}

const Slot& slot_of(const SinkManifest& manifest, std::string_view name) {
  for (const auto& slot : manifest.slots) {
    if (manifest.tensors[slot.tensor].name == name) return slot;
  }
  ADD_FAILURE() << "no slot of " << name;
  static const Slot kNone{};
  return kNone;
}

TEST(MatchPattern, HolesAndWords) {
  EXPECT_TRUE(match_pattern("*", ""));
  EXPECT_TRUE(match_pattern("a*c", "abbbc"));
  EXPECT_TRUE(match_pattern("*norm*", "x.norm.y"));
  EXPECT_FALSE(match_pattern("a*c", "abcd"));
  EXPECT_FALSE(match_pattern("abc", "ab"));
  EXPECT_EQ(match_pattern("layers.{layer}.w", "layers.12.w"), (Captures{{"layer", "12"}}));
  EXPECT_FALSE(match_pattern("layers.{layer}.w", "layers.1.2.w")) << "a word has no dot";
  EXPECT_FALSE(match_pattern("layers.{layer}.w", "layers..w")) << "a word is not empty";
  EXPECT_EQ(match_pattern("*.{a}.{b}", "x.y.1.2"), (Captures{{"a", "1"}, {"b", "2"}}));
  EXPECT_TRUE(match_pattern("{n}.x.{n}", "7.x.7"));
  EXPECT_FALSE(match_pattern("{n}.x.{n}", "7.x.8"));
}

TEST(MatchPattern, HostilePatternsEnd) { EXPECT_FALSE(match_pattern("*a*a*a*a*a*a*a*b", std::string(1000, 'a'))); }

TEST(MakeSinkManifest, SplitsRowsAndColumns) {
  const auto layout = layout_of(R"({"name":"rows","tp":{"dim":0}},{"name":"columns","tp":{"dim":1}},{"name":"whole"})");
  const std::vector<TensorSpec> tensors{
      {"columns", DType::kBF16, {3, 8}}, {"rows", DType::kBF16, {8, 3}}, {"whole", DType::kF32, {5}}};
  const auto manifest = make(layout, tensors, 1, 2);
  EXPECT_EQ(slot_of(manifest, "rows").box, (Box{{4, 0}, {4, 3}}));
  EXPECT_EQ(slot_of(manifest, "columns").box, (Box{{0, 4}, {3, 4}}));
  EXPECT_EQ(slot_of(manifest, "columns").at.strides, (Dims{4, 1})) << "dense in the arena";
  EXPECT_EQ(slot_of(manifest, "whole").box, (Box{{0}, {5}}));
  for (const auto& slot : manifest.slots) {
    EXPECT_EQ(slot.at.offset % kParameterAlignment, 0u);
    EXPECT_EQ(slot.kind, SlotKind::kRaw);
  }
  EXPECT_EQ(manifest.region_bytes, std::vector<std::uint64_t>{3 * 256});
}

TEST(MakeSinkManifest, DoesNotDependOnTheOrderOfTensors) {
  const auto layout = layout_of(R"({"name":"*"})");
  const TensorSpec a{"a", DType::kU8, {300}}, b{"b", DType::kF32, {}};
  EXPECT_EQ(make(layout, {a, b}, 0, 2), make(layout, {b, a}, 0, 2));
}

constexpr std::string_view kQkv = R"({"parameter":"{l}.qkv","parts":[
    {"name":"{l}.q","tp":{"dim":0,"unit":{"rows":4}}},
    {"name":"{l}.k","tp":{"dim":0,"unit":{"rows":4},"replicate":true}},
    {"name":"{l}.v","tp":{"dim":0,"unit":{"rows":4},"replicate":true}}]})";

TEST(MakeSinkManifest, FusesPartsInOrder) {
  const auto layout = layout_of(kQkv);
  const std::vector<TensorSpec> tensors{
      {"0.k", DType::kBF16, {8, 6}}, {"0.q", DType::kBF16, {16, 6}}, {"0.v", DType::kBF16, {8, 6}}};
  const auto manifest = make(layout, tensors, 1, 2);
  EXPECT_EQ(slot_of(manifest, "0.q").box, (Box{{8, 0}, {8, 6}}));
  EXPECT_EQ(slot_of(manifest, "0.k").box, (Box{{4, 0}, {4, 6}}));
  EXPECT_EQ(slot_of(manifest, "0.q").at.offset, 0u);
  EXPECT_EQ(slot_of(manifest, "0.k").at.offset, 8u * 6 * 2);
  EXPECT_EQ(slot_of(manifest, "0.v").at.offset, 12u * 6 * 2);
  for (const auto& slot : manifest.slots)
    EXPECT_EQ(slot.parameter, "0.qkv");
}

TEST(MakeSinkManifest, MoreRanksThanKvHeadsShareThem) {
  const auto layout = layout_of(kQkv);
  const std::vector<TensorSpec> tensors{
      {"0.k", DType::kBF16, {8, 6}}, {"0.q", DType::kBF16, {16, 6}}, {"0.v", DType::kBF16, {8, 6}}};
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const auto manifest = make(layout, tensors, rank, 4);
    EXPECT_EQ(slot_of(manifest, "0.q").box, (Box{{rank * 4, 0}, {4, 6}}));
    EXPECT_EQ(slot_of(manifest, "0.k").box, (Box{{rank / 2 * 4, 0}, {4, 6}}));
  }
  EXPECT_THAT(error_of(layout, tensors, 3), AllOf(HasSubstr("0.q"), HasSubstr("cannot be divided among 3 ranks")));
}

TEST(MakeSinkManifest, FusesAlongColumns) {
  const auto layout = layout_of(R"({"parameter":"ab","dim":1,"parts":[{"name":"a"},{"name":"b"}]})");
  const auto manifest = make(layout, {{"a", DType::kF32, {2, 3}}, {"b", DType::kF32, {2, 5}}}, 0, 1);
  EXPECT_EQ(slot_of(manifest, "a").at, (Placement{0, 0, {8, 1}}));
  EXPECT_EQ(slot_of(manifest, "b").at, (Placement{0, 12, {8, 1}}));
}

TEST(MakeSinkManifest, FusedPartsMustAddUp) {
  const auto layout = layout_of(R"({"parameter":"ab","parts":[{"name":"a"},{"name":"b"}]})");
  EXPECT_THAT(error_of(layout, {{"a", DType::kF32, {2, 3}}}), AllOf(HasSubstr("part b is missing"), HasSubstr("ab")));
  EXPECT_THAT(error_of(layout, {{"b", DType::kF32, {2, 3}}}), HasSubstr("part a is missing"));
  EXPECT_THAT(error_of(layout, {{"a", DType::kF32, {2, 3}}, {"b", DType::kF32, {2, 4}}}),
              HasSubstr("does not fit beside"));
  EXPECT_THAT(error_of(layout, {{"a", DType::kF32, {2, 3}}, {"b", DType::kF32, {2}}}),
              HasSubstr("does not fit beside"));
  EXPECT_THAT(error_of(layout, {{"a", DType::kF32, {2, 3}}, {"b", DType::kF16, {2, 3}}}), HasSubstr("F16"));
  EXPECT_THAT(error_of(layout, {{"a", DType::kF32, {}}, {"b", DType::kF32, {}}}), HasSubstr("dimension 0"));
  const auto twice = layout_of(R"({"parameter":"ab","parts":[{"name":"a*"},{"name":"b"}]})");
  EXPECT_THAT(error_of(twice, {{"a1", DType::kF32, {2}}, {"a2", DType::kF32, {2}}, {"b", DType::kF32, {2}}}),
              HasSubstr("same part"));
  EXPECT_THAT(error_of(twice, {{"a", DType::kF32, {2}}, {"b", DType::kF32, {2}}}), "no error");
}

TEST(MakeSinkManifest, NamesThatMatchNothingAreErrors) {
  const auto layout = layout_of(R"({"name":"a"},{"name":"b","optional":true})", R"(,"ignore":["*.cache"])");
  EXPECT_THAT(error_of(layout, {{"a", DType::kU8, {1}}}), "no error");
  EXPECT_THAT(error_of(layout, {{"a", DType::kU8, {1}}, {"c", DType::kU8, {1}}}), HasSubstr("no rule for tensor c"));
  EXPECT_THAT(error_of(layout, {{"b", DType::kU8, {1}}}), HasSubstr("no tensor matches a"));
  const auto manifest = make(layout, {{"a", DType::kU8, {1}}, {"x.cache", DType::kU8, {9}}}, 0, 1);
  EXPECT_EQ(manifest.tensors.size(), 1u);
  EXPECT_EQ(manifest.ignored, std::vector<std::string>{"*.cache"});
}

TEST(MakeSinkManifest, RefusesWhatTpDoesNotDivide) {
  const auto layout = layout_of(R"({"name":"a","tp":{"dim":0}})");
  EXPECT_THAT(error_of(layout, {{"a", DType::kU8, {5}}}), AllOf(HasSubstr("tensor a"), HasSubstr("5 rows")));
  EXPECT_THAT(error_of(layout, {{"a", DType::kU8, {}}}), HasSubstr("without the dimension 0"));
  const auto units = layout_of(R"({"name":"a","tp":{"dim":0,"unit":{"rows":4}}})");
  EXPECT_THAT(error_of(units, {{"a", DType::kU8, {6}}}), HasSubstr("whole units of 4"));
  EXPECT_THAT(error_of(units, {{"a", DType::kU8, {4}}}), HasSubstr("cannot be divided")) << "a head is not cut in two";
  const auto layout_ok = layout_of(R"({"name":"a","tp":{"dim":0}})");
  const auto rank = make_sink_manifest(layout_ok, {}, {}, TpRank(2), 2);
  ASSERT_FALSE(rank);
  EXPECT_THAT(rank.error().message, HasSubstr("tp_rank 2 of 2"));
}

TEST(MakeSinkManifest, UnitsComeFromNumbersOrTensors) {
  const auto layout = layout_of(
      R"({"name":"k","tp":{"dim":0,"unit":{"number":"head_dim","dim_of":"*norm"},"replicate":true}},
         {"name":"norm","optional":true})");
  const TensorSpec k{"k", DType::kU8, {8}};
  EXPECT_EQ(slot_of(make(layout, {k}, 3, 4, {{"head_dim", 4}}), "k").box, (Box{{4}, {4}}));
  EXPECT_EQ(slot_of(make(layout, {k, {"norm", DType::kU8, {4}}}, 3, 4), "k").box, (Box{{4}, {4}}));
  EXPECT_EQ(slot_of(make(layout, {k, {"norm", DType::kU8, {4}}}, 3, 4, {{"head_dim", 2}}), "k").box, (Box{{6}, {2}}));
  EXPECT_THAT(error_of(layout, {k}, 4), AllOf(HasSubstr("number head_dim"), HasSubstr("tensor k")));
  EXPECT_THAT(error_of(layout, {k}, 1), "no error");
  const auto zero = make_sink_manifest(layout, std::vector{k}, {}, TpRank(0), 2, {{"head_dim", 0}});
  EXPECT_FALSE(zero);
}

TEST(MakeSinkManifest, PadsWithConstants) {
  const auto layout = layout_of(R"({"name":"embed","tp":{"dim":0},"pad":{"dim":0,"multiple":8,"fill":7}})");
  const std::vector<TensorSpec> tensors{{"embed", DType::kBF16, {5, 3}}};
  const auto first = make(layout, tensors, 0, 2);
  ASSERT_EQ(first.slots.size(), 1u);
  EXPECT_EQ(first.slots[0].box, (Box{{0, 0}, {4, 3}}));
  const auto second = make(layout, tensors, 1, 2);
  ASSERT_EQ(second.slots.size(), 2u);
  EXPECT_EQ(second.slots[0].box, (Box{{4, 0}, {1, 3}}));
  EXPECT_EQ(second.slots[1].kind, SlotKind::kConstant);
  EXPECT_EQ(second.slots[1].fill, 7);
  EXPECT_EQ(second.slots[1].box, (Box{{0, 0}, {3, 3}}));
  EXPECT_EQ(second.slots[1].at.offset, 6u);
  EXPECT_EQ(second.tensors[second.slots[1].tensor].shape, (Dims{3, 3}));
  // Ranks that hold nothing but padding.
  const auto last = make(layout, tensors, 7, 8);
  EXPECT_TRUE(slot_of(last, "embed").box.empty());
  EXPECT_EQ(slot_of(last, "embed#padding").box, (Box{{2, 0}, {1, 3}}));
  EXPECT_THAT(error_of(layout, tensors, 3), HasSubstr("cannot be divided"));
}

TEST(MakeSinkManifest, CastsByName) {
  const auto layout = layout_of(R"({"name":"a","cast":"f32_to_bf16"})");
  const auto manifest = make(layout, {{"a", DType::kF32, {4}}}, 0, 1);
  EXPECT_EQ(manifest.tensors[0].dtype, DType::kBF16) << "the dtype after the cast";
  EXPECT_EQ(manifest.slots[0].cast, Cast::kF32ToBF16);
  EXPECT_EQ(make(layout, {{"a", DType::kBF16, {4}}}, 0, 1).slots[0].cast, Cast::kNone) << "already what is wanted";
  EXPECT_THAT(error_of(layout, {{"a", DType::kF16, {4}}}), AllOf(HasSubstr("f32_to_bf16"), HasSubstr("F16")));
}

constexpr std::string_view kExperts = R"({"parameter":"w13","expert":"e","parts":[
    {"name":"experts.{e}.gate"},{"name":"experts.{e}.up"}]})";

std::vector<TensorSpec> expert_tensors(int count) {
  std::vector<TensorSpec> tensors;
  for (int e = 0; e < count; ++e) {
    tensors.push_back({fmt::format("experts.{}.gate", e), DType::kU8, {2, 3}});
    tensors.push_back({fmt::format("experts.{}.up", e), DType::kU8, {2, 3}});
  }
  return tensors;
}

TEST(MakeSinkManifest, RanksHoldARunOfExperts) {
  const auto layout = layout_of(kExperts);
  const auto manifest = make(layout, expert_tensors(12), 1, 4);
  ASSERT_EQ(manifest.slots.size(), 6u);
  // By number, not by name: expert 10 does not follow expert 1.
  for (std::uint64_t e = 3; e < 6; ++e) {
    EXPECT_EQ(slot_of(manifest, fmt::format("experts.{}.gate", e)).at.offset, (e - 3) * 12);
    EXPECT_EQ(slot_of(manifest, fmt::format("experts.{}.up", e)).at.offset, (e - 3) * 12 + 6);
  }
  EXPECT_EQ(manifest.region_bytes, std::vector<std::uint64_t>{256});
}

TEST(MakeSinkManifest, ExpertsMustBeWhole) {
  const auto layout = layout_of(kExperts);
  EXPECT_THAT(error_of(layout, expert_tensors(5), 2), HasSubstr("5 experts cannot be divided among 2 ranks"));
  auto gap = expert_tensors(4);
  gap.erase(gap.begin() + 2, gap.begin() + 4);
  EXPECT_THAT(error_of(layout, gap, 1), HasSubstr("expert 1 is missing"));
  auto part = expert_tensors(4);
  part.erase(part.begin() + 3);
  EXPECT_THAT(error_of(layout, part, 1), HasSubstr("experts.{e}.up is missing"));
  auto uneven = expert_tensors(4);
  uneven[5].shape = {4, 3};
  EXPECT_THAT(error_of(layout, uneven, 1), AllOf(HasSubstr("experts.2.up"), HasSubstr("differ")));
  EXPECT_THAT(error_of(layout, {{"experts.x.gate", DType::kU8, {1}}}, 1), HasSubstr("not the number"));
  EXPECT_THAT(error_of(layout, {{"experts.99999999999999999999.gate", DType::kU8, {1}}}, 1),
              HasSubstr("not the number"));
}

TEST(MakeSinkManifest, TiedNamesShareMemory) {
  const auto layout = layout_of(R"({"name":"embed","tp":{"dim":0}},{"name":"head","tp":{"dim":0}},{"name":"odd"})");
  const std::vector<TensorSpec> tensors{{"embed", DType::kU8, {4}}, {"odd", DType::kU8, {1}}};
  const auto manifest = make(layout, tensors, 0, 2, {}, {{"head", "embed"}});
  EXPECT_EQ(manifest.aliases, (std::vector<Alias>{{"head", "embed"}}));
  EXPECT_EQ(manifest.slots.size(), 2u);
  EXPECT_THAT(error_of(layout, tensors, 2), HasSubstr("no tensor matches head"));
  EXPECT_THAT(error_of(layout, tensors, 2, {{"head", "none"}}), HasSubstr("no source has"));
  EXPECT_THAT(error_of(layout, tensors, 2, {{"embed", "odd"}}), HasSubstr("also tied"));
  EXPECT_THAT(error_of(layout, tensors, 2, {{"stray", "embed"}}), HasSubstr("no rule for stray"));
  const std::vector<TensorSpec> untied{{"head", DType::kU8, {4}}, {"embed", DType::kU8, {4}}};
  EXPECT_THAT(error_of(layout, untied, 2, {{"odd", "embed"}}), HasSubstr("differently"));
}

TEST(MakeSinkManifest, ADTypeCanNeedACompanion) {
  const auto layout = layout_of(R"({"name":"*"})", R"(,"companions":[{"dtype":"F8_E4M3","suffix":"_scale"}])");
  EXPECT_THAT(error_of(layout, {{"w", DType::kF8E4M3, {4}}}), HasSubstr("needs w_scale"));
  EXPECT_THAT(error_of(layout, {{"w", DType::kF8E4M3, {4}}, {"w_scale", DType::kF32, {}}}), "no error");
  EXPECT_THAT(error_of(layout, {{"w", DType::kBF16, {4}}}), "no error");
}

TEST(MakeSinkManifest, RefusesHostileSpecs) {
  const auto layout = layout_of(R"({"name":"*"})");
  const auto big = std::int64_t{1} << 62;
  EXPECT_THAT(error_of(layout, {{"a", DType::kF64, {big}}}), HasSubstr("overflows"));
  EXPECT_THAT(error_of(layout, {{"a", DType::kU8, {0, big, 8}}}), HasSubstr("overflows"));
  EXPECT_THAT(error_of(layout, {{"a", DType::kU8, {-1}}}), HasSubstr("overflows"));
  EXPECT_THAT(
      error_of(
          layout,
          {{"a", DType::kU8, {big}}, {"b", DType::kU8, {big}}, {"c", DType::kU8, {big}}, {"d", DType::kU8, {big}}}),
      HasSubstr("arena overflows"));
  EXPECT_THAT(error_of(layout, {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}), HasSubstr("listed twice"));
  const auto fused = layout_of(R"({"parameter":"p","parts":[{"name":"a"},{"name":"b"}]})");
  EXPECT_THAT(error_of(fused, {{"a", DType::kU8, {big}}, {"b", DType::kU8, {big}}}), HasSubstr("fit"));
  const auto same = layout_of(R"({"name":"a","parameter":"p"},{"name":"b","parameter":"p"})");
  EXPECT_THAT(error_of(same, {{"a", DType::kU8, {1}}, {"b", DType::kU8, {1}}}), HasSubstr("two rules"));
}

TEST(MakeSinkManifest, ZeroSizeAndScalarTensorsAreOrdinary) {
  const auto manifest = make(layout_of(R"({"name":"s"},{"name":"z","tp":{"dim":0}})"),
                             {{"s", DType::kF32, {}}, {"z", DType::kF32, {0, 4}}}, 1, 2);
  ASSERT_EQ(manifest.slots.size(), 2u);
  EXPECT_EQ(slot_of(manifest, "s").box, Box{});
  EXPECT_TRUE(slot_of(manifest, "z").box.empty());
}

std::string parse_error(std::string_view json) {
  const auto layout = parse_layout(json);
  return layout ? "no error" : layout.error().message;
}
std::string rule_error(std::string_view rule) {
  return parse_error(fmt::format(R"({{"weightbus_layout":1,"name":"x","rules":[{}]}})", rule));
}

TEST(ParseLayout, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(parse_error("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(parse_error("{}"), HasSubstr("weightbus_layout"));
  EXPECT_THAT(parse_error(R"({"weightbus_layout":2,"name":"x","rules":[{"name":"*"}]})"), HasSubstr("revision 2"));
  EXPECT_THAT(parse_error(R"({"weightbus_layout":1,"rules":[{"name":"*"}]})"), HasSubstr("name"));
  EXPECT_THAT(parse_error(R"({"weightbus_layout":1,"name":"x"})"), HasSubstr("rules"));
  EXPECT_THAT(parse_error(R"({"weightbus_layout":1,"name":"x","rules":{}})"), HasSubstr("must be a list"));
  EXPECT_THAT(parse_error(R"({"weightbus_layout":1,"name":"x","rules":[],"rules":[{"name":"*"}]})"),
              HasSubstr("listed twice"));
  EXPECT_THAT(parse_error(R"({"weightbus_layout":1,"name":"x","rules":[{"name":"*"}],"ignores":[]})"),
              HasSubstr("unknown key \"ignores\""));
  EXPECT_THAT(parse_error(R"({"weightbus_layout":1,"name":"x","rules":[{"name":"*"}],"ignore":[3]})"),
              HasSubstr("strings"));
  EXPECT_THAT(
      parse_error(
          R"({"weightbus_layout":1,"name":"x","rules":[{"name":"*"}],"companions":[{"dtype":"Q","suffix":"s"}]})"),
      HasSubstr("companion"));
}

TEST(ParseLayout, RefusesRulesThatMeanNothing) {
  EXPECT_THAT(rule_error(R"({"name":"*"})"), "no error");
  EXPECT_THAT(rule_error("3"), HasSubstr("rule 1"));
  EXPECT_THAT(rule_error("{}"), HasSubstr("needs \"name\""));
  EXPECT_THAT(rule_error(R"({"name":3})"), HasSubstr("must be a string"));
  EXPECT_THAT(rule_error(R"({"name":"a","split":0})"), HasSubstr("unknown key \"split\""));
  EXPECT_THAT(rule_error(R"({"name":"a","tp":0})"), HasSubstr("must be an object"));
  EXPECT_THAT(rule_error(R"({"name":"a","tp":{}})"), HasSubstr("needs \"dim\""));
  EXPECT_THAT(rule_error(R"({"name":"a","tp":{"dim":8}})"), HasSubstr("from 0 to 7"));
  EXPECT_THAT(rule_error(R"({"name":"a","tp":{"dim":-1}})"), HasSubstr("whole number"));
  EXPECT_THAT(rule_error(R"({"name":"a","tp":{"dim":0,"replicate":true}})"), HasSubstr("needs \"unit\""));
  EXPECT_THAT(rule_error(R"({"name":"a","tp":{"dim":0,"unit":{}}})"), HasSubstr("needs \"number\""));
  EXPECT_THAT(rule_error(R"({"name":"a","tp":{"dim":0,"unit":{"rows":0}}})"), HasSubstr("from 1"));
  EXPECT_THAT(rule_error(R"({"name":"a","pad":{"dim":0}})"), HasSubstr("multiple"));
  EXPECT_THAT(rule_error(R"({"name":"a","tp":{"dim":1},"pad":{"dim":0,"multiple":4}})"), HasSubstr("same dimension"));
  EXPECT_THAT(rule_error(R"({"name":"a","tp":{"dim":0,"unit":{"rows":2}},"pad":{"dim":0,"multiple":4}})"),
              HasSubstr("plain"));
  EXPECT_THAT(rule_error(R"({"name":"a","pad":{"dim":0,"multiple":4,"fill":256}})"), HasSubstr("from 0 to 255"));
  EXPECT_THAT(rule_error(R"({"name":"a","cast":"f64_to_f8"})"), HasSubstr("f64_to_f8"));
  EXPECT_THAT(rule_error(R"({"name":"a","optional":1})"), HasSubstr("true or false"));
  EXPECT_THAT(rule_error(R"({"parameter":"p","parts":[]})"), HasSubstr("empty"));
  EXPECT_THAT(rule_error(R"({"parts":[{"name":"a"}]})"), HasSubstr("needs \"parameter\""));
  EXPECT_THAT(rule_error(R"({"parameter":"p.{x}","parts":[{"name":"a"}]})"), HasSubstr("has no {x}"));
  EXPECT_THAT(rule_error(R"({"parameter":"p*","name":"a"})"), HasSubstr("cannot contain"));
  EXPECT_THAT(rule_error(R"({"name":"a.{"})"), HasSubstr("placeholder"));
  EXPECT_THAT(rule_error(R"({"name":"a.{}"})"), HasSubstr("placeholder"));
  EXPECT_THAT(rule_error(R"({"name":"a.}"})"), HasSubstr("without"));
  EXPECT_THAT(rule_error(R"({"name":"*********"})"), HasSubstr("more than 8"));
  EXPECT_THAT(rule_error(R"({"name":"a.{e}","expert":"e"})"), HasSubstr("needs \"parameter\""));
  EXPECT_THAT(rule_error(R"({"name":"a","parameter":"p","expert":"e"})"), HasSubstr("has no {e}"));
  EXPECT_THAT(rule_error(R"({"name":"a.{e}","parameter":"p.{e}","expert":"e"})"), HasSubstr("cannot stand"));
  EXPECT_THAT(rule_error(R"({"name":"a.{e}","parameter":"p","expert":"e","pad":{"dim":0,"multiple":2}})"),
              HasSubstr("single tensor"));
}

TEST(BuiltinLayouts, AllParseUnderTheirNames) {
  std::vector<std::string> names;
  for (const auto& builtin : builtin_layouts()) {
    const auto layout = builtin_layout(builtin.name);
    ASSERT_TRUE(layout) << builtin.name << ": " << layout.error().message;
    EXPECT_EQ(layout->name, builtin.name);
    names.emplace_back(builtin.name);
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("llama", "qwen3_moe", "deepseek_v3", "replicate"));
  const auto unknown = builtin_layout("gpt2");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(unknown.error().message, HasSubstr("llama"));
}

}  // namespace
}  // namespace weightbus::model
