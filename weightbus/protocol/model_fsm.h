// The coordinator's part for one model: its members, its versions, the update that runs and those that wait.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weightbus/protocol/coordinator_output.h"
#include "weightbus/protocol/coordinator_state.h"
#include "weightbus/protocol/update_run.h"

namespace weightbus::protocol {

// Driven by CoordinatorFsm. step/tick/planned/persisted from one thread; all output goes to `output`.
class ModelFsm final : private RunContext {
 public:
  // `state` and `output` are borrowed. `state` changes only by CoordinatorFsm applying records after they are durable.
  ModelFsm(model::ModelName name, const CoordinatorOptions& options, ModelState& state, CoordinatorOutput& output);

  // Goes on with a decision that was journaled and not ended.
  void start(Now now, const model::Epoch& epoch);
  void set_epoch(const model::Epoch& epoch) { epoch_ = epoch; }
  void step(Now now, const Envelope& message);
  void tick(Now now);
  void planned(Now now, model::UpdateId update, base::Result<std::shared_ptr<const PlanBundle>> result);
  // What became of a record of this model that was handed out for persisting.
  void persisted(Now now, const JournalRecord& record, const base::Status& status);
  // Whether members of other journals wait, and how far those had counted.
  struct Foreign {
    std::uint64_t versions = 0;
    std::uint64_t updates = 0;
    std::uint64_t epoch = 0;
  };
  const std::map<model::MemberId, Foreign>& foreign() const { return foreign_; }
  void adopted();

  ModelStatus status(Now now) const;
  const UpdateRun* run() const { return run_.get(); }

 private:
  struct MemberState : RunMember {
    model::BootId boot{0};
    std::string software;
    base::Instant last_seen{};
    bool connected = false;
    std::vector<HeldVersion> held;
    std::uint64_t readers = 0;
    std::optional<Retain> retain_sent;  // not answered yet
    base::Instant retain_resend{};
  };
  struct EngineState {
    bool quarantined = false;
    std::string why;
    std::uint32_t failures = 0;  // catch-ups in a row that failed
    base::Instant retry_at{};
  };
  struct Queued {
    model::MemberId from;
    std::uint64_t request;
    UpdateKind kind;
    PublishRequest publish;
    std::optional<model::WeightVersion> to;
    model::UpdateId id;
    model::WeightVersion target;
  };
  struct Verify {
    model::MemberId from;
    std::uint64_t request;
    std::map<model::MemberId, std::optional<LiveDigests>> answers;
    base::Instant deadline;
    base::Instant resend;
  };

  // RunContext
  const CoordinatorOptions& options() const override { return options_; }
  const RunMember* member(const model::MemberId& id) const override;
  void sink_opened(const model::MemberId& id, const SinkOpened& answer) override;
  void send(const model::MemberId& to, std::optional<model::UpdateId> update, Body body) override;
  void event(std::string text) override;
  CoordinatorOutput& output() override { return output_; }
  const model::ModelName& model() const override { return name_; }
  std::shared_ptr<const PlanBundle> cached_plan(const base::Hash128& key) const override;
  void cache_plan(const base::Hash128& key, std::shared_ptr<const PlanBundle> plan) override;

  // model_members.cc
  void hello(Now now, const Envelope& message, const Hello& body);
  std::optional<base::Error> refuse(const model::MemberId& from, const Hello& body) const;
  void heartbeat(Now now, const Envelope& message, const Heartbeat& body);
  void welcome(const model::MemberId& id);
  void lost(Now now, const model::MemberId& id, const std::string& why);
  void quarantine(const std::string& engine, std::string why);
  void lift_quarantines(Now now);
  bool serves(const MemberState& member, model::WeightVersion version, std::size_t half) const;
  // Ranks of an engine (by rank), or of the shard agents (engine ""), if every rank is connected.
  std::optional<std::vector<model::MemberId>> complete(const std::string& engine) const;
  std::string missing(const std::string& engine) const;

  // model_updates.cc
  void publish(Now now, const Envelope& message, const PublishRequest& body);
  void rollback(Now now, const Envelope& message, const RollbackRequest& body);
  void begin(Now now, Queued request);
  void drop_queued(const Queued& queued, const base::Error& reason);
  void begin_push(Now now, const Queued& request);
  void begin_rollback(Now now, const Queued& request);
  base::Result<UpdateSpec> restore_spec(UpdateKind kind, model::UpdateId id, model::WeightVersion target,
                                        const std::vector<std::string>& engines) const;
  void catch_up(Now now);
  void launch(Now now, UpdateSpec spec);
  void end_run(Now now);
  void note_exchanged(const UpdateRun& run, const std::string& engine);
  void release_sources(Now now);
  void end_orphan(const model::MemberId& id, model::UpdateId update);
  bool was_decided(model::UpdateId update) const;
  base::Result<model::UpdateId> next_update();
  base::Result<model::WeightVersion> next_version();
  void reserve_numbers();
  std::vector<RunEngine> engines_for_update() const;

  // model_admin.cc
  void admin(Now now, const Envelope& message);
  void reply(const Envelope& message, Body body);
  void reply_to(const model::MemberId& to, std::uint64_t request, Body body);
  void pin(const Envelope& message, const PinRequest& body);
  void evict(Now now, const Envelope& message, const EvictRequest& body);
  void verify(Now now, const Envelope& message);
  void verify_tick(Now now);
  void diff(const Envelope& message, const DiffRequest& body);

  // model_retain.cc
  void retain_tick(Now now);
  std::vector<model::WeightVersion> kept_versions() const;
  // Where a version can be had: complete sets of ranks that hold it.
  std::vector<std::pair<model::MemberId, SourceSpec>> holders(model::WeightVersion version) const;
  std::optional<model::WeightVersion> newest_available() const;

  const model::ModelName name_;
  const CoordinatorOptions& options_;
  ModelState& state_;
  CoordinatorOutput& output_;
  model::Epoch epoch_;
  std::uint64_t last_version_;
  std::uint64_t last_update_;
  std::uint64_t asked_versions_ = 0;  // of the last NumbersReserved that was handed out
  std::uint64_t asked_updates_ = 0;
  std::map<model::MemberId, MemberState> members_;
  std::map<std::string, EngineState> engines_;
  std::map<model::MemberId, Foreign> foreign_;
  std::unique_ptr<UpdateRun> run_;
  std::deque<Queued> queue_;
  std::map<model::MemberId, model::UpdateId> releasing_;  // sources whose Released is awaited
  std::map<model::MemberId, model::UpdateId> orphans_;    // members in an update that a former start of ours gave up
  std::set<model::MemberId> returned_;                    // members that joined since the update began
  std::optional<base::Instant> unavailable_since_;        // nobody has held the committed version since
  std::deque<Envelope> unpersisted_;                      // pins and evictions, to be answered once they are durable
  base::Instant release_resend_{};
  std::vector<Verify> verifies_;
  std::deque<std::pair<std::pair<model::MemberId, std::uint64_t>, Body>> replies_;  // of requests that change something
  std::vector<std::pair<base::Hash128, std::shared_ptr<const PlanBundle>>> plans_;
  std::deque<Event> events_;
  std::uint64_t event_sequence_ = 0;
  Now now_{};
};

}  // namespace weightbus::protocol
