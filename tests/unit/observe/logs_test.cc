#include "weightbus/observe/logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

namespace weightbus::observe {
namespace {

constexpr const char* kTime = "2026-01-31T12:34:56.789Z";

TEST(Logs, TextIsReadable) {
  EXPECT_EQ(
      format_text(kTime, Level::kInfo, "update.committed",
                  {{"model", "qwen"}, {"version", 7}, {"ok", true}, {"seconds", 0.25}, {"by", std::string("me")}},
                  {{"member", "c0"}}),
      "2026-01-31T12:34:56.789Z info  update.committed model=qwen version=7 ok=true seconds=0.25 by=me member=c0");
}

TEST(Logs, TextOfOthersCannotForgeLinesOrFields) {
  const auto line = format_text(kTime, Level::kWarn, "peer", {{"name", "a b\nERROR x=1\x1b[31m"}, {"empty", ""}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_THAT(line, testing::HasSubstr(R"(name="a b\nERROR x=1\u001b[31m" empty="")"));
  const auto broken = format_text(kTime, Level::kWarn, "peer", {{"name", "\xff\xfe"}});
  EXPECT_THAT(broken, testing::HasSubstr("\xef\xbf\xbd"));
}

TEST(Logs, JsonKeepsTypesAndIsAlwaysJson) {
  const auto line = format_json(kTime, Level::kError, "store.failed",
                                {{"version", std::uint64_t{18446744073709551615U}},
                                 {"delta", -3},
                                 {"ok", false},
                                 {"rate", 1.5},
                                 {"none", std::numeric_limits<double>::quiet_NaN()},
                                 {"text", "\"\\\n\xff"}},
                                {{"member", "c0"}});
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json.at("time"), kTime);
  EXPECT_EQ(json.at("level"), "error");
  EXPECT_EQ(json.at("event"), "store.failed");
  EXPECT_EQ(json.at("member"), "c0");
  EXPECT_EQ(json.at("version"), 18446744073709551615U);
  EXPECT_EQ(json.at("delta"), -3);
  EXPECT_EQ(json.at("ok"), false);
  EXPECT_EQ(json.at("rate"), 1.5);
  EXPECT_EQ(json.at("none"), "nan");
  EXPECT_EQ(json.at("text"), "\"\\\n\xef\xbf\xbd");
}

TEST(Logs, LongValuesAreCut) {
  const auto line = format_text(kTime, Level::kInfo, "x", {{"v", std::string(1U << 20, 'a')}});
  EXPECT_LT(line.size(), 5000U);
  EXPECT_THAT(line, testing::HasSubstr("1048576 bytes"));
}

TEST(Logs, LevelsAreParsed) {
  for (const auto level : {Level::kDebug, Level::kInfo, Level::kWarn, Level::kError}) {
    EXPECT_EQ(parse_level(level_name(level)).value(), level);
  }
  EXPECT_EQ(parse_level("INFO").error().code, base::ErrorCode::kInvalidArgument);
}

TEST(Logs, LinesReachTheSinkWholeFromManyThreads) {
  std::vector<std::string> lines;
  configure_logs({Level::kInfo, true, {{"member", "m"}}, [&lines](const std::string& line) { lines.push_back(line); }});
  EXPECT_TRUE(is_logged(Level::kWarn));
  EXPECT_FALSE(is_logged(Level::kDebug));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) {
        log(Level::kInfo, "tick", {{"thread", t}, {"i", i}, {"text", "{}%v"}});
        log(Level::kDebug, "never", {});
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  configure_logs({});
  ASSERT_EQ(lines.size(), 200U);
  for (const auto& line : lines) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json.at("event"), "tick");
    EXPECT_EQ(json.at("text"), "{}%v");
  }
}

}  // namespace
}  // namespace weightbus::observe
