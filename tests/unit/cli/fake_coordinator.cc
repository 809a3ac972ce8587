#include "tests/unit/cli/fake_coordinator.h"

#include <gtest/gtest.h>

#include <sstream>

#include "cli/app.h"
#include "weightbus/runtime/control_link.h"

namespace weightbus::cli {

FakeCoordinator::FakeCoordinator(Answer answer, transport::ZmqOptions options) : answer_(std::move(answer)) {
  auto transport = transport::ZmqTransport::create(std::move(options));
  EXPECT_TRUE(transport) << transport.error().message;
  transport_ = std::move(*transport);
  const auto bound = transport_->bind("tcp://127.0.0.1:*");
  EXPECT_TRUE(bound) << bound.error().message;
  endpoint_ = *bound;
  thread_ = std::thread([this] { serve(); });
}

FakeCoordinator::~FakeCoordinator() {
  stop_ = true;
  transport_->wake();
  thread_.join();
}

void FakeCoordinator::serve() {
  runtime::ControlLink link(*transport_);
  while (!stop_) {
    const auto message = link.receive(base::Millis(1'000));
    if (!message) continue;
    ++requests_;
    const auto& envelope = message->envelope;
    auto body = answer_(envelope);
    if (!body) continue;
    link.route(envelope.from, message->connection);
    link.send(
        {kFakeEpoch, envelope.model, std::nullopt, protocol::kCoordinator, envelope.from, envelope.request, *body});
  }
}

Printed run_cli(std::vector<std::string> arguments, bool terminal) {
  std::ostringstream out;
  std::ostringstream err;
  Console console{out, err, terminal, terminal, terminal, [] { return 100; }};
  std::vector<const char*> argv = {"weightbus"};
  for (const auto& argument : arguments)
    argv.push_back(argument.c_str());
  Session session(console);
  const int code = run(session, static_cast<int>(argv.size()), argv.data());
  return {code, out.str(), err.str()};
}

protocol::UpdateStatus sample_update(protocol::Phase phase) {
  protocol::UpdateStatus update{
      model::UpdateId{5},      protocol::UpdateKind::kPush, phase, model::WeightVersion{2},
      model::WeightVersion{3}, 1'700'000'000'000,           40,    "checkpoint /data/step-40"};
  update.bytes_total = 1'200'000'000;
  update.bytes_done = phase == protocol::Phase::kCommitted ? 1'200'000'000 : 600'000'000;
  update.phases = {{protocol::Phase::kAnnounced, 5'000'000}, {protocol::Phase::kStaging, 300'000'000}};
  update.engines = {{"engine-0", true, false, true, 600'000'000, 600'000'000, 2'500'000, "shm", "remap", ""}};
  update.digests_compared = 184;
  return update;
}

protocol::ModelStatus sample_status() {
  protocol::ModelStatus status{model::ModelName{"default"}, kFakeEpoch, false, model::WeightVersion{3}};
  status.recent = {sample_update(protocol::Phase::kCommitted)};
  status.versions = {{model::WeightVersion{3},
                      true,
                      true,
                      false,
                      1'200'000'000,
                      1'700'000'000'000,
                      40,
                      "checkpoint /data/step-40",
                      {"engine-0-tp0 live", "engine-0-tp0 snapshot"},
                      "live"},
                     {model::WeightVersion{2},
                      false,
                      true,
                      true,
                      1'200'000'000,
                      1'700'000'000'000,
                      30,
                      "checkpoint /data/step-30",
                      {"engine-0-tp0 shadow"},
                      "instant"}};
  const model::Member member{model::MemberId{"engine-0-tp0"},
                             model::Role::kEngineAgent,
                             model::ModelName{"default"},
                             model::HostId{"host"},
                             "",
                             0,
                             1,
                             "engine-0"};
  status.members = {{member, true, false, 120, 1, protocol::Tag{model::WeightVersion{3}, {}, model::UpdateId{5}},
                     std::nullopt, "weightbus 0.1.0"}};
  status.events = {{1, 1'700'000'000'000, "engine-0-tp0 joined"}, {2, 1'700'000'001'000, "update 5 committed"}};
  return status;
}

}  // namespace weightbus::cli
