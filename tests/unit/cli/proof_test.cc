#include "cli/proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/checkpoint_digest.h"
#include "weightbus/checkpoint/synthetic.h"
#include "weightbus/plan/digest.h"

namespace weightbus::cli {
namespace {

using checkpoint::CheckpointFolder;
using testing::HasSubstr;

class ProofTest : public testing::Test {
 protected:
  void SetUp() override {
    path = std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(path);
    device::Control control;
    const auto written = checkpoint::write_synthetic(path.string(), {}, control);
    ASSERT_TRUE(written) << written.error().message;
    auto opened = CheckpointFolder::open(path.string());
    ASSERT_TRUE(opened) << opened.error().message;
    folder.emplace(std::move(*opened));
  }
  void TearDown() override { std::filesystem::remove_all(path); }

  // As an engine would give it, from the whole tensor in memory.
  protocol::SlotDigest slot(const std::string& held, const std::string& name, bool columns) const {
    const auto index = folder->find(held);
    EXPECT_TRUE(index) << held;
    model::TensorSpec spec = folder->tensors()[*index];
    spec.name = name;
    std::vector<std::byte> bytes(*checkpoint::tensor_bytes(spec));
    EXPECT_TRUE(folder->file_of(*index).read(folder->entry_of(*index), 0, bytes));
    model::Box box{model::Dims::filled(spec.shape.size(), 0), spec.shape};
    const std::size_t cut = columns ? spec.shape.size() - 1 : 0;
    box.extent[cut] /= 2;
    box.offset[cut] = spec.shape[cut] - box.extent[cut];
    const auto strides = model::dense_strides(spec.shape);
    const std::uint32_t element = model::dtype_size(spec.dtype);
    const auto begin = static_cast<std::size_t>(box.offset[cut] * strides[cut]) * element;
    const auto seed = plan::digest_seed(spec.name, spec.shape, spec.dtype, element);
    return {spec, box, plan::digest_box(bytes.data() + begin, strides, element, box, spec.shape, seed, element)};
  }

  static protocol::EngineDigests rank(const char* member, std::uint64_t version,
                                      std::vector<protocol::SlotDigest> slots) {
    return {model::MemberId{member}, "engine-0", protocol::Tag{model::WeightVersion{version}, {}, model::UpdateId{1}},
            std::move(slots)};
  }
  Proof prove(const protocol::VerifyReply& live) {
    Proof proof = compare_ranks(live, model::WeightVersion{3});
    const auto compared = compare_with(*folder, live, proof);
    EXPECT_TRUE(compared) << compared.error().message;
    return proof;
  }

  static constexpr const char* kProjection = "model.layers.0.mlp.down_proj.weight";
  std::filesystem::path path;
  std::optional<CheckpointFolder> folder;
};

TEST_F(ProofTest, BoxesOfRowsAndColumnsAndTiedNamesAreEqual) {
  const protocol::VerifyReply live{{rank("a", 3,
                                         {slot(kProjection, kProjection, false), slot(kProjection, kProjection, true),
                                          slot("model.norm.weight", "model.norm.weight", false),
                                          slot("model.embed_tokens.weight", "lm_head.weight", false)})}};
  const auto proof = prove(live);
  EXPECT_TRUE(proof.good());
  EXPECT_EQ(proof.ranks.at(0).equal, 4U);
  EXPECT_EQ(proof.unused_tensors, folder->tensors().size() - 3);
  EXPECT_EQ(to_json(proof)["verified"], true);
}

TEST_F(ProofTest, OneWrongDigestIsNamed) {
  auto wrong = slot(kProjection, kProjection, true);
  ++wrong.digest.lane1;
  const auto proof = prove({{rank("a", 3, {slot(kProjection, kProjection, false)}), rank("b", 3, {wrong})}});
  ASSERT_EQ(proof.differences.size(), 1U);
  EXPECT_EQ(proof.differences[0].member, "b");
  EXPECT_EQ(proof.differences[0].tensor, kProjection);
  std::ostringstream sink;
  EXPECT_THAT(proof_text(proof, Console{sink, sink}), HasSubstr("has other bytes than the checkpoint"));
  EXPECT_EQ(to_json(proof)["verified"], false);
}

TEST_F(ProofTest, CastsAreNotComparableAndForeignTensorsDiffer) {
  auto cast = slot(kProjection, kProjection, false);
  cast.tensor.dtype = model::DType::kF32;
  auto foreign = slot(kProjection, "model.foreign.weight", false);
  auto reshaped = slot(kProjection, kProjection, true);
  reshaped.tensor.shape[0] += 1;
  const auto proof = prove({{rank("a", 3, {cast, foreign, reshaped})}});
  EXPECT_EQ(proof.ranks[0].not_comparable, 1U);
  ASSERT_EQ(proof.differences.size(), 2U);
  EXPECT_EQ(proof.differences[0].what, "is not in the checkpoint");
  EXPECT_THAT(proof.differences[1].what, HasSubstr("has shape"));
}

TEST_F(ProofTest, ABoxOutsideItsTensorIsAnError) {
  auto outside = slot(kProjection, kProjection, false);
  outside.box.offset[0] += 1;
  const protocol::VerifyReply live{{rank("a", 3, {outside})}};
  Proof proof = compare_ranks(live, std::nullopt);
  const auto compared = compare_with(*folder, live, proof);
  ASSERT_FALSE(compared);
  EXPECT_EQ(compared.error().code, base::ErrorCode::kCorrupted);
}

TEST_F(ProofTest, RanksMustAgreeWithEachOtherAndWithTheCommittedVersion) {
  const auto good = slot(kProjection, kProjection, false);
  auto bad = good;
  ++bad.digest.lane0;
  EXPECT_TRUE(compare_ranks({{rank("a", 3, {good}), rank("b", 3, {good})}}, model::WeightVersion{3}).good());
  EXPECT_EQ(compare_ranks({{rank("a", 3, {good}), rank("b", 3, {good})}}, std::nullopt).version, 3U);
  const auto differ = compare_ranks({{rank("a", 3, {good}), rank("b", 3, {bad})}}, model::WeightVersion{3});
  ASSERT_EQ(differ.differences.size(), 1U);
  EXPECT_THAT(differ.differences[0].what, HasSubstr("differs from a"));
  const auto behind = compare_ranks({{rank("a", 3, {good}), rank("b", 2, {bad})}}, model::WeightVersion{3});
  ASSERT_EQ(behind.differences.size(), 1U);
  EXPECT_EQ(behind.differences[0].what, "serves version 2, not 3");
  EXPECT_FALSE(behind.version);
  auto empty = rank("c", 3, {});
  empty.live.reset();
  EXPECT_FALSE(compare_ranks({{empty}}, model::WeightVersion{3}).good());
}

TEST(RequireAllRanks, ARankThatDidNotAnswerIsNotProven) {
  const model::Member member{model::MemberId{"engine-0-tp0"},
                             model::Role::kEngineAgent,
                             model::ModelName{"m"},
                             model::HostId{"h"},
                             "",
                             0,
                             2,
                             "engine-0"};
  protocol::VerifyReply live;
  live.engines.push_back({member.id, "engine-0", std::nullopt, {}});
  Proof proof;
  require_all_ranks({protocol::MemberStatus{member}}, live, proof);
  ASSERT_EQ(proof.differences.size(), 1U);
  EXPECT_EQ(proof.differences[0].member, "engine-0");
  EXPECT_FALSE(proof.good());
  live.engines.push_back({model::MemberId{"engine-0-tp1"}, "engine-0", std::nullopt, {}});
  Proof whole;
  require_all_ranks({protocol::MemberStatus{member}}, live, whole);
  EXPECT_TRUE(whole.good());
}

}  // namespace
}  // namespace weightbus::cli
