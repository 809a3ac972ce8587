// The app as a whole: completion and docs/CLI.md know every command and option.
#include "cli/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/completion.h"
#include "cli/exit_codes.h"
#include "tests/unit/cli/fake_coordinator.h"

namespace weightbus::cli {
namespace {

using testing::HasSubstr;

class AppTest : public testing::Test {
 protected:
  // Calls `use` with every command's words ("keys new") and itself.
  void for_each_command(const std::function<void(const std::string&, CLI::App&)>& use) {
    const std::function<void(CLI::App&, const std::string&)> walk = [&](CLI::App& parent, const std::string& path) {
      for (CLI::App* command : parent.get_subcommands({})) {
        const std::string name = path.empty() ? command->get_name() : path + " " + command->get_name();
        use(name, *command);
        walk(*command, name);
      }
    };
    walk(*app, "");
  }
  std::ostringstream sink;
  Session session{Console{sink, sink}};
  std::unique_ptr<CLI::App> app = make_app(session);
};

std::string read_doc() {
  std::ifstream file(WEIGHTBUS_CLI_DOC);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The part of the document from this heading to the next of its kind.
std::string section_of(const std::string& doc, const std::string& heading) {
  const auto begin = doc.find("\n" + heading + "\n");
  if (begin == std::string::npos) return {};
  return doc.substr(begin, doc.find("\n### ", begin + heading.size()) - begin);
}

TEST_F(AppTest, EveryCommandIsDocumentedWithItsOptions) {
  const std::string doc = read_doc();
  int commands = 0;
  for_each_command([&](const std::string& name, CLI::App& command) {
    ++commands;
    const std::string section = section_of(doc, "### weightbus " + name);
    ASSERT_NE(section, "") << "docs/CLI.md has no section '### weightbus " << name << "'";
    EXPECT_FALSE(command.get_description().empty()) << name;
    for (const CLI::Option* option : command.get_options()) {
      for (const auto& long_name : option->get_lnames()) {
        if (long_name == "help") continue;
        EXPECT_THAT(section, HasSubstr("`--" + long_name)) << "weightbus " << name;
      }
    }
  });
  EXPECT_GE(commands, 20);
}

TEST_F(AppTest, GlobalOptionsAndExitCodesAreDocumented) {
  const std::string doc = read_doc();
  for (const CLI::Option* option : app->get_options()) {
    for (const auto& name : option->get_lnames())
      EXPECT_THAT(doc, HasSubstr("`--" + name)) << name;
  }
  for (int code = kExitOk; code <= kExitPermission; ++code) {
    EXPECT_THAT(doc, HasSubstr("\n| " + std::to_string(code) + " | "));
    EXPECT_THAT(app->help(), HasSubstr("\n  " + std::to_string(code) + "  "));
  }
}

TEST_F(AppTest, CompletionListsEveryCommandAndOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = completion_script(*app, shell);
    ASSERT_TRUE(script) << shell;
    for_each_command([&](const std::string& name, CLI::App& command) {
      EXPECT_THAT(*script, HasSubstr(command.get_name())) << shell << " " << name;
      for (const CLI::Option* option : command.get_options()) {
        for (const auto& long_name : option->get_lnames())
          EXPECT_THAT(*script, HasSubstr(long_name)) << shell << " " << name;
      }
    });
  }
  EXPECT_FALSE(completion_script(*app, "tcsh"));
}

TEST(ExitCodeTest, FollowsTheKindOfError) {
  EXPECT_EQ(exit_code_of(base::ErrorCode::kInvalidArgument), 2);
  EXPECT_EQ(exit_code_of(base::ErrorCode::kUnavailable), 3);
  EXPECT_EQ(exit_code_of(base::ErrorCode::kConflict), 4);
  EXPECT_EQ(exit_code_of(base::ErrorCode::kResourceExhausted), 4);
  EXPECT_EQ(exit_code_of(base::ErrorCode::kNotFound), 5);
  EXPECT_EQ(exit_code_of(base::ErrorCode::kDeadlineExceeded), 6);
  EXPECT_EQ(exit_code_of(base::ErrorCode::kPermissionDenied), 7);
  EXPECT_EQ(exit_code_of(base::ErrorCode::kAborted), 1);
}

TEST(UsageTest, SaysWhatIsWrongAndWhereHelpIs) {
  const auto unknown = run_cli({"psh", "--checkpoint", "x"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no command psh"));
  EXPECT_EQ(unknown.out, "");
  const auto missing = run_cli({"push"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("--checkpoint is required"), HasSubstr("weightbus push --help")));
  EXPECT_EQ(run_cli({"push", "--checkpoint", "x", "--deadline", "soon"}).code, 2);
  EXPECT_EQ(run_cli({"status", "--timeout", "5"}).code, 2);
  EXPECT_EQ(run_cli({"pin", "-1"}).code, 2);
  EXPECT_EQ(run_cli({"push", "--checkpoint", "x", "--require", "-1"}).code, 2);
  EXPECT_EQ(run_cli({"push", "--checkpoint", "x", "--require", "5000000000"}).code, 2);
  EXPECT_EQ(run_cli({"rollback", "--to", "two"}).code, 2);
  EXPECT_EQ(run_cli({}).code, 2);
  EXPECT_EQ(run_cli({"--help"}).code, 0);
  EXPECT_THAT(run_cli({"push", "--help"}).out, HasSubstr("Exit codes:"));
}

TEST(UsageTest, WithJsonErrorsAreOneObjectOnStdout) {
  const auto printed = run_cli({"push", "--json"});
  EXPECT_EQ(printed.code, 2);
  EXPECT_EQ(printed.err, "");
  const auto json = Json::parse(printed.out);
  EXPECT_EQ(json["error"]["code"], "invalid_argument");
  EXPECT_EQ(std::count(printed.out.begin(), printed.out.end(), '\n'), 1);
}

}  // namespace
}  // namespace weightbus::cli
