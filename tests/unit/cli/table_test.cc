#include "cli/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/format.h"

namespace weightbus::cli {
namespace {

Table sample_table() {
  Table table({{"member"}, {"bytes", Align::kRight}, {"note"}});
  table.add({"engine-0", "1.20 GB", ""});
  table.add({"b", "7 B", "a long note that says what went wrong with this engine and what to do about it"});
  return table;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

TEST(TableTest, AlignsColumnsAndLeavesNoTrailingSpaces) {
  std::ostringstream sink;
  const Console plain{sink, sink};
  const auto lines = lines_of(sample_table().render(plain, 100));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "member      bytes  note");
  EXPECT_EQ(lines[1], "engine-0  1.20 GB");
  EXPECT_EQ(lines[2].substr(0, 24), "b             7 B  a lon");
}

TEST(TableTest, TheWidestColumnGivesWay) {
  std::ostringstream sink;
  const Console plain{sink, sink};
  for (int width = 30; width <= 100; width += 7) {
    for (const auto& line : lines_of(sample_table().render(plain, width))) {
      EXPECT_LE(text_columns(line), static_cast<std::size_t>(width)) << line;
    }
  }
  EXPECT_THAT(sample_table().render(plain, 40), testing::HasSubstr("..."));
}

TEST(TableTest, ColoursDoNotMoveColumns) {
  std::ostringstream sink;
  const Console colour{sink, sink, true, true, true};
  Table table({{"state"}, {"next"}});
  table.add({Cell("ok", Style::kGood), "x"});
  const auto lines = lines_of(table.render(colour, 100));
  EXPECT_EQ(lines[1], "\033[32mok\033[0m     x");
}

TEST(TextTest, FitsByCharactersAndDropsControls) {
  EXPECT_EQ(fit_text("short", 10), "short");
  EXPECT_EQ(fit_text("a longer text", 8), "a lon...");
  EXPECT_EQ(text_columns("\u00e4\u00f6\u00fc"), 3U);
  EXPECT_EQ(fit_text("\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc", 5), "\u00e4\u00f6...");
  EXPECT_EQ(fit_text("bad\033[2Jname\n", 30), "bad [2Jname ");
}

TEST(TextTest, WrapsAtSpaces) {
  EXPECT_EQ(wrap_text("one two three four", 10, 2), "  one two\n  three\n  four\n");
  EXPECT_EQ(wrap_text("", 10, 2), "");
  EXPECT_EQ(wrap_text("averyveryverylongword x", 10, 0), "averyveryverylongword\nx\n");
}

TEST(FormatTest, WritesNumbersForPeople) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(999), "999 B");
  EXPECT_EQ(format_size(1'192'000'000), "1.19 GB");
  EXPECT_EQ(format_size(999'960), "1.00 MB");
  EXPECT_EQ(format_size(UINT64_MAX), "18.4 EB");
  EXPECT_EQ(format_rate(3.42e9), "3.42 GB/s");
  EXPECT_EQ(format_rate(40e6), "40.0 MB/s");
  EXPECT_EQ(format_rate(0), "-");
  EXPECT_EQ(format_nanos(812'000), "812 us");
  EXPECT_EQ(format_nanos(4'210'000), "4.21 ms");
  EXPECT_EQ(format_nanos(200'000'000'000), "3 min 20 s");
  EXPECT_EQ(format_left(6.2), "0:07");
  EXPECT_EQ(format_left(3723), "1:02:03");
  EXPECT_EQ(format_age(450), "0.4 s");
  EXPECT_EQ(format_age(300'000), "5 min");
  EXPECT_EQ(rate_of(100, 0), 0);
  EXPECT_EQ(rate_of(5, 1'000'000'000), 5);
}

}  // namespace
}  // namespace weightbus::cli
