// A coordinator with its members played by the test: what is sent to a member can be looked at and answered.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weightbus/protocol/coordinator_fsm.h"

namespace weightbus::protocol {

inline const model::ModelName kToy{"toy"};
inline const model::MemberId kCli{"cli"};

class CoordinatorBench {
 public:
  explicit CoordinatorBench(CoordinatorOptions options = {}, CoordinatorState state = {}, std::uint64_t epoch = 1)
      : options_(options), fsm_(options, model::Epoch{{7, 7}, epoch}, std::move(state)) {
    fsm_.start(now());
    drain();
  }

  Now now() const { return Now{base::Instant{} + base::Millis(1'000 + ms_), 1'000}; }
  void pass(std::uint64_t ms) {
    for (std::uint64_t at = 0; at < ms; at += 50) {
      ms_ += 50;
      for (const auto& [id, boot] : boots_)
        heartbeat(id);
      fsm_.tick(now());
      drain();
    }
  }

  static model::SinkManifest sink() {
    model::SinkManifest manifest;
    manifest.tensors = {{"w", model::DType::kF32, {4}}};
    model::Slot slot;
    slot.tensor = 0;
    slot.box = model::Box::whole({4});
    slot.at = {0, 0, {1}};
    manifest.slots = {slot};
    manifest.region_bytes = {16};
    return manifest;
  }
  static model::SourceManifest source() {
    model::SourceManifest manifest;
    manifest.tensors = {{"w", model::DType::kF32, {4}}};
    manifest.shards = {{0, model::Box::whole({4}), {0, 0, {1}}}};
    manifest.region_bytes = {16};
    return manifest;
  }

  void hello(const std::string& name, model::Role role, const std::string& engine, std::uint64_t boot = 1,
             model::Epoch known = {}, std::uint64_t highest = 0) {
    const model::MemberId id{name};
    model::Member member{id, role, kToy, model::HostId{"h"}};
    member.engine = engine;
    Hello body{member,  model::BootId{boot}, kProtocolRevision, "test", known,
               highest, halves_[id],         std::nullopt,      {},     std::nullopt};
    if (role == model::Role::kEngineAgent) body.sink = sink();
    boots_.insert_or_assign(id, boot);
    give(Envelope{known, kToy, std::nullopt, id, kCoordinator, 0, std::move(body)});
  }
  void heartbeat(const model::MemberId& id) {
    give(Envelope{fsm_.epoch(), kToy, std::nullopt, id, kCoordinator, 0,
                  Heartbeat{model::BootId{boots_.at(id)}, 0, 0, halves_[id]}});
  }
  void forget(const std::string& name) { boots_.erase(model::MemberId{name}); }  // falls silent
  void ask(Body body) { give(Envelope{{}, kToy, std::nullopt, kCli, kCoordinator, ++requests_, std::move(body)}); }
  void answer(const std::string& from, std::uint64_t update, Body body) {
    give(
        Envelope{fsm_.epoch(), kToy, model::UpdateId{update}, model::MemberId{from}, kCoordinator, 0, std::move(body)});
  }
  void give(Envelope envelope) {
    fsm_.step(now(), envelope);
    drain();
  }

  // The last message of a kind to a member, taken.
  template <class T>
  std::optional<T> last(const std::string& to) {
    std::optional<T> found;
    std::erase_if(sent_, [&](const Envelope& envelope) {
      const auto* body = std::get_if<T>(&envelope.body);
      if (!body || envelope.to.value() != to) return false;
      found = *body;
      return true;
    });
    return found;
  }

  // Plays an update up to the answer of Staged, as one trainer and the given engines.
  UpdateAccepted push(std::uint32_t require = 0, bool queue = false) {
    PublishRequest request{CheckpointSource{"/data"}};
    request.require = require;
    request.queue = queue;
    ask(request);
    const auto accepted = last<UpdateAccepted>("cli");
    EXPECT_TRUE(accepted.has_value()) << refusal();
    return accepted.value_or(UpdateAccepted{model::UpdateId{0}, model::WeightVersion{0}});
  }
  std::string refusal() {
    const auto error = last<ErrorReply>("cli");
    return error ? error->error.message : "no answer";
  }
  void prepare(std::uint64_t update, const std::vector<std::string>& engines) {
    answer("t", update, SourceOpened{source(), {}});
    for (const auto& engine : engines)
      answer(engine, update, SinkOpened{sink(), halves_[model::MemberId{engine}], CommitWay::kRemap});
    if (const auto request = last<PrepareSource>("t")) {
      answer("t", update, Prepared{SessionRole::kSource, request->plan_hash, request->part_hash, {}});
    }
    for (const auto& engine : engines) {
      const auto request = last<PrepareSink>(engine);
      if (!request) continue;
      tags_.insert_or_assign(model::MemberId{engine}, request->tag);
      answer(engine, update, Prepared{SessionRole::kSink, request->plan_hash, request->part_hash, {"shm"}});
    }
  }
  void stage_source(std::uint64_t update) { answer("t", update, SourceStaged{{{1, 2}}, {{1, 2}}}); }
  void stage(const std::string& engine, std::uint64_t update, plan::Digest digest = {1, 2}) {
    const model::MemberId id{engine};
    answer(engine, update, Staged{tags_.at(id), {digest}, {}});
  }
  void committed(const std::string& engine, std::uint64_t update, model::WeightVersion version) {
    const model::MemberId id{engine};
    auto& halves = halves_[id];
    halves.resize(2);
    if (tags_.contains(id) && halves[0].tag != tags_.at(id)) {
      halves[1] = halves[0];
      halves[0] = Half{tags_.at(id), true};
    }
    answer(engine, update, Committed{version, 1, CommitWay::kRemap});
  }
  model::WeightVersion whole_push(const std::vector<std::string>& engines) {
    const auto accepted = push();
    const auto update = accepted.update.value();
    prepare(update, engines);
    stage_source(update);
    for (const auto& engine : engines)
      stage(engine, update);
    for (const auto& engine : engines)
      committed(engine, update, accepted.target);
    answer("t", update, Released{});
    return accepted.target;
  }

  ModelStatus status() const { return fsm_.status(now()).at(0); }
  bool quarantined(const std::string& id) const {
    for (const auto& member : status().members) {
      if (member.member.id.value() == id) return member.quarantined;
    }
    return true;
  }

  CoordinatorOptions options_;
  CoordinatorFsm fsm_;
  std::vector<JournalRecord> journal_;
  std::vector<Envelope> sent_;
  std::map<model::MemberId, std::uint64_t> boots_;
  std::map<model::MemberId, std::vector<Half>> halves_;
  std::map<model::MemberId, Tag> tags_;
  std::optional<base::Error> append_fails_;  // the next append

 private:
  void drain() {
    for (int round = 0; round < 16; ++round) {
      auto output = fsm_.take_output();
      if (!output.persist.empty()) {
        const auto error = std::exchange(append_fails_, std::nullopt);
        if (!error) journal_.insert(journal_.end(), output.persist.begin(), output.persist.end());
        fsm_.persisted(now(), error ? base::Status(base::fail(*error)) : base::Status());
      }
      sent_.insert(sent_.end(), output.send.begin(), output.send.end());
      for (auto& action : output.perform) {
        if (const auto* plan = std::get_if<MakePlan>(&action)) {
          fsm_.planned(now(), plan->model, plan->update, make_plan(*plan));
        } else {
          fsm_.epoch_acquired(now(), model::Epoch{{7, 7}, std::get<AcquireEpoch>(action).minimum});
        }
      }
      if (output.persist.empty() && output.perform.empty()) return;
    }
    FAIL() << "the coordinator keeps on asking";
  }
  std::uint64_t ms_ = 0;
  std::uint64_t requests_ = 0;
};

}  // namespace weightbus::protocol
