// Commands against a coordinator that answers as each test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/json_views.h"
#include "tests/unit/cli/fake_coordinator.h"

namespace weightbus::cli {
namespace {

using protocol::Body;
using testing::HasSubstr;

std::optional<Body> accept_push(const protocol::Envelope& request, const protocol::ModelStatus& status) {
  if (std::holds_alternative<protocol::StatusRequest>(request.body)) return status;
  return protocol::UpdateAccepted{model::UpdateId{5}, model::WeightVersion{3}, false};
}

Printed ask(const FakeCoordinator& coordinator, std::vector<std::string> arguments, bool terminal = false) {
  arguments.insert(arguments.end(), {"--coordinator", coordinator.endpoint()});
  return run_cli(std::move(arguments), terminal);
}

TEST(PushTest, EndsWithZeroWhenCommitted) {
  std::atomic<bool> as_asked{false};
  FakeCoordinator coordinator([&](const protocol::Envelope& request) {
    if (const auto* push = std::get_if<protocol::PublishRequest>(&request.body)) {
      const auto* source = std::get_if<protocol::CheckpointSource>(&push->source);
      as_asked = source != nullptr && source->directory == "/data/step-40" && push->queue && push->require == 2 &&
                 push->step == 40 && push->deadline_ms == 90'000 && !push->dry_run && request.model.value() == "policy";
    }
    return accept_push(request, sample_status());
  });
  const auto printed = ask(coordinator, {"push", "--checkpoint", "/data/x/../step-40", "--queue", "--require", "2",
                                         "--step", "40", "--deadline", "90s", "--model", "policy"});
  EXPECT_EQ(printed.code, 0) << printed.err;
  EXPECT_TRUE(as_asked);
  EXPECT_THAT(printed.out, AllOf(HasSubstr("push 5 to version 3: committed"), HasSubstr("184 compared, all equal")));
  EXPECT_THAT(printed.out, testing::Not(HasSubstr("\033")));
}

TEST(PushTest, JsonIsOneObjectWithStableKeys) {
  FakeCoordinator coordinator([](const auto& request) { return accept_push(request, sample_status()); });
  const auto printed = ask(coordinator, {"push", "--checkpoint", "x", "--json"});
  EXPECT_EQ(printed.code, 0);
  const auto json = Json::parse(printed.out);
  EXPECT_EQ(json["version"], 3);
  EXPECT_EQ(json["update_id"], 5);
  EXPECT_EQ(json["committed"], true);
  EXPECT_FALSE(json.contains("error"));
  const auto& update = json["update"];
  EXPECT_EQ(update["kind"], "push");
  EXPECT_EQ(update["phase"], "committed");
  EXPECT_EQ(update["base"], 2);
  EXPECT_EQ(update["bytes_total"], 1'200'000'000);
  EXPECT_EQ(update["bytes_per_second"], 4e9);
  EXPECT_EQ(update["phases"][1]["phase"], "staging");
  EXPECT_EQ(update["phases"][1]["duration_ns"], 300'000'000);
  EXPECT_EQ(update["engines"][0]["pause_ns"], 2'500'000);
  EXPECT_EQ(update["engines"][0]["error"], nullptr);
  EXPECT_EQ(update["error"], nullptr);
}

TEST(PushTest, EndsWithOneWhenAborted) {
  auto status = sample_status();
  status.recent[0].phase = protocol::Phase::kAborted;
  status.recent[0].error = base::Error{base::ErrorCode::kDeadlineExceeded, "engine-0-tp0 did not stage in time"};
  FakeCoordinator coordinator([&](const auto& request) { return accept_push(request, status); });
  const auto text = ask(coordinator, {"push", "--checkpoint", "x"});
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.out, HasSubstr("engine-0-tp0 did not stage in time"));
  const auto json = Json::parse(ask(coordinator, {"push", "--checkpoint", "x", "--json"}).out);
  EXPECT_EQ(json["committed"], false);
  EXPECT_EQ(json["error"]["code"], "deadline_exceeded");
}

TEST(PushTest, ARefusalSaysWhyWithItsOwnCode) {
  FakeCoordinator coordinator([](const auto&) {
    return protocol::ErrorReply{{base::ErrorCode::kConflict, "update 4 (push to version 2) is staging"}};
  });
  const auto text = ask(coordinator, {"push", "--checkpoint", "x"});
  EXPECT_EQ(text.code, 4);
  EXPECT_EQ(text.err, "error: weightbus push: update 4 (push to version 2) is staging\n");
  const auto json = Json::parse(ask(coordinator, {"push", "--checkpoint", "x", "--json"}).out);
  EXPECT_EQ(json["error"]["code"], "conflict");
}

TEST(PushTest, NoWaitReturnsAtOnce) {
  FakeCoordinator coordinator([](const protocol::Envelope& request) -> std::optional<Body> {
    if (std::holds_alternative<protocol::StatusRequest>(request.body)) return std::nullopt;
    return protocol::UpdateAccepted{model::UpdateId{5}, model::WeightVersion{3}, true};
  });
  const auto json = Json::parse(ask(coordinator, {"push", "--checkpoint", "x", "--no-wait", "--json"}).out);
  EXPECT_EQ(json, (Json{{"update_id", 5}, {"version", 3}, {"queued", true}}));
}

TEST(PushTest, DryRunIsThePlan) {
  auto status = sample_status();
  status.recent[0].phase = protocol::Phase::kPlanned;
  status.recent[0].plan = protocol::PlanReport{{1, 2}, 1000, 46, 2000};
  std::atomic<int> dry_runs{0};
  FakeCoordinator coordinator([&](const protocol::Envelope& request) {
    if (const auto* push = std::get_if<protocol::PublishRequest>(&request.body)) dry_runs += push->dry_run ? 1 : 0;
    return accept_push(request, status);
  });
  const auto plan = ask(coordinator, {"plan", "--checkpoint", "x", "--json"});
  EXPECT_EQ(plan.code, 0);
  EXPECT_EQ(Json::parse(plan.out)["plan"]["arena_bytes"], 2000);
  EXPECT_EQ(ask(coordinator, {"push", "--dry-run", "--checkpoint", "x", "--json"}).out, plan.out);
  EXPECT_EQ(dry_runs, 2);
}

TEST(PushTest, ARefusedPlanEndsWithOne) {
  auto status = sample_status();
  status.recent[0].phase = protocol::Phase::kAborted;
  status.recent[0].error = base::Error{base::ErrorCode::kInvalidArgument, "slot model.norm.weight is not covered"};
  FakeCoordinator coordinator([&](const auto& request) { return accept_push(request, status); });
  const auto printed = ask(coordinator, {"plan", "--checkpoint", "x"});
  EXPECT_EQ(printed.code, 1);
  EXPECT_THAT(printed.err, HasSubstr("slot model.norm.weight is not covered"));
}

TEST(PushTest, ATerminalGetsColours) {
  FakeCoordinator coordinator([](const auto& request) { return accept_push(request, sample_status()); });
  EXPECT_THAT(ask(coordinator, {"push", "--checkpoint", "x"}, true).out, HasSubstr("\033[32mcommitted\033[0m"));
  EXPECT_THAT(ask(coordinator, {"push", "--checkpoint", "x", "--no-color"}, true).out, testing::Not(HasSubstr("\033")));
}

TEST(RollbackTest, NamesTheVersionOrLeavesItToTheCoordinator) {
  std::atomic<std::int64_t> asked_for{0};
  FakeCoordinator coordinator([&](const protocol::Envelope& request) {
    if (const auto* back = std::get_if<protocol::RollbackRequest>(&request.body)) {
      asked_for = back->to ? static_cast<std::int64_t>(back->to->value()) : -1;
    }
    return accept_push(request, sample_status());
  });
  EXPECT_EQ(ask(coordinator, {"rollback", "--to", "2"}).code, 0);
  EXPECT_EQ(asked_for, 2);
  EXPECT_EQ(ask(coordinator, {"rollback"}).code, 0);
  EXPECT_EQ(asked_for, -1);
}

TEST(SmallCommandsTest, SayWhatWasAskedForAndPrintJson) {
  FakeCoordinator coordinator([](const protocol::Envelope& request) -> std::optional<Body> {
    if (const auto* pin = std::get_if<protocol::PinRequest>(&request.body)) {
      if (pin->version.value() == 9)
        return protocol::ErrorReply{{base::ErrorCode::kNotFound, "version 9 was never committed"}};
    }
    if (std::holds_alternative<protocol::DiffRequest>(request.body)) return protocol::DiffReply{{"a"}, {"b"}, {}, 7};
    if (std::holds_alternative<protocol::StatusRequest>(request.body)) return sample_status();
    return protocol::Done{};
  });
  EXPECT_EQ(ask(coordinator, {"pin", "2", "--json"}).out, "{\"version\":2,\"pinned\":true}\n");
  EXPECT_EQ(ask(coordinator, {"unpin", "2"}).out, "version 2 is no longer pinned\n");
  EXPECT_EQ(ask(coordinator, {"pin", "9"}).code, 5);
  EXPECT_EQ(ask(coordinator, {"abort", "--json"}).out, "{\"aborting\":true}\n");
  EXPECT_EQ(ask(coordinator, {"evict", "engine-0-tp0", "--json"}).out, "{\"evicted\":\"engine-0-tp0\"}\n");
  EXPECT_EQ(ask(coordinator, {"adopt", "--json"}).out, "{\"adopted\":true,\"epoch\":7}\n");
  EXPECT_EQ(Json::parse(ask(coordinator, {"diff", "1", "2", "--json"}).out)["unchanged"], 7);
  EXPECT_THAT(ask(coordinator, {"diff", "1", "2"}).out,
              HasSubstr("1 changed, 1 added, 0 removed, 7 equal from version 1 to 2"));
}

TEST(StatusTest, JsonHasEveryPart) {
  FakeCoordinator coordinator([](const auto&) { return sample_status(); });
  const auto status = Json::parse(ask(coordinator, {"status", "--json"}).out);
  for (const char* key :
       {"model", "epoch", "needs_adopt", "committed", "running", "recent", "versions", "members", "events"}) {
    EXPECT_TRUE(status.contains(key)) << key;
  }
  EXPECT_EQ(status["members"][0]["live"]["version"], 3);
  EXPECT_EQ(status["members"][0]["shadow"], nullptr);
  const auto versions = Json::parse(ask(coordinator, {"versions", "--json"}).out);
  EXPECT_EQ(versions["versions"][1]["rollback_cost"], "instant");
  EXPECT_EQ(Json::parse(ask(coordinator, {"members", "--json"}).out)["members"][0]["role"], "engine agent");
}

TEST(WatchTest, OncePrintsALineForEachEvent) {
  FakeCoordinator coordinator([](const auto&) { return sample_status(); });
  const auto text = ask(coordinator, {"watch", "--once"});
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 2);
  EXPECT_THAT(text.out, HasSubstr("  update 5 committed\n"));
  std::istringstream lines(ask(coordinator, {"watch", "--once", "--json"}).out);
  std::vector<std::string> types;
  for (std::string line; std::getline(lines, line);)
    types.push_back(Json::parse(line)["type"]);
  EXPECT_EQ(types, (std::vector<std::string>{"coordinator", "event", "event"}));
}

class KeysTest : public testing::Test {
 protected:
  void SetUp() override {
    folder = std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::string path(const char* name) const { return (folder / name).string(); }
  std::filesystem::path folder;
};

TEST_F(KeysTest, NewShowAndAllowWorkTogether) {
  const auto made = run_cli({"keys", "new", path("admin.key"), "--json"});
  ASSERT_EQ(made.code, 0) << made.out;
  const std::string key = Json::parse(made.out)["public_key"];
  EXPECT_EQ(run_cli({"keys", "show", path("admin.key")}).out, key + "\n");
  EXPECT_EQ(run_cli({"keys", "new", path("admin.key")}).code, 4);
  EXPECT_EQ(run_cli({"keys", "allow", "--allow-file", path("allow"), "--key", key, "admin", "*"}).code, 0);
  EXPECT_EQ(run_cli({"keys", "allow", "--allow-file", path("allow"), "--key-of", path("admin.key"), "admin", "*"}).code,
            4);
  EXPECT_EQ(run_cli({"keys", "allow", "--allow-file", path("allow"), "--key", "short", "admin", "*"}).code, 2);
  EXPECT_EQ(run_cli({"keys", "allow", "--allow-file", path("allow"), "--key", key, "king", "*"}).code, 2);
  const auto list = transport::AllowList::load(path("allow"));
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_NE(list->find(key), nullptr);
  EXPECT_EQ(list->find(key)->role, model::Role::kAdmin);
}

TEST_F(KeysTest, ACoordinatorWithKeysAnswersAllowedOnesOnly) {
  const auto server = transport::generate_keys();
  const auto admin = transport::generate_keys();
  const auto stranger = transport::generate_keys();
  ASSERT_TRUE(server && admin && stranger);
  ASSERT_TRUE(transport::save_keys(path("admin"), *admin) && transport::save_keys(path("stranger"), *stranger));
  const auto allow = transport::AllowList::parse(admin->public_key + " admin *\n", "allow");
  ASSERT_TRUE(allow);
  FakeCoordinator coordinator([](const auto&) { return sample_status(); }, {*server, *allow});
  EXPECT_EQ(ask(coordinator, {"status", "--keys-file", path("admin"), "--coordinator-key", server->public_key}).code,
            0);
  const auto refused = ask(coordinator, {"status", "--keys-file", path("stranger"), "--coordinator-key",
                                         server->public_key, "--timeout", "500ms"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("allow file"));
  EXPECT_EQ(ask(coordinator, {"status", "--keys-file", path("admin")}).code, 2);
}

TEST(DoctorTest, EveryRowHasAHealth) {
  FakeCoordinator coordinator([](const auto&) { return sample_status(); });
  const auto json = Json::parse(ask(coordinator, {"doctor", "--json"}).out);
  std::vector<std::string> names;
  for (const auto& row : json["checks"]) {
    names.push_back(row["check"]);
    EXPECT_THAT((std::vector<std::string>{"ok", "warn", "fail"}), testing::Contains(row["health"].get<std::string>()));
    EXPECT_FALSE(row["found"].get<std::string>().empty());
  }
  EXPECT_THAT(names, testing::ElementsAre("shared_memory", "reservation", "descriptors", "locked_memory", "huge_pages",
                                          "curve", "clock", "cuda", "nccl", "coordinator"));
  EXPECT_EQ(json["checks"].back()["health"], "ok");
}

}  // namespace
}  // namespace weightbus::cli
