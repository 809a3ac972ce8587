#include "weightbus/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temp_folder.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;
using testing::AllOf;
using testing::HasSubstr;

std::string one_tensor(std::string_view name, std::size_t bytes = 4) {
  return raw_safetensors(
      fmt::format(R"({{"{}":{{"dtype":"U8","shape":[{}],"data_offsets":[0,{}]}}}})", name, bytes, bytes), bytes);
}

class CheckpointFolderTest : public testing::Test {
 protected:
  void write(std::string_view name, std::string_view content) { write_file(folder_ / name, content); }
  std::string error(ErrorCode expected = ErrorCode::kCorrupted) {
    const auto opened = CheckpointFolder::open(folder_.path());
    if (opened) return "no error";
    EXPECT_EQ(opened.error().code, expected) << opened.error().message;
    return opened.error().message;
  }
  TempFolder folder_;
};

TEST_F(CheckpointFolderTest, OpensASingleFile) {
  write("model.safetensors", one_tensor("w"));
  const auto folder = CheckpointFolder::open(folder_.path());
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(folder->tensors().size(), 1u);
  EXPECT_EQ(folder->bytes(), 4u);
  EXPECT_TRUE(folder->find("w"));
  EXPECT_FALSE(folder->find("v"));
  EXPECT_TRUE(folder->aliases().empty());
}

TEST_F(CheckpointFolderTest, OpensTheOnlyFileWhateverItsName) {
  write("weights.safetensors", one_tensor("w"));
  EXPECT_EQ(error(), "no error");
  write("more.safetensors", one_tensor("v"));
  EXPECT_THAT(error(ErrorCode::kNotFound), HasSubstr("holds 2 safetensors files"));
}

TEST_F(CheckpointFolderTest, OpensFilesThroughTheIndexSortedByName) {
  write("a.safetensors", one_tensor("z"));
  write("b.safetensors", one_tensor("c", 6));
  write("unrelated.safetensors", "not opened");
  write("model.safetensors.index.json",
        R"({"metadata":{"total_size":10},"weight_map":{"z":"a.safetensors","c":"b.safetensors"}})");
  const auto folder = CheckpointFolder::open(folder_.path());
  ASSERT_TRUE(folder) << folder.error().message;
  ASSERT_EQ(folder->tensors().size(), 2u);
  EXPECT_EQ(folder->tensors()[0].name, "c");
  EXPECT_EQ(folder->tensors()[1].name, "z");
  EXPECT_EQ(folder->file_of(0).path(), folder_ / "b.safetensors");
  EXPECT_EQ(folder->entry_of(1).spec.name, "z");
  EXPECT_EQ(folder->bytes(), 10u);
}

TEST_F(CheckpointFolderTest, RefusesFoldersWithoutACheckpoint) {
  EXPECT_THAT(error(ErrorCode::kNotFound), HasSubstr("no safetensors file"));
  const auto missing = CheckpointFolder::open(folder_ / "nowhere");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("nowhere"));
  write("model.safetensors", raw_safetensors("{}", 0));
  EXPECT_THAT(error(), HasSubstr("no tensor"));
}

TEST_F(CheckpointFolderTest, RefusesAnIndexThatNamesWhatIsNotThere) {
  write("a.safetensors", one_tensor("z"));
  write("model.safetensors.index.json", R"({"weight_map":{"z":"a.safetensors","c":"b.safetensors"}})");
  EXPECT_THAT(error(ErrorCode::kNotFound), AllOf(HasSubstr("b.safetensors"), HasSubstr("tensor c")));
  write("model.safetensors.index.json", R"({"weight_map":{"z":"a.safetensors","c":"a.safetensors"}})");
  EXPECT_THAT(error(), AllOf(HasSubstr("a.safetensors holds tensor c"), HasSubstr("does not")));
  write("b.safetensors", one_tensor("c"));
  write("model.safetensors.index.json", R"({"weight_map":{"z":"b.safetensors","c":"a.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("not listed for this file"));
}

TEST_F(CheckpointFolderTest, RefusesTensorsThatTheIndexLeavesOut) {
  write("a.safetensors", raw_safetensors(R"({"z":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                                             "extra":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                         2));
  write("model.safetensors.index.json", R"({"weight_map":{"z":"a.safetensors"}})");
  EXPECT_THAT(error(), AllOf(HasSubstr("extra"), HasSubstr("a.safetensors")));
}

TEST_F(CheckpointFolderTest, NamesTheFileOfAFaultBehindAnIndex) {
  write("a.safetensors", "");
  write("model.safetensors.index.json", R"({"weight_map":{"z":"a.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("a.safetensors is 0 bytes long"));
}

TEST_F(CheckpointFolderTest, RefusesMalformedIndexes) {
  for (const char* index : {"", "{", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})", "{\"\xff\":1}",
                            R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})"}) {
    write("model.safetensors.index.json", index);
    EXPECT_THAT(error(), HasSubstr("index.json")) << index;
  }
}

TEST(ParseIndex, RefusesPathsThatLeadOutOfTheFolder) {
  for (const char* file : {"../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..", ".", "", "passwd",
                           ".safetensors", "x\\u0000.safetensors"}) {
    const auto index = parse_index(fmt::format(R"({{"weight_map":{{"w":"{}"}}}})", file));
    ASSERT_FALSE(index) << file;
    EXPECT_THAT(index.error().message, HasSubstr("tensor w"));
  }
}

TEST(ParseIndex, RefusesDeepNesting) {
  std::string text = R"({"metadata":)";
  text += std::string(10000, '[') + std::string(10000, ']');
  const auto index = parse_index(text + "}");
  ASSERT_FALSE(index);
  EXPECT_THAT(index.error().message, HasSubstr("nested deeper"));
}

TEST_F(CheckpointFolderTest, TiedWeightsBecomeAliases) {
  write("model.safetensors", one_tensor("model.embed_tokens.weight"));
  write("config.json", R"({"tie_word_embeddings":true})");
  const auto folder = CheckpointFolder::open(folder_.path());
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->aliases(), (std::vector<model::Alias>{{"lm_head.weight", "model.embed_tokens.weight"}}));
}

TEST_F(CheckpointFolderTest, TiesOfAMultimodalModelKeepThePrefix) {
  write("model.safetensors", one_tensor("language_model.model.embed_tokens.weight"));
  write("config.json", R"({"text_config":{"tie_word_embeddings":true}})");
  const auto folder = CheckpointFolder::open(folder_.path());
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->aliases(),
            (std::vector<model::Alias>{{"language_model.lm_head.weight", "language_model.model.embed_tokens.weight"}}));
}

TEST_F(CheckpointFolderTest, NoAliasWithoutATieOrBesideARealTensor) {
  write("model.safetensors", one_tensor("model.embed_tokens.weight"));
  write("config.json", R"({"tie_word_embeddings":false})");
  EXPECT_TRUE(CheckpointFolder::open(folder_.path())->aliases().empty());
  write("config.json", R"({"tie_word_embeddings":true})");
  write("model.safetensors",
        raw_safetensors(R"({"model.embed_tokens.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                                                 "lm_head.weight":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                        2));
  EXPECT_TRUE(CheckpointFolder::open(folder_.path())->aliases().empty());
}

TEST_F(CheckpointFolderTest, RefusesAMalformedConfiguration) {
  write("model.safetensors", one_tensor("w"));
  for (const char* config :
       {"", "[]", R"({"tie_word_embeddings":"yes"})", R"({"head_dim":-3})", R"({"head_dim":1.5})"}) {
    write("config.json", config);
    EXPECT_THAT(error(), HasSubstr("config.json")) << config;
  }
}

TEST(ParseConfig, GivesTheNumbersThatLayoutsName) {
  const auto plain = parse_config(R"({"hidden_size":1024,"num_attention_heads":16,"num_key_value_heads":8})");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->numbers.at("head_dim"), 64u);
  EXPECT_EQ(plain->numbers.at("num_key_value_heads"), 8u);
  EXPECT_FALSE(plain->numbers.contains("vocab_size"));
  const auto stated = parse_config(R"({"hidden_size":1024,"num_attention_heads":16,"head_dim":128})");
  ASSERT_TRUE(stated);
  EXPECT_EQ(stated->numbers.at("head_dim"), 128u);
  EXPECT_TRUE(parse_config(R"({"num_attention_heads":0,"hidden_size":4,"head_dim":null})"));
}

}  // namespace
}  // namespace weightbus::checkpoint
