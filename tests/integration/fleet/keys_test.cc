// CURVE keys: who may join, under which name, and what each key may say.
#include "weightbus/transport/keys.h"

#include <gtest/gtest.h>

#include "tests/integration/fleet/readers.h"

namespace weightbus::testing {
namespace {

using protocol::ModelStatus;
using protocol::Phase;

bool knows(const ModelStatus& status, const std::string& member) {
  for (const auto& row : status.members) {
    if (row.member.id.value() == member) return true;
  }
  return false;
}

// The fleet works, and has not heard of this member.
void expect_kept_out(Fleet& fleet, const std::string& member) {
  const auto update = fleet.push_to_end(fleet.checkpoint(0));
  EXPECT_EQ(update.phase, Phase::kCommitted) << describe(update);
  EXPECT_FALSE(knows(fleet.status(), member));
}

TEST(Keys, AFleetWithKeysWorks) {
  Fleet fleet({.keys = true});
  for (unsigned variant = 0; variant < 2; ++variant) {
    const auto update = fleet.push_to_end(fleet.checkpoint(variant));
    ASSERT_EQ(update.phase, Phase::kCommitted) << describe(update);
  }
  fleet.wait_serving(2);
  const auto back = fleet.rollback_to_end();
  EXPECT_EQ(back.phase, Phase::kCommitted) << describe(back);
}

TEST(Keys, AKeyThatIsOnNoListNeverJoins) {
  Fleet fleet({.engines = {1}, .keys = true});
  fleet.make_keys("stranger");
  auto settings = fleet.agent_settings("stranger");
  settings["engine"] = "engine-9";
  settings["allow_file"] = fleet.path("allow");
  auto& stranger = fleet.add("stranger", "weightbus-engine-agent", settings);
  stranger.start();
  ASSERT_FALSE(stranger.logged("http.listening", "url").empty()) << stranger.log_tail(10);
  expect_kept_out(fleet, "stranger");
  // Once it is listed it joins, without any restart.
  fleet.allow("stranger", model::Role::kEngineAgent, "stranger");
  fleet.wait_for("the stranger", [](const ModelStatus& status) { return knows(status, "stranger"); });
}

TEST(Keys, AKeyDoesNotSpeakForAnotherMember) {
  Fleet fleet({.engines = {1}, .keys = true});
  fleet.make_keys("liar");
  fleet.allow("liar", model::Role::kEngineAgent, "somebody-else");
  auto settings = fleet.agent_settings("liar");
  settings["engine"] = "engine-9";
  settings["allow_file"] = fleet.path("allow");
  fleet.add("liar", "weightbus-engine-agent", settings).start();
  const std::string why = fleet.coordinator().logged("coordinator.refused", "error");
  EXPECT_NE(why.find("somebody-else"), std::string::npos) << why;
  EXPECT_EQ(fleet.coordinator().logged("coordinator.refused", "from"), "liar");
  expect_kept_out(fleet, "liar");
}

TEST(Keys, AnAdminsKeyDoesNotMakeAnAgent) {
  Fleet fleet({.engines = {1}, .keys = true});
  fleet.make_keys("admin-agent");
  fleet.allow("admin-agent", model::Role::kAdmin, "*");
  auto settings = fleet.agent_settings("admin-agent");
  settings["engine"] = "engine-9";
  settings["allow_file"] = fleet.path("allow");
  fleet.add("admin-agent", "weightbus-engine-agent", settings).start();
  EXPECT_EQ(fleet.coordinator().logged("coordinator.refused", "message"), "hello");
  const std::string why = fleet.coordinator().logged("coordinator.refused", "error");
  EXPECT_NE(why.find("role"), std::string::npos) << why;
  expect_kept_out(fleet, "admin-agent");
}

TEST(Keys, AnAgentsKeyGivesNoOrders) {
  Fleet fleet({.engines = {1}, .keys = true});
  auto options = fleet.client_options();
  options.keys = transport::load_keys(fleet.path("trainer-0.keys")).value();
  options.member = "trainer-0";
  auto client = runtime::AdminClient::connect(options);
  ASSERT_TRUE(client) << client.error().message;
  const auto answer = (*client)->ask<ModelStatus>(protocol::StatusRequest{}, base::Millis(1'500));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, base::ErrorCode::kUnavailable);
  const std::string why = fleet.coordinator().logged("coordinator.refused", "error");
  EXPECT_NE(why.find("role"), std::string::npos) << why;
  expect_kept_out(fleet, "cli");
}

}  // namespace
}  // namespace weightbus::testing
