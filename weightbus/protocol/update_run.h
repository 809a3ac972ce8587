// One update on its way: from announced to committed or aborted (design section 2). Owned by ModelFsm.
//
// Each step has a set of members that it waits for. A request is sent on entering the step and repeated until the
// member answers; the last answer enters the next step. So a lost message costs one resend interval, and nothing hangs:
// before the decision the update's deadline aborts it, after it the commit deadline quarantines who did not answer.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "weightbus/protocol/coordinator_output.h"
#include "weightbus/protocol/coordinator_state.h"
#include "weightbus/protocol/time.h"

namespace weightbus::protocol {

struct CoordinatorOptions {
  base::Duration heartbeat_interval = base::Millis(500);
  base::Duration member_timeout = base::Millis(5'000);     // silent for longer: lost
  base::Duration update_deadline = base::Millis(120'000);  // announced to decided
  base::Duration pause_deadline = base::Millis(10'000);    // for every rank to pause at a step
  base::Duration commit_deadline = base::Millis(30'000);   // decided to committed; later: quarantined
  base::Duration abort_deadline = base::Millis(10'000);
  base::Duration resend_interval = base::Millis(200);
  base::Duration serve_stale{};  // zero: no bound
  std::uint64_t bucket_bytes = plan::kDefaultBucketBytes;
  std::uint32_t retain_versions = 4;  // snapshots kept on disk
  // How long the committed version may be without any holder before the fleet goes back to the newest one that has one:
  // its holders may only be restarting.
  base::Duration unavailable_grace = base::Millis(30'000);
};

struct RunEngine {
  std::string name;
  std::vector<model::MemberId> ranks;  // by tp_rank: the driver first
  bool required = true;
};

struct UpdateSpec {
  model::UpdateId id;
  UpdateKind kind;
  model::WeightVersion target;
  std::optional<model::WeightVersion> base;
  std::vector<std::pair<model::MemberId, SourceSpec>> sources;
  std::vector<RunEngine> engines;
  std::uint32_t require = 0;  // 0: all required engines
  std::uint64_t step = 0;
  bool dry_run = false;
  base::Duration deadline{};
  std::string source_text;
  std::shared_ptr<const VersionRecord> record;  // of the target, unless it is a push
};

// What a run needs of its model. Everything is borrowed and outlives the run.
struct RunMember {
  model::Member info;
  model::Hash128 layout;  // of the sink manifest, if any
  std::shared_ptr<const model::SinkManifest> sink;
  std::vector<Half> halves;
  std::uint64_t bytes_done = 0;
};
class RunContext {
 public:
  virtual ~RunContext() = default;
  virtual const CoordinatorOptions& options() const = 0;
  virtual const RunMember* member(const model::MemberId& id) const = 0;  // nullptr when not connected
  virtual void sink_opened(const model::MemberId& id, const SinkOpened& answer) = 0;
  virtual void send(const model::MemberId& to, std::optional<model::UpdateId> update, Body body) = 0;
  virtual void event(std::string text) = 0;  // for people
  virtual CoordinatorOutput& output() = 0;
  virtual const model::ModelName& model() const = 0;
  // A plan made for the same manifests before, or nullptr. Keyed by everything that MakePlan holds but the update.
  virtual std::shared_ptr<const PlanBundle> cached_plan(const base::Hash128& key) const = 0;
  virtual void cache_plan(const base::Hash128& key, std::shared_ptr<const PlanBundle> plan) = 0;
};

class UpdateRun {
 public:
  UpdateRun(RunContext& context, UpdateSpec spec, Now now);
  // After a restart: goes on with a decision that was journaled and not ended.
  static std::unique_ptr<UpdateRun> recover(RunContext& context, const Decided& decided, Now now);

  void start(Now now);
  void answer(Now now, const Envelope& message);
  void member_lost(Now now, const model::MemberId& member, const base::Error& why);
  void planned(Now now, base::Result<std::shared_ptr<const PlanBundle>> result);
  void persisted(Now now, const base::Status& status);  // of the decision
  void abort(Now now, base::Error reason);              // no effect once the decision is being journaled
  void tick(Now now);

  bool ended() const { return step_ == Step::kEnded; }
  bool decided() const { return decided_; }
  bool can_abort() const { return step_ < Step::kDecide; }
  bool uses(const model::MemberId& member) const;
  const UpdateSpec& spec() const { return spec_; }
  UpdateStatus status(Now now) const;
  // Engines of a decided update that did not get there, with the reason: to be quarantined.
  std::map<std::string, base::Error> failed_engines() const;
  std::vector<std::string> committed_engines() const;
  std::vector<RankTag> tags(const std::string& engine) const;  // that Commit named

 private:
  enum class Step : std::uint8_t {
    kOpenSources,
    kOpenSinks,
    kPlan,
    kPrepare,
    kStage,
    kDecide,
    kCommit,
    kAbort,
    kEnded
  };
  enum class Mode : std::uint8_t { kLive, kInstant, kTransfer };
  using Waiting = std::set<std::pair<model::MemberId, SessionRole>>;

  struct Source {
    model::MemberId id;
    SourceSpec spec;
    std::shared_ptr<const model::SourceManifest> manifest;
    std::vector<ChannelOffer> offers;
    std::vector<plan::Digest> units;
    std::vector<plan::Digest> element;
  };
  struct Sink {
    model::MemberId id;
    std::size_t engine;
    Mode mode = Mode::kTransfer;
    std::optional<Tag> tag;  // that Commit will name
    std::vector<plan::Digest> slots;
    StageTimes times;
    std::vector<std::string> channels;
    std::uint64_t bytes = 0;
  };
  struct Engine {
    RunEngine spec;
    std::vector<std::size_t> sinks;
    std::optional<base::Error> dropped;  // left this update, before the decision or at its commit
    bool committed = false;
    std::uint64_t pause_ns = 0;
    CommitWay way = CommitWay::kRemap;
  };

  // update_run.cc
  void enter(Now now, Step step);
  void request(const model::MemberId& member, SessionRole role);
  void answered(Now now, const model::MemberId& member, SessionRole role);
  void advance(Now now);
  void wait_for_sources();
  void wait_for_sinks();
  void failed(Now now, const model::MemberId& member, SessionRole role, base::Error error);
  void drop_engine(Now now, std::size_t engine, base::Error error);
  void set_phase(Now now, Phase phase);
  void finish(Now now, Phase phase);
  void choose_modes();
  void after_opening(Now now);
  bool any_transfer() const;
  Source* find_source(const model::MemberId& id);
  Sink* find_sink(const model::MemberId& id);
  bool transfers(const Sink& sink) const { return sink.mode == Mode::kTransfer && !engines_[sink.engine].dropped; }
  std::uint32_t remaining_ms(Now now) const;

  // update_answers.cc
  bool accept(Now now, const model::MemberId& from, const Body& body);
  bool accept_source(Source& source, const Body& body);
  bool accept_sink(Sink& sink, const Body& body);
  void send_part(const model::MemberId& member, const NeedPart& need);
  void accept_commit(Now now, const model::MemberId& from, const Body& body);

  // update_prove.cc
  void make_plan(Now now);
  void use_plan(Now now, std::shared_ptr<const PlanBundle> plan);
  PlanReport report() const;
  void report_channels();
  std::optional<base::Error> compare();
  void decide(Now now);
  std::optional<std::size_t> plan_sink(const model::MemberId& id) const;
  std::optional<std::size_t> plan_source(const model::MemberId& id) const;

  RunContext& context_;
  UpdateSpec spec_;
  std::vector<Source> sources_;
  std::vector<Sink> sinks_;
  std::vector<Engine> engines_;
  std::vector<model::MemberId> planned_sinks_;  // in the order of the plan
  std::shared_ptr<const PlanBundle> plan_;
  base::Hash128 plan_key_;
  Step step_ = Step::kOpenSources;
  Waiting waiting_;
  std::set<model::MemberId> leaving_;  // ranks of dropped engines whose Aborted is awaited
  bool decided_ = false;
  std::optional<base::Error> error_;
  std::optional<Decided> decision_;
  std::vector<std::pair<std::string, plan::Digest>> version_digests_;
  std::uint64_t compared_ = 0;
  std::optional<PlanReport> report_;
  // For people and deadlines.
  Phase phase_ = Phase::kAnnounced;
  base::Instant phase_began_;
  std::vector<PhaseTime> phases_;
  std::uint64_t started_unix_ms_;
  base::Instant deadline_;
  base::Instant step_deadline_{};  // of kCommit and kAbort
  base::Instant next_resend_{};
  base::Instant now_{};
};

}  // namespace weightbus::protocol
