// The documents name what there is: every message, every journal record, every field case with the tests that hold it.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <variant>

#include "weightbus/protocol/journal.h"
#include "weightbus/protocol/messages.h"
#include "weightbus/wire/bodies.h"

namespace weightbus::field {
namespace {

using Names = std::set<std::string>;

std::string read(const std::string& name) {
  std::ifstream file(std::string(WEIGHTBUS_DOCS) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}
// What stands in backticks at the beginning of the rows of the table below `heading`.
Names rows(const std::string& text, const std::string& heading) {
  Names names;
  std::istringstream lines(text.substr(std::min(text.size(), text.find("\n## " + heading + "\n"))));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  while (std::getline(lines, line) && line.rfind("## ", 0) != 0) {
    std::smatch match;
    if (std::regex_search(line, match, std::regex("^\\| `([A-Za-z]+)` \\|"))) {
      EXPECT_TRUE(names.insert(match[1]).second) << match[1] << " stands twice";
    }
  }
  return names;
}

TEST(Documents, TheProtocolNamesEveryMessageAndNoOther) {
#define WB_NAME(type, field, upper) #type,
  const Names messages{WB_FOR_EACH_BODY(WB_NAME)};
  const Names records{WB_FOR_EACH_RECORD(WB_NAME)};
#undef WB_NAME
  EXPECT_EQ(messages.size(), std::variant_size_v<protocol::Body>);
  EXPECT_EQ(records.size(), std::variant_size_v<protocol::JournalRecord>);
  const auto text = read("PROTOCOL.md");
  EXPECT_EQ(rows(text, "Messages"), messages);
  EXPECT_EQ(rows(text, "The journal"), records);
}

TEST(Documents, ReliabilityNamesTheTestsOfEveryFieldCase) {
  Names tests;
  Names cases;
  const auto& all = *::testing::UnitTest::GetInstance();
  for (int suite = 0; suite < all.total_test_suite_count(); ++suite) {
    for (int i = 0; i < all.GetTestSuite(suite)->total_test_count(); ++i) {
      const std::string name = all.GetTestSuite(suite)->GetTestInfo(i)->name();
      if (std::regex_match(name, std::regex("F[0-9]{2}_.*"))) tests.insert(name), cases.insert(name.substr(0, 3));
    }
  }
  EXPECT_EQ(cases.size(), 22U);
  const auto text = read("RELIABILITY.md");
  Names named;
  const std::regex name("`(F[0-9]{2}_[A-Za-z0-9]+)`");
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it)
    named.insert((*it)[1]);
  EXPECT_EQ(named, tests);
}

}  // namespace
}  // namespace weightbus::field
