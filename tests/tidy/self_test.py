#!/usr/bin/env python3
"""Shows that each tidy rule finds what it is for, and leaves good samples alone. Works in a temporary folder."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

from rules import LINES_MAX, RULES  # noqa: E402
from tree import Tree, strip_noise  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HEADER = "#pragma once\n"


class RuleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weightbus-tidy-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def findings(self, rule):
        return RULES[rule](Tree(self.root))

    def assert_found(self, rule, path, text, *words):
        self.write(path, text)
        found = self.findings(rule)
        self.assertTrue(any(path in f and all(w in f for w in words) for f in found), f"{text!r} gave {found}")
        (self.root / path).unlink()

    def assert_clean(self, rule, path, text):
        self.write(path, text)
        self.assertEqual(self.findings(rule), [])
        (self.root / path).unlink()

    def test_purity(self):
        for header in ("thread", "mutex", "atomic", "iostream", "fstream", "filesystem", "random", "sys/socket.h", "unistd.h",
                       "spdlog/spdlog.h", "zmq.hpp", "ctime", "cstdlib"):
            for folder in ("base", "model", "plan", "protocol", "wire"):
                self.assert_found("purity", f"weightbus/{folder}/a.cc", f"#include <{header}>\n", header)
        for use in ("auto t = std::chrono::steady_clock::now();", "auto t = time(nullptr);", "auto t = std::time(NULL);",
                    "auto e = std::getenv(\"A\");", "int r = rand();", "std::random_device device;", "std::cout << 1;",
                    "std::printf(\"a\");", "fmt::print(\"a\");", "std::mutex lock;", "thread_local int a;", "spdlog::info(1);",
                    "int f = ::open(p, 0);", "std::this_thread::sleep_for(d);", "std::atomic<int> a;"):
            self.assert_found("purity", "weightbus/plan/a.cc", f"// above\n{use}\n", "a.cc:2")
        self.assert_found("purity", "weightbus/plan/a.cc", "#include <capnp/message.h>\n", "capnp")

    def test_purity_allows(self):
        self.assert_clean("purity", "weightbus/wire/a.cc", "#include <capnp/message.h>\n#include <vector>\n")
        self.assert_clean("purity", "weightbus/plan/a.cc", "// std::mutex, ::now() and getenv( are words here\n")
        self.assert_clean("purity", "weightbus/plan/a.cc", "auto s = \"std::cout << rand()\";\nvoid f(base::Instant now);\n")
        self.assert_clean("purity", "weightbus/plan/a.cc", "store.read(1); x.rand(); output.send(m); fmt::format(\"a\");\n")
        self.assert_clean("purity", "weightbus/runtime/a.cc", "#include <thread>\nstd::thread t;\n")

    def test_layers(self):
        for folder, other in (("base", "model"), ("model", "plan"), ("plan", "protocol"), ("protocol", "wire"),
                              ("wire", "device"), ("device", "channel"), ("transport", "channel"), ("channel", "transport"),
                              ("store", "checkpoint"), ("checkpoint", "runtime"), ("observe", "client"),
                              ("client", "runtime"), ("plan", "nonsuch")):
            self.assert_found("layers", f"weightbus/{folder}/a.h", f'#include "weightbus/{other}/b.h"\n', "a.h:1", other)
        self.assert_found("layers", "weightbus/runtime/a.h", '#include "services/coordinator/b.h"\n', "services")
        self.assert_found("layers", "weightbus/runtime/a.h", '#include "tests/support/b.h"\n', "tests")
        self.assert_found("layers", "cli/a.cc", '#include "services/coordinator/b.h"\n', "services")
        self.assert_found("layers", "weightbus/unheard/a.h", HEADER, "no level")
        self.assert_found("layers", "weightbus/transport/a.cc", "#include <capnp/message.h>\n", "Cap'n Proto")
        self.assert_found("layers", "weightbus/store/a.cc", '#include "sync.capnp.h"\n', "Cap'n Proto")
        self.assert_found("layers", "weightbus/runtime/a.cc", "#include <zmq.hpp>\n", "ZeroMQ")
        self.assert_found("layers", "cli/a.cc", "#include <sqlite3.h>\n", "SQLite")

    def test_layers_allows(self):
        for folder, other in (("channel", "plan"), ("channel", "device"), ("device", "model"), ("checkpoint", "plan"),
                              ("transport", "wire"), ("runtime", "observe"), ("runtime", "client"), ("client", "channel"),
                              ("plan", "plan")):
            self.assert_clean("layers", f"weightbus/{folder}/a.cc", f'#include "weightbus/{other}/b.h"\n')
        self.assert_clean("layers", "services/coordinator/a.cc", '#include "weightbus/runtime/b.h"\n')
        self.assert_clean("layers", "weightbus/base/a.cc", '// #include "weightbus/runtime/b.h"\n')

    def test_platform(self):
        for switch in ("#ifdef __linux__", "#if defined(WEIGHTBUS_CUDA)", "  #  ifndef X", "#elif 1"):
            self.assert_found("platform", "weightbus/device/a.cc", f"{switch}\n#endif\n", "a.cc:1")
        self.assert_clean("platform", "weightbus/client/a.h", "#pragma once\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n")

    def test_headers(self):
        self.assert_found("headers", "weightbus/plan/a.h", "// #pragma once\nint f();\n", "pragma once")
        self.assert_found("headers", "tests/support/a.h", "int f();\n", "pragma once")
        for heavy in ("nlohmann/json.hpp", "CLI/CLI.hpp", "spdlog/spdlog.h", "gtest/gtest.h", "zmq.hpp"):
            self.assert_found("headers", "weightbus/runtime/a.h", f"{HEADER}#include <{heavy}>\n", "a.h:2", heavy)
        self.assert_found("headers", "weightbus/plan/a.cc", '#include "a.h"\n', "path from the root")
        self.assert_clean("headers", "weightbus/plan/a.h", f'// why\n{HEADER}#include "weightbus/plan/b.h"\n')
        self.assert_clean("headers", "weightbus/runtime/a.cc", "#include <nlohmann/json.hpp>\n")
        self.assert_clean("headers", "tests/unit/store/a_test.cc", '#include "fixture.h"\n')

    def test_length(self):
        self.assert_found("length", "tests/unit/a.cc", "\n" * (LINES_MAX + 1), str(LINES_MAX + 1))
        self.assert_clean("length", "tests/unit/a.cc", "\n" * LINES_MAX)

    def test_leftovers(self):
        for text in ("// TO" "DO: later", "# FIX" "ME", "TEST(A, DISABLED" "_B) {}", "GTEST" "_SKIP();", "#if 0"):
            for path in ("tests/unit/a.cc", "weightbus/plan/a.h"):
                self.assert_found("leftovers", path, f"\n{text}\n", ":2:")
        self.assert_found("leftovers", "scripts/a", "# TO" "DO\n", ":1:")
        self.assert_clean("leftovers", "tests/unit/a.cc", 'auto name = "/tmp/a.XXXXXX";  // what to do\n')

    def test_scripts(self):
        self.assert_found("scripts", "scripts/a", "#!/usr/bin/env bash\necho a\n", "set -euo pipefail")
        self.assert_found("scripts", "scripts/a", "#!/usr/bin/env bash\nset -euo pipefail\nif true; then\n", "parse")
        self.assert_clean("scripts", "scripts/a", "#!/usr/bin/env bash\nset -euo pipefail\necho a\n")

    def test_links(self):
        self.write("docs/THERE.md", "here\n")
        self.assert_found("links", "README.md", "\n[a](docs/ABSENT.md)\n", "README.md:2")
        self.assert_found("links", "docs/a.md", "[a](docs/THERE.md)\n", "docs/a.md:1")
        self.assert_clean("links", "README.md", "[a](docs/THERE.md#part) [b](https://example.org/x) [c](#part)\n")

    def test_format(self):
        shutil.copy(ROOT / ".clang-format", self.root)
        self.assert_found("format", "weightbus/plan/a.cc", "int  f( );\n", "scripts/format")
        self.assert_clean("format", "weightbus/plan/a.cc", "int f();\n")

    def test_noise_keeps_lines_and_includes(self):
        text = '#include "weightbus/a.h"\n/* two\nlines */ int a = 1\'000; char c = \'"\'; auto s = "x // y"; // end\nint b;\n'
        code = strip_noise(text)
        self.assertEqual(code.count("\n"), text.count("\n"))
        self.assertIn('"weightbus/a.h"', code)
        self.assertIn("1'000", code)
        self.assertIn("int b;", code)
        for gone in ("two", "x //", "end"):
            self.assertNotIn(gone, code)


class ToolTest(unittest.TestCase):
    """The programs around the rules: exit codes, and clang-tidy with the repository's own .clang-tidy."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weightbus-tidy-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.build = self.root / "build"
        (self.root / "weightbus" / "plan").mkdir(parents=True)
        self.build.mkdir()
        shutil.copy(ROOT / ".clang-tidy", self.root)

    def run_tool(self, *arguments):
        done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def naming(self, text):
        source = self.root / "weightbus" / "plan" / "a.cc"
        source.write_text(text, encoding="utf-8")
        entry = {"directory": str(self.build), "file": str(source),
                 "command": f"/usr/bin/ccache /usr/bin/c++ -std=c++20 -Wall -Werror -o a.o -c {source}"}
        (self.build / "compile_commands.json").write_text(json.dumps([entry]), encoding="utf-8")
        return self.run_tool(HERE / "naming.py", "--root", self.root, "--build", self.build)

    def test_exit_codes(self):
        code, output = self.run_tool(HERE / "tidy.py", "--root", self.root, "length")
        self.assertEqual(code, 1, "an empty tree must not pass")
        (self.root / "weightbus" / "plan" / "a.h").write_text("int f();\n", encoding="utf-8")
        code, output = self.run_tool(HERE / "tidy.py", "--root", self.root, "headers")
        self.assertEqual((code, "tidy.headers: 1 findings" in output), (1, True))
        code, output = self.run_tool(HERE / "tidy.py", "--root", self.root, "length")
        self.assertEqual((code, "tidy.length: 0 findings" in output), (0, True))

    def test_naming(self):
        for bad in ("class bad_name {};", "void BadName();", "enum class E { red };", "inline constexpr int limit = 3;",
                    "class C {\n  int member = 0;\n};", "namespace Bad {}", "#define SIZE 3", "void f(int Parameter);",
                    "using namespace std;"):
            code, output = self.naming(f"#include <string>\n{bad}\n")
            self.assertEqual((code, "1 of 1 files have findings" in output), (1, True), f"{bad!r}: {output}")
        code, output = self.naming("namespace weightbus {\nenum class Kind { kOne };\ninline constexpr int kLimit = 3;\n"
                                   "class Good {\n public:\n  int value() const { return value_; }\n\n private:\n"
                                   "  int value_ = 0;\n};\n}  // namespace weightbus\n#define WB_SIZE 3\n")
        self.assertEqual((code, "1 checked now" in output), (0, True), output)

    def test_naming_allows_what_others_ask_for(self):
        code, output = self.naming("""
#include <gmock/gmock.h>
#include <gtest/gtest.h>
namespace weightbus::plan {
class Fixture : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { value_ = 1; }
  static constexpr int kLimit = 3;
  int value_ = 0;
};
TEST_P(Fixture, Works) {
  constexpr int kLocal = 2;
  EXPECT_EQ(value_, kLimit - kLocal);
}
INSTANTIATE_TEST_SUITE_P(All, Fixture, ::testing::Values(1, 2));
MATCHER_P(IsBig, limit, "") { return arg > limit; }
struct Thing {
  virtual ~Thing() = default;
  virtual int get(int a) = 0;
};
struct MockThing : public Thing {
  MOCK_METHOD(int, get, (int), (override));
};
void PrintTo(const Thing&, std::ostream*);
}  // namespace weightbus::plan
extern "C" {
typedef struct wb_client wb_client;
typedef enum wb_kind { WB_KIND_ONE = 1 } wb_kind;
int wb_client_open(wb_client** out);
int LLVMFuzzerTestOneInput(const unsigned char* data, unsigned long size);
}
""")
        self.assertEqual(code, 0, output)

    def build_headers(self, **headers):
        """Builds cmake/WeightbusHeaders.cmake's libraries for a project of one folder with these headers."""
        for name, text in headers.items():
            (self.root / "weightbus" / "plan" / f"{name}.h").write_text(text, encoding="utf-8")
        (self.root / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(sample LANGUAGES CXX)\nset(CMAKE_CXX_STANDARD 20)\n"
            "add_library(weightbus_flags INTERFACE)\nadd_library(weightbus_plan INTERFACE)\n"
            "target_include_directories(weightbus_plan INTERFACE ${PROJECT_SOURCE_DIR})\n"
            f"include({ROOT}/cmake/WeightbusHeaders.cmake)\nweightbus_check_headers()\n", encoding="utf-8")
        for command in (["cmake", "-G", "Ninja", "-S", self.root, "-B", self.build], ["cmake", "--build", self.build]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return done.stdout + done.stderr
        return ""

    def test_headers_compile_alone(self):
        good = "#pragma once\n#include <string>\nstruct Good {\n  std::string name;\n};\n"
        self.assertEqual(self.build_headers(good=good), "")
        self.assertIn("string", self.build_headers(good=good, bad="#pragma once\nstd::string f();\n"))
        self.assertIn("redefinition", self.build_headers(good=good, bad="struct Twice {};\n"))

    def test_naming_remembers_what_passed_and_only_that(self):
        good = "int good_name();\n"
        self.assertIn("1 checked now", self.naming(good)[1])
        self.assertIn("0 checked now, 1 unchanged", self.naming(good)[1])
        self.assertEqual(self.naming("int BadName();\n")[0], 1)
        self.assertEqual(self.naming("int BadName();\n")[0], 1, "a failure must not be remembered as a pass")


if __name__ == "__main__":
    unittest.main()
