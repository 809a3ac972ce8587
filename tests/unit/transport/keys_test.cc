#include "weightbus/transport/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace weightbus::transport {
namespace {

using base::ErrorCode;
using testing::HasSubstr;

class Keys : public testing::Test {
 protected:
  Keys() {
    auto pattern = (std::filesystem::temp_directory_path() / "weightbus-keys-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Keys() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  void write(const char* name, const std::string& text, mode_t mode) const {
    std::ofstream(path(name)) << text;
    ASSERT_EQ(::chmod(path(name).c_str(), mode), 0);
  }
  std::filesystem::path folder_;
};

TEST_F(Keys, AreReadAsTheyWereWritten) {
  const auto keys = generate_keys();
  ASSERT_TRUE(keys);
  EXPECT_TRUE(is_key(keys->public_key));
  EXPECT_NE(generate_keys()->secret_key, keys->secret_key);
  ASSERT_TRUE(save_keys(path("k"), *keys));
  struct stat status {};
  ASSERT_EQ(::stat(path("k").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  EXPECT_EQ(load_keys(path("k")).value(), *keys);
}

TEST_F(Keys, AreNeverOverwritten) {
  const auto keys = generate_keys().value();
  ASSERT_TRUE(save_keys(path("k"), keys));
  const auto again = save_keys(path("k"), generate_keys().value());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kConflict);
  EXPECT_EQ(load_keys(path("k")).value(), keys);
}

TEST_F(Keys, AreRefusedWhenOthersCanReadThem) {
  ASSERT_TRUE(save_keys(path("k"), generate_keys().value()));
  for (const mode_t mode : {0640U, 0604U, 0660U}) {
    ASSERT_EQ(::chmod(path("k").c_str(), mode), 0);
    const auto loaded = load_keys(path("k"));
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, ErrorCode::kPermissionDenied);
    EXPECT_THAT(loaded.error().message, HasSubstr("chmod 600"));
  }
}

TEST_F(Keys, BadFilesAreNamed) {
  EXPECT_EQ(load_keys(path("missing")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(load_keys(folder_.string()).error().code, ErrorCode::kInvalidArgument);
  const auto a = generate_keys().value();
  const auto b = generate_keys().value();
  write("mixed", fmt::format("public {}\nsecret {}\n", a.public_key, b.secret_key), 0600);
  EXPECT_THAT(load_keys(path("mixed")).error().message, HasSubstr("does not belong"));
  write("half", fmt::format("public {}\n", a.public_key), 0600);
  EXPECT_EQ(load_keys(path("half")).error().code, ErrorCode::kCorrupted);
  write("noise", "# fine\npublic nonsense\n", 0600);
  EXPECT_THAT(load_keys(path("noise")).error().message, HasSubstr("noise:2: "));
  write("empty", "", 0600);
  EXPECT_EQ(load_keys(path("empty")).error().code, ErrorCode::kCorrupted);
  write("huge", std::string((1U << 20) + 1, ' '), 0600);
  EXPECT_EQ(load_keys(path("huge")).error().code, ErrorCode::kInvalidArgument);
}

const std::string kKeyA(40, 'a');
const std::string kKeyHash = "#" + std::string(39, 'b');

TEST_F(Keys, AllowListIsParsed) {
  const auto text = "# people\n\n#\n" + kKeyA + " engine-agent e0 rack 7, left\r\n  " + kKeyHash + "\tadmin *\n";
  const auto list = AllowList::parse(text, "allow");
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->size(), 2U);
  ASSERT_NE(list->find(kKeyA), nullptr);
  EXPECT_EQ(*list->find(kKeyA), (AllowEntry{kKeyA, model::Role::kEngineAgent, model::MemberId("e0"), "rack 7, left"}));
  ASSERT_NE(list->find(kKeyHash), nullptr);  // a key may begin with '#'
  EXPECT_EQ(list->find(kKeyHash)->role, model::Role::kAdmin);
  EXPECT_EQ(list->find(std::string(40, 'c')), nullptr);
}

TEST_F(Keys, AllowListErrorsNameTheLine) {
  const std::pair<std::string, const char*> cases[] = {
      {"nonsense admin x", "allow:1: 'nonsense' is no public key"},
      {"\n\n" + kKeyA + " king x", "allow:3: 'king' is no role"},
      {kKeyA, "allow:1: '' is no role"},
      {kKeyA + " admin", "allow:1: no member name"},
      {kKeyA + " admin x\n" + kKeyA + " admin y", "allow:2: this key stands in line 1"},
      {"#comment without a blank", "begins with '# '"},
  };
  for (const auto& [text, message] : cases) {
    const auto list = AllowList::parse(text, "allow");
    ASSERT_FALSE(list) << text;
    EXPECT_EQ(list.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(list.error().message, HasSubstr(message));
  }
}

TEST_F(Keys, AllowListFilesAreGuarded) {
  EXPECT_EQ(AllowList::load(path("missing")).error().code, ErrorCode::kNotFound);
  write("allow", kKeyA + " admin x\n", 0666);
  EXPECT_EQ(AllowList::load(path("allow")).error().code, ErrorCode::kPermissionDenied);
  write("allow", kKeyA + " admin x\n", 0644);
  EXPECT_EQ(AllowList::load(path("allow"))->size(), 1U);
}

TEST_F(Keys, EntriesAreAppendedOnce) {
  const AllowEntry first{kKeyA, model::Role::kShardAgent, model::MemberId("s0"), ""};
  const AllowEntry second{kKeyHash, model::Role::kCoordinator, model::MemberId("c"), "the one"};
  ASSERT_TRUE(append_allowed(path("allow"), first));
  std::ofstream(path("allow"), std::ios::app) << "# no newline at the end";
  ASSERT_TRUE(append_allowed(path("allow"), second));
  EXPECT_EQ(append_allowed(path("allow"), first).error().code, ErrorCode::kConflict);
  const auto list = AllowList::load(path("allow"));
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->size(), 2U);
  EXPECT_EQ(*list->find(kKeyHash), second);
  AllowEntry two_lines = second;
  two_lines.key = std::string(40, 'd');
  two_lines.comment = "a\n" + std::string(40, 'e') + " admin *";
  EXPECT_EQ(append_allowed(path("allow"), two_lines).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(AllowList::load(path("allow"))->size(), 2U);
}

}  // namespace
}  // namespace weightbus::transport
