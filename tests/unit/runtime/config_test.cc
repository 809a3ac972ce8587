#include "weightbus/runtime/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/unit/client/shm_arena.h"
#include "weightbus/runtime/values.h"

namespace weightbus::runtime {
namespace {

using namespace std::chrono_literals;

ProgramInfo program() {
  ProgramInfo info{"weightbus-test", "Tests settings.", "0.1.0", {}};
  info.settings = {
      {.name = "endpoint",
       .type = SettingType::kEndpoint,
       .fallback = std::nullopt,
       .why = "Where to listen.",
       .example = "tcp://127.0.0.1:7700"},
      {.name = "bucket_bytes",
       .type = SettingType::kBytes,
       .fallback = "512MiB",
       .why = "The unit of sending.",
       .min = 4096},
      {.name = "serve_stale",
       .type = SettingType::kDuration,
       .fallback = "30s",
       .why = "How long readiness lasts.",
       .max = 3'600'000'000'000},
      {.name = "retain",
       .type = SettingType::kCount,
       .fallback = "1",
       .why = "Versions on disk.",
       .unit = "versions",
       .max = 64},
      {.name = "verify", .type = SettingType::kFlag, .fallback = "true", .why = "Compare digests."},
      {.name = "ignored", .type = SettingType::kTextList, .fallback = "", .why = "Names that match nothing."},
      {.name = "log_format",
       .type = SettingType::kText,
       .fallback = "text",
       .why = "How to log.",
       .choices = {"text", "json"}},
      {.name = "http", .type = SettingType::kHostPort, .fallback = "127.0.0.1:0", .why = "Metrics."},
      {.name = "token", .type = SettingType::kText, .fallback = "", .why = "A secret.", .secret = true},
  };
  return info;
}

class ConfigTest : public ::testing::Test {
 protected:
  std::string file(const std::string& text) {
    const auto path = dir_.file("config.toml");
    std::ofstream(path) << text;
    return path;
  }
  Launch from_file(const std::string& text) {
    return read_settings(program(), {"--endpoint", "tcp://a:1", "--config", file(text)}, {});
  }
  testing::TempDir dir_;
};

TEST_F(ConfigTest, DefaultsApply) {
  const auto launch = read_settings(program(), {"--endpoint=tcp://127.0.0.1:7700"}, {});
  ASSERT_FALSE(launch.exit_code) << launch.text;
  EXPECT_EQ(launch.settings.text("endpoint"), "tcp://127.0.0.1:7700");
  EXPECT_EQ(launch.settings.bytes("bucket_bytes"), 512U << 20);
  EXPECT_EQ(launch.settings.duration("serve_stale"), 30s);
  EXPECT_EQ(launch.settings.count("retain"), 1U);
  EXPECT_TRUE(launch.settings.flag("verify"));
  EXPECT_TRUE(launch.settings.list("ignored").empty());
  EXPECT_FALSE(launch.worker);
}

TEST_F(ConfigTest, AFlagGoesBeforeAVariableBeforeTheFileBeforeTheDefault) {
  const auto path = file("retain = 3\nserve_stale = \"5s\"\nbucket_bytes = \"1MiB\" # smaller\n");
  const auto launch = read_settings(program(), {"--endpoint", "ipc:///x", "--config", path, "--retain", "9"},
                                    {"WEIGHTBUS_RETAIN=7", "WEIGHTBUS_SERVE_STALE=7s", "HOME=/"});
  ASSERT_FALSE(launch.exit_code) << launch.text;
  EXPECT_EQ(launch.settings.count("retain"), 9U);
  EXPECT_EQ(launch.settings.origin("retain"), SettingOrigin::kFlag);
  EXPECT_EQ(launch.settings.duration("serve_stale"), 7s);
  EXPECT_EQ(launch.settings.origin("serve_stale"), SettingOrigin::kEnvironment);
  EXPECT_EQ(launch.settings.bytes("bucket_bytes"), 1U << 20);
  EXPECT_EQ(launch.settings.origin("bucket_bytes"), SettingOrigin::kFile);
  EXPECT_EQ(launch.settings.origin("verify"), SettingOrigin::kDefault);
}

TEST_F(ConfigTest, TheFileMayBeNamedByTheEnvironment) {
  const auto launch = read_settings(program(), {}, {"WEIGHTBUS_CONFIG=" + file("endpoint = \"tcp://[::1]:80\"\n")});
  ASSERT_FALSE(launch.exit_code) << launch.text;
  EXPECT_EQ(launch.settings.text("endpoint"), "tcp://[::1]:80");
}

TEST_F(ConfigTest, ListsComeFromEveryOrigin) {
  const std::vector<std::string> both{"a.*", "b c"};
  EXPECT_EQ(from_file("ignored = [\"a.*\", \"b c\"]\n").settings.list("ignored"), both);
  EXPECT_EQ(read_settings(program(), {"--endpoint", "tcp://a:1", "--ignored", "a.*", "--ignored", "b c"}, {})
                .settings.list("ignored"),
            both);
  EXPECT_EQ(
      read_settings(program(), {"--endpoint", "tcp://a:1"}, {"WEIGHTBUS_IGNORED=a.*,b c"}).settings.list("ignored"),
      both);
}

TEST_F(ConfigTest, FlagsTurnOnAndOff) {
  EXPECT_FALSE(read_settings(program(), {"--endpoint", "tcp://a:1", "--verify=false"}, {}).settings.flag("verify"));
  EXPECT_TRUE(read_settings(program(), {"--endpoint", "tcp://a:1", "--verify"}, {"WEIGHTBUS_VERIFY=no"})
                  .settings.flag("verify"));
  EXPECT_FALSE(from_file("verify = false\n").settings.flag("verify"));
}

TEST_F(ConfigTest, WhatIsWrongIsSaidWithItsNameAndOrigin) {
  const auto expect_error = [](const Launch& launch, const std::string& part) {
    ASSERT_EQ(launch.exit_code, kExitBadConfig) << part;
    EXPECT_NE(launch.text.find(part), std::string::npos) << launch.text;
  };
  expect_error(read_settings(program(), {}, {}),
               "endpoint must be set: --endpoint tcp://127.0.0.1:7700, WEIGHTBUS_ENDPOINT");
  expect_error(read_settings(program(), {"--endpoint", "udp://x"}, {}), "endpoint (flag): \"udp://x\"");
  expect_error(read_settings(program(), {"--endpoint", "tcp://a:1", "--no-such"}, {}), "no-such");
  expect_error(from_file("no_such = 1\n"), "unknown key no_such");
  expect_error(from_file("[section]\nretain = 1\n"), "sections");
  expect_error(from_file("retain = 1\nverify = true\nretain = 2\n"), "retain is set twice");
  expect_error(from_file("retain = [1, 2]\n"), "takes one value");
  expect_error(from_file("retain = -1\n"), "retain (file)");
  expect_error(from_file("retain = 65\n"), "at most 64");
  expect_error(from_file("bucket_bytes = \"1KiB\"\n"), "at least 4KiB");
  expect_error(from_file("serve_stale = \"2h\"\n"), "at most 1h");
  expect_error(from_file("serve_stale = 30\n"), "not a duration");
  expect_error(from_file("log_format = \"xml\"\n"), "not one of text, json");
  expect_error(from_file("http = \"::1:80\"\n"), "[::1]:port");
  expect_error(from_file("token = \"a#b\"\n"), "no closing quote");
  expect_error(from_file("retain\n"), "retain (file)");
  expect_error(read_settings(program(), {"--config", dir_.file("none")}, {}), "none");
  auto info = program();
  info.check = [](const Settings&) {
    return base::fail(base::ErrorCode::kInvalidArgument, "these exclude each other");
  };
  expect_error(read_settings(info, {"--endpoint", "tcp://a:1", "--check-config"}, {}), "exclude each other");
}

TEST_F(ConfigTest, AFileOfRandomBytesIsAnError) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    base::Prng random(seed);
    std::string bytes(1 + random.below(400), ' ');
    for (auto& byte : bytes)
      byte = static_cast<char>(random.next());
    // Lines too short to mean anything are skipped; everything else is an unknown key.
    const auto launch = from_file("zzz" + bytes);
    EXPECT_EQ(launch.exit_code, kExitBadConfig) << "seed " << seed;
  }
}

TEST_F(ConfigTest, TheSampleNamesEverySettingAndReadsBackAsTheDefaults) {
  const auto sample = read_settings(program(), {"--print-sample-config"}, {});
  ASSERT_EQ(sample.exit_code, 0);
  for (const auto& setting : program().settings) {
    EXPECT_NE(sample.text.find(setting.name + " = "), std::string::npos) << setting.name;
    EXPECT_NE(sample.text.find(setting.why), std::string::npos) << setting.name;
  }
  EXPECT_NE(sample.text.find("# Unit: versions. Default: 1."), std::string::npos) << sample.text;
  const auto launch = from_file(sample.text);
  const auto defaults = read_settings(program(), {"--endpoint", "tcp://a:1"}, {});
  ASSERT_FALSE(launch.exit_code) << launch.text;
  EXPECT_EQ(launch.settings.origin("retain"), SettingOrigin::kFile);
  for (const auto* name : {"bucket_bytes"})
    EXPECT_EQ(launch.settings.bytes(name), defaults.settings.bytes(name));
  EXPECT_EQ(launch.settings.list("ignored"), defaults.settings.list("ignored"));
  EXPECT_EQ(launch.settings.text("token"), "");
}

TEST_F(ConfigTest, TheEffectiveLineShowsOriginsAndHidesSecrets) {
  const auto launch =
      read_settings(program(), {"--endpoint", "tcp://a:1", "--token", "hush", "--worker"}, {"WEIGHTBUS_RETIAN=4"});
  const auto line = launch.settings.effective();
  EXPECT_NE(line.find("endpoint=tcp://a:1 (flag)"), std::string::npos) << line;
  EXPECT_NE(line.find("bucket_bytes=512MiB (default)"), std::string::npos) << line;
  EXPECT_NE(line.find("token=*** (flag)"), std::string::npos) << line;
  EXPECT_EQ(line.find("hush"), std::string::npos);
  EXPECT_TRUE(launch.worker);
  ASSERT_EQ(launch.warnings.size(), 1U);
  EXPECT_NE(launch.warnings[0].find("WEIGHTBUS_RETIAN"), std::string::npos);
}

TEST_F(ConfigTest, HelpVersionAndCheck) {
  const auto help = read_settings(program(), {"--help"}, {});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.text.find("--bucket-bytes"), std::string::npos);
  EXPECT_NE(help.text.find("WEIGHTBUS_BUCKET_BYTES"), std::string::npos);
  EXPECT_EQ(help.text.find("--worker"), std::string::npos);
  EXPECT_EQ(read_settings(program(), {"--version"}, {}).text, "weightbus-test 0.1.0\n");
  const auto check = read_settings(program(), {"--check-config", "--endpoint", "tcp://a:1"}, {});
  EXPECT_EQ(check.exit_code, 0);
  EXPECT_NE(check.text.find("valid"), std::string::npos);
}

TEST(Values, Durations) {
  EXPECT_EQ(parse_duration("500ms").value(), 500ms);
  EXPECT_EQ(parse_duration("0").value(), 0ns);
  EXPECT_EQ(parse_duration("2h").value(), 2h);
  for (const auto* text : {"", "5", "ms", "-5ms", "5 ms", "5days", "1.5s", "99999999999999h"})
    EXPECT_FALSE(parse_duration(text)) << text;
  for (const auto d : {base::Duration(0), base::Duration(1500ms), base::Duration(90s), base::Duration(1)})
    EXPECT_EQ(parse_duration(format_duration(d)).value(), d);
  EXPECT_EQ(format_duration(120s), "2m");
}

TEST(Values, Bytes) {
  EXPECT_EQ(parse_bytes("4096").value(), 4096U);
  EXPECT_EQ(parse_bytes("512MiB").value(), 512U << 20);
  EXPECT_EQ(parse_bytes("2GB").value(), 2'000'000'000U);
  for (const auto* text : {"", "MiB", "-1", "1.5GiB", "1 MiB", "99999999TiB", "18446744073709551616"})
    EXPECT_FALSE(parse_bytes(text)) << text;
  EXPECT_EQ(format_bytes(1536ULL << 20), "1536MiB");
  EXPECT_EQ(format_bytes(0), "0");
}

TEST(Values, Addresses) {
  const auto v6 = parse_host_port("[fe80::1%eth0]:7700").value();
  EXPECT_EQ(v6.host, "fe80::1%eth0");
  EXPECT_EQ(v6.port, 7700);
  EXPECT_EQ(parse_host_port("localhost:0").value().port, 0);
  EXPECT_EQ(parse_host_port(":80").value().host, "");
  for (const auto* text : {"", "host", "host:", "host:65536", "host:x", "::1:80", "[::1]", "[]:1", "[host]:1", "a b:1"})
    EXPECT_FALSE(parse_host_port(text)) << text;
  for (const auto* text : {"tcp://h:1", "tcp://*:*", "tcp://[::1]:5", "ipc:///tmp/x"})
    EXPECT_TRUE(parse_endpoint(text)) << text;
  for (const auto* text : {"h:1", "tcp://", "tcp://:1", "ipc://", "udp://h:1", "tcp://h"})
    EXPECT_FALSE(parse_endpoint(text)) << text;
}

}  // namespace
}  // namespace weightbus::runtime
