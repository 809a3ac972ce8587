#include "weightbus/transport/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightbus::transport {
namespace {

using base::ErrorCode;

TEST(Endpoint, ReadsWhatItWrites) {
  for (const char* text : {"tcp://127.0.0.1:7000", "tcp://[::1]:7000", "tcp://[fe80::1]:1", "tcp://*:*",
                           "tcp://trainer-0.example.org:65535", "ipc:///run/weightbus.sock", "ipc://@abstract"}) {
    const auto endpoint = parse_endpoint(text);
    ASSERT_TRUE(endpoint) << text << ": " << endpoint.error().message;
    EXPECT_EQ(endpoint->to_string(), text);
  }
  EXPECT_EQ(parse_endpoint("tcp://h:0")->to_string(), "tcp://h:*");
  EXPECT_EQ(parse_endpoint("tcp://[::1]:7000")->host, "::1");
}

TEST(Endpoint, SaysWhichPartIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "neither tcp:// nor ipc://"},  {"127.0.0.1:7000", "neither tcp:// nor ipc://"},
      {"tcp://host", "no port"},          {"tcp://host:", "no port"},
      {"tcp://host:65536", "no port"},    {"tcp://host:-1", "no port"},
      {"tcp://host:7x", "no port"},       {"tcp://:7000", "neither an address nor a host name"},
      {"tcp://a b:1", "host name"},       {"tcp://a/b:1", "host name"},
      {"tcp://::1:7000", "brackets"},     {"tcp://[::g]:7000", "no IPv6 address"},
      {"tcp://[127.0.0.1]:1", "no IPv6"}, {"ipc://", "path of 1 to"},
      {"ipc://*", "path of 1 to"},
  };
  for (const auto& [text, part] : cases) {
    const auto endpoint = parse_endpoint(text);
    ASSERT_FALSE(endpoint) << text;
    EXPECT_EQ(endpoint.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(endpoint.error().message, testing::HasSubstr(part)) << text;
  }
  EXPECT_FALSE(parse_endpoint("ipc://" + std::string(108, 'x')));
  EXPECT_TRUE(parse_endpoint("ipc://" + std::string(107, 'x')));
  EXPECT_FALSE(parse_endpoint(std::string_view("ipc://a\0b", 9)));
}

TEST(Endpoint, KnowsLoopback) {
  for (const char* text : {"tcp://127.0.0.1:1", "tcp://127.255.3.4:1", "tcp://localhost:1", "tcp://[::1]:1",
                           "tcp://[::ffff:127.0.0.1]:1", "ipc://x"}) {
    EXPECT_TRUE(parse_endpoint(text)->is_loopback()) << text;
  }
  for (const char* text : {"tcp://*:1", "tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://128.0.0.1:1", "tcp://[::2]:1",
                           "tcp://localhost.example.org:1", "tcp://[::ffff:10.0.0.1]:1", "tcp://127.1:1"}) {
    EXPECT_FALSE(parse_endpoint(text)->is_loopback()) << text;
  }
}

TEST(Endpoint, ResolvesListeners) {
  EXPECT_EQ(resolve_listener(*parse_endpoint("tcp://localhost:7000"))->to_string(), "tcp://127.0.0.1:7000");
  EXPECT_EQ(resolve_listener(*parse_endpoint("tcp://*:*"))->to_string(), "tcp://*:*");
  EXPECT_EQ(resolve_listener(*parse_endpoint("tcp://[::1]:5"))->to_string(), "tcp://[::1]:5");
  const auto missing = resolve_listener(*parse_endpoint("tcp://no-such-host.invalid:7000"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, testing::HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace weightbus::transport
