#include "weightbus/checkpoint/shard_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "temp_folder.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;
using model::Box;
using model::DType;
using model::TrainerRank;
using testing::HasSubstr;

TEST(RowShard, CutsAsFsdpDoes) {
  const model::TensorSpec spec{"w", DType::kF32, {10, 3}};
  EXPECT_EQ(row_shard(spec, TrainerRank(0), 4), (Box{{0, 0}, {3, 3}}));
  EXPECT_EQ(row_shard(spec, TrainerRank(2), 4), (Box{{6, 0}, {3, 3}}));
  EXPECT_EQ(row_shard(spec, TrainerRank(3), 4), (Box{{9, 0}, {1, 3}}));
  const model::TensorSpec five{"w", DType::kF32, {5}};
  EXPECT_EQ(row_shard(five, TrainerRank(2), 4), (Box{{4}, {1}}));
  EXPECT_EQ(row_shard(five, TrainerRank(3), 4), (Box{{5}, {0}})) << "the last rank holds nothing";
}

TEST(RowShard, EveryRowHasOneHolder) {
  for (std::int64_t rows = 0; rows <= 24; ++rows) {
    for (std::uint32_t world = 1; world <= 8; ++world) {
      std::int64_t next = 0;
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        const auto box = row_shard({"w", DType::kU8, {rows}}, TrainerRank(rank), world);
        ASSERT_TRUE(box && fits(*box, {rows})) << rows << " rows, rank " << rank << " of " << world;
        EXPECT_EQ(box->offset[0], next);
        next += box->extent[0];
      }
      EXPECT_EQ(next, rows);
    }
  }
}

TEST(RowShard, ScalarsBelongToRankZero) {
  EXPECT_EQ(row_shard({"s", DType::kF32, {}}, TrainerRank(0), 2), Box{});
  EXPECT_EQ(row_shard({"s", DType::kF32, {}}, TrainerRank(1), 2), std::nullopt);
}

TEST(RowShard, HugeExtentsDoNotOverflow) {
  const auto rows = std::numeric_limits<std::int64_t>::max();
  const auto box = row_shard({"w", DType::kU8, {rows}}, TrainerRank(0xfffffffe), 0xffffffff);
  ASSERT_TRUE(box);
  EXPECT_TRUE(fits(*box, {rows}));
}

class ShardLoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_ / "model.safetensors";
    write_file(path_, raw_safetensors(R"({"m":{"dtype":"U8","shape":[5,3],"data_offsets":[0,15]},
                                          "s":{"dtype":"U16","shape":[],"data_offsets":[15,17]},
                                          "z":{"dtype":"U8","shape":[0,3],"data_offsets":[17,17]}})",
                                      17));
  }
  CheckpointFolder open() {
    auto opened = CheckpointFolder::open(folder_.path());
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(*opened);
  }
  TempFolder folder_;
  std::string path_;
};

TEST_F(ShardLoaderTest, EveryByteArrivesAtOneRank) {
  const auto folder = open();
  const auto data = read_file(path_).substr(std::filesystem::file_size(path_) - 17);
  std::string rows;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const auto manifest = plan_rows(folder, TrainerRank(rank), 3);
    ASSERT_TRUE(manifest);
    EXPECT_EQ(manifest->tensors.size(), 3u) << "each rank knows all tensors";
    ASSERT_EQ(manifest->region_bytes.size(), 1u);
    std::vector<std::byte> region(manifest->region_bytes[0]);
    device::Control control;
    ASSERT_TRUE(load_rows(folder, *manifest, region.data(), control));
    std::uint64_t bytes = 0;
    for (const auto& shard : manifest->shards) {
      const auto& spec = manifest->tensors[shard.tensor];
      EXPECT_EQ(shard.at.offset % kShardAlignment, 0u);
      const auto size = shard.box.volume() * model::dtype_size(spec.dtype);
      bytes += size;
      const std::string content(reinterpret_cast<const char*>(region.data()) + shard.at.offset, size);
      if (spec.name == "m") rows += content;
      if (spec.name == "s") {
        EXPECT_EQ(content, data.substr(15, 2));
      }
    }
    EXPECT_EQ(control.bytes_done, bytes);
  }
  EXPECT_EQ(rows, data.substr(0, 15));
}

TEST_F(ShardLoaderTest, ARankWithoutRowsStillHasARegion) {
  const auto folder = open();
  const auto manifest = plan_rows(folder, TrainerRank(99), 100);
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->region_bytes, std::vector<std::uint64_t>{kShardAlignment});
  std::vector<std::byte> region(kShardAlignment);
  device::Control control;
  EXPECT_TRUE(load_rows(folder, *manifest, region.data(), control));
}

TEST_F(ShardLoaderTest, RefusesARankThatDoesNotExist) {
  const auto folder = open();
  const auto manifest = plan_rows(folder, TrainerRank(2), 2);
  ASSERT_FALSE(manifest);
  EXPECT_EQ(manifest.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ShardLoaderTest, ACancelledLoadStops) {
  const auto folder = open();
  const auto manifest = plan_rows(folder, TrainerRank(0), 1);
  std::vector<std::byte> region(manifest->region_bytes[0]);
  device::Control control;
  control.cancelled = true;
  const auto status = load_rows(folder, *manifest, region.data(), control);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kAborted);
  EXPECT_EQ(control.bytes_done, 0u);
}

TEST_F(ShardLoaderTest, RefusesAnotherModelsManifest) {
  const auto folder = open();
  const auto good = *plan_rows(folder, TrainerRank(0), 2);
  std::vector<std::byte> region(good.region_bytes[0]);
  device::Control control;
  const auto message = [&](const model::SourceManifest& manifest) {
    const auto status = load_rows(folder, manifest, region.data(), control);
    return status ? std::string("no error") : status.error().message;
  };
  auto bad = good;
  bad.tensors[0].shape = {5, 4};
  EXPECT_THAT(message(bad), HasSubstr("[5, 3]"));
  bad = good;
  bad.tensors[0].name = "other";
  EXPECT_THAT(message(bad), HasSubstr("no tensor other"));
  bad = good;
  bad.shards[0].at.offset = good.region_bytes[0] - 1;
  EXPECT_THAT(message(bad), HasSubstr("inside its region"));
  bad = good;
  bad.shards[0].box.extent[1] = 2;
  EXPECT_THAT(message(bad), HasSubstr("whole rows"));
  bad = good;
  bad.shards[0].at.strides = {1, 5};
  EXPECT_THAT(message(bad), HasSubstr("densely"));
  bad = good;
  bad.shards[0].tensor = 77;
  EXPECT_THAT(message(bad), HasSubstr("tensor 77 of 3"));
  bad = good;
  bad.region_bytes.push_back(64);
  EXPECT_THAT(message(bad), HasSubstr("one region"));
  bad = good;
  bad.shards[0].box.offset[0] = 4;
  EXPECT_THAT(message(bad), HasSubstr("not inside the tensor"));
}

TEST_F(ShardLoaderTest, AFileThatShrinksOrChangesIsReported) {
  const auto folder = open();
  const auto manifest = *plan_rows(folder, TrainerRank(0), 1);
  std::vector<std::byte> region(manifest.region_bytes[0]);
  device::Control control;
  std::filesystem::last_write_time(path_, std::filesystem::last_write_time(path_) + std::chrono::seconds(1));
  auto status = load_rows(folder, manifest, region.data(), control);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kConflict);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 10);
  status = load_rows(folder, manifest, region.data(), control);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupted);
  EXPECT_THAT(status.error().message, HasSubstr("cut short"));
}

}  // namespace
}  // namespace weightbus::checkpoint
