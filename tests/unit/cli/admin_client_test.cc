#include "weightbus/runtime/admin_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "tests/unit/cli/fake_coordinator.h"

namespace weightbus::cli {
namespace {

using runtime::AdminClient;
using testing::HasSubstr;

TEST(AdminClientTest, RepeatsOneRequestUntilItIsAnswered) {
  std::mutex mutex;
  std::set<std::pair<std::string, std::uint64_t>> seen;
  int times = 0;
  FakeCoordinator coordinator([&](const protocol::Envelope& request) -> std::optional<protocol::Body> {
    const std::lock_guard lock(mutex);
    seen.emplace(request.from.value(), request.request);
    if (++times < 3) return std::nullopt;
    return protocol::Done{};
  });
  const auto client = AdminClient::connect({.endpoint = coordinator.endpoint()});
  ASSERT_TRUE(client) << client.error().message;
  const auto done = (*client)->ask<protocol::Done>(protocol::AbortRequest{});
  ASSERT_TRUE(done) << done.error().message;
  const std::lock_guard lock(mutex);
  EXPECT_EQ(times, 3);
  ASSERT_EQ(seen.size(), 1U) << "a repeated request keeps its number";
  EXPECT_THAT(seen.begin()->first, testing::StartsWith("cli-"));
  EXPECT_NE(seen.begin()->second, 0U);
  EXPECT_EQ((*client)->epoch(), kFakeEpoch);
}

TEST(AdminClientTest, AnswersOfOtherRequestsAndKindsAreNotTaken) {
  FakeCoordinator coordinator([](const protocol::Envelope&) { return protocol::Done{}; });
  const auto client = AdminClient::connect({.endpoint = coordinator.endpoint()});
  ASSERT_TRUE(client);
  const auto status = (*client)->ask<protocol::ModelStatus>(protocol::StatusRequest{});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, base::ErrorCode::kInternal);
  EXPECT_THAT(status.error().message, HasSubstr("answered done"));
}

TEST(AdminClientTest, AnErrorReplyComesBackAsItsError) {
  FakeCoordinator coordinator([](const auto&) {
    return protocol::ErrorReply{{base::ErrorCode::kConflict, "in the way"}};
  });
  const auto client = AdminClient::connect({.endpoint = coordinator.endpoint()});
  ASSERT_TRUE(client);
  EXPECT_EQ((*client)->request(protocol::AbortRequest{}).error(),
            (base::Error{base::ErrorCode::kConflict, "in the way"}));
}

TEST(AdminClientTest, SaysWhereNobodyAnswered) {
  FakeCoordinator silent([](const auto&) { return std::nullopt; });
  const auto client = AdminClient::connect({.endpoint = silent.endpoint(), .timeout = base::Millis(200)});
  ASSERT_TRUE(client);
  const auto answer = (*client)->request(protocol::StatusRequest{});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, base::ErrorCode::kUnavailable);
  EXPECT_THAT(answer.error().message,
              AllOf(HasSubstr(silent.endpoint()), HasSubstr("200ms"), HasSubstr("weightbus-coordinator")));
}

TEST(AdminClientTest, RefusesPlainSocketsOffLoopbackAndBadEndpoints) {
  EXPECT_FALSE(AdminClient::connect({.endpoint = "tcp://10.0.0.1:7070"}));
  EXPECT_FALSE(AdminClient::connect({.endpoint = "nonsense"}));
}

}  // namespace
}  // namespace weightbus::cli
