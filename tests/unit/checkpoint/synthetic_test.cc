#include "weightbus/checkpoint/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "temp_folder.h"
#include "weightbus/checkpoint/checkpoint_folder.h"
#include "weightbus/checkpoint/layout_file.h"
#include "weightbus/checkpoint/shard_loader.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;
using testing::HasSubstr;

std::map<std::string, std::string> contents(const std::string& directory) {
  const auto folder = CheckpointFolder::open(directory);
  EXPECT_TRUE(folder) << folder.error().message;
  std::map<std::string, std::string> all;
  for (std::size_t i = 0; folder && i < folder->tensors().size(); ++i) {
    const auto& entry = folder->entry_of(i);
    auto& bytes = all[folder->tensors()[i].name];
    bytes.resize(entry.end - entry.begin);
    EXPECT_TRUE(folder->file_of(i).read(entry, 0, std::as_writable_bytes(std::span(bytes))));
  }
  return all;
}

TEST(Synthetic, MakesACheckpointThatOpens) {
  TempFolder temp;
  device::Control control;
  const auto made = write_synthetic(temp / "model", {}, control);
  ASSERT_TRUE(made) << made.error().message;
  const auto folder = CheckpointFolder::open(temp / "model");
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(folder->bytes(), made->bytes);
  EXPECT_EQ(control.bytes_done, made->bytes);
  EXPECT_EQ(folder->tensors().size(), made->tensors);
  EXPECT_EQ(folder->files().size(), 3u);
  EXPECT_EQ(made->files, 3u);
  EXPECT_TRUE(made->changed.empty());
  EXPECT_EQ(folder->aliases(), (std::vector<model::Alias>{{"lm_head.weight", "model.embed_tokens.weight"}}));
  EXPECT_EQ(folder->config().numbers.at("head_dim"), 18u);
}

TEST(Synthetic, ValuesAreFiniteAndVary) {
  TempFolder temp;
  device::Control control;
  ASSERT_TRUE(write_synthetic(temp.path(), {}, control));
  for (const auto& [name, bytes] : contents(temp.path())) {
    std::set<std::uint16_t> distinct;
    for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
      std::uint16_t half = 0;
      std::memcpy(&half, bytes.data() + i, 2);
      const std::uint32_t wide = std::uint32_t{half} << 16;
      float value = 0;
      std::memcpy(&value, &wide, 4);
      ASSERT_TRUE(std::abs(value) >= 1.0f / 128 && std::abs(value) < 1.0f / 32) << name << ": " << value;
      distinct.insert(half);
    }
    EXPECT_GT(distinct.size(), 10u) << name;
  }
}

TEST(Synthetic, EqualOptionsGiveEqualBytesAndVariantsDiffer) {
  TempFolder temp;
  device::Control control;
  ASSERT_TRUE(write_synthetic(temp / "a", {}, control));
  ASSERT_TRUE(write_synthetic(temp / "b", {}, control));
  const auto all = write_synthetic(temp / "c", {SyntheticSize::kTiny, 1, 2, 1.0}, control);
  const auto some = write_synthetic(temp / "d", {SyntheticSize::kTiny, 1, 3, 0.25}, control);
  const auto one = write_synthetic(temp / "e", {SyntheticSize::kTiny, 1, 3, 0.0001}, control);
  ASSERT_TRUE(all && some && one);
  const auto base = contents(temp / "a");
  EXPECT_EQ(base, contents(temp / "b"));
  EXPECT_EQ(all->changed.size(), base.size());
  EXPECT_EQ(some->changed.size(), base.size() / 4);
  EXPECT_EQ(one->changed.size(), 1u);
  for (const auto& [folder, made] : {std::pair("c", &*all), std::pair("d", &*some), std::pair("e", &*one)}) {
    std::vector<std::string> differing;
    for (const auto& [name, bytes] : contents(temp / folder)) {
      if (bytes != base.at(name)) differing.push_back(name);
    }
    EXPECT_THAT(made->changed, testing::UnorderedElementsAreArray(differing));
  }
}

TEST(Synthetic, RefusesAFolderInUse) {
  TempFolder temp;
  device::Control control;
  write_file(temp / "config.json", "{}");
  const auto made = write_synthetic(temp.path(), {}, control);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kConflict);
  EXPECT_EQ(read_file(temp / "config.json"), "{}");
  control.cancelled = true;
  const auto cancelled = write_synthetic(temp / "new", {}, control);
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, ErrorCode::kAborted);
}

TEST(Synthetic, TheLargestIsQwen3) {
  std::uint64_t bytes = 0;
  for (const auto& spec : synthetic_tensors(SyntheticSize::k06B))
    bytes += *tensor_bytes(spec);
  EXPECT_EQ(bytes, 2u * 596'049'920u);  // the parameters of Qwen3-0.6B
  EXPECT_EQ(parse_synthetic_size("0.6b"), SyntheticSize::k06B);
  EXPECT_EQ(parse_synthetic_size("7b"), std::nullopt);
}

TEST(LoadLayout, ByNameOrByPath) {
  TempFolder temp;
  EXPECT_TRUE(load_layout("llama"));
  const auto unknown = load_layout("nothing");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  write_file(temp / "mine.json", R"({"weightbus_layout":1,"name":"mine","rules":[{"name":"*"}]})");
  const auto mine = load_layout(temp / "mine.json");
  ASSERT_TRUE(mine);
  EXPECT_EQ(mine->name, "mine");
  write_file(temp / "bad.json", "{}");
  const auto bad = load_layout(temp / "bad.json");
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("bad.json"));
}

}  // namespace
}  // namespace weightbus::checkpoint
