#include "tests/simulation/agent_process.h"

#include <fmt/format.h>

#include "tests/simulation/engine_process.h"

namespace weightbus::simulation {
namespace {
constexpr std::uint64_t kTickUs = 50'000;
constexpr std::uint64_t kRestartUsMax = 900'000;
}  // namespace

AgentProcess::AgentProcess(World& world, model::Member self) : world_(world), self_(std::move(self)) {}

template <class F>
void AgentProcess::with(F&& f) {
  if (!alive()) return;
  if (shard_) {
    f(*shard_);
  } else {
    f(*engine_);
  }
  drain();
}

void AgentProcess::start() {
  if (alive()) return;
  ++incarnation_;
  const auto boot = world_.next_boot();
  protocol::AgentState state = disk_.value_or(protocol::AgentState{});
  if (self_.role == model::Role::kShardAgent) {
    shard_ = std::make_unique<protocol::ShardAgentFsm>(self_, boot, "sim", std::move(state));
  } else {
    // An arena that went with its host is none.
    if (!has_arena()) {
      state.has_arena = false;
      state.live = 0;
      state.halves[0] = state.halves[1] = protocol::Half{};
    }
    std::optional<model::SinkManifest> manifest;
    if (state.has_arena) manifest = ToyModel::sink_manifest(self_.rank, self_.world);
    std::vector<protocol::HeldVersion> held;
    for (const auto& [version, snapshot] : snapshots_)
      held.push_back({version, snapshot.layout, snapshot.bytes.size()});
    disk_ = state;
    engine_ = std::make_unique<protocol::EngineAgentFsm>(self_, boot, "sim", std::move(state), std::move(manifest),
                                                         std::move(held));
    engine_->start(world_.clock.protocol_now());
    drain();
  }
  world_.note(self_.id.value() + " starts");
  later(kTickUs, [this] { tick(); });
}

void AgentProcess::kill() {
  if (!alive()) return;
  world_.note(self_.id.value() + " dies");
  ++world_.counts.deaths;
  ++incarnation_;
  shard_.reset();
  engine_.reset();
  queue_.clear();
  busy_ = false;
  cancelled_.clear();
  serving_.clear();
  joined_.clear();
  const auto incarnation = incarnation_;
  world_.clock.after_us(world_.between(1'000, kRestartUsMax), [this, incarnation] {
    if (incarnation_ == incarnation) start();
  });
}

void AgentProcess::reboot() {
  if (!self_.engine.empty()) world_.engine(self_.engine).kill();
  kill();
  world_.note(self_.id.value() + " lost its memory");
  halves_[0].clear();
  halves_[1].clear();
}

void AgentProcess::wipe() {
  reboot();
  disk_.reset();
  snapshots_.clear();
}

void AgentProcess::tick() {
  later(kTickUs, [this] { tick(); });
  with([&](auto& fsm) { fsm.tick(world_.clock.protocol_now()); });
}

void AgentProcess::receive(const protocol::Envelope& message) {
  with([&](auto& fsm) { fsm.step(world_.clock.protocol_now(), message); });
}

void AgentProcess::later(std::uint64_t us_max, std::function<void()> action) {
  world_.clock.after_us(us_max == kTickUs ? us_max : world_.between(1, us_max),
                        [this, incarnation = incarnation_, f = std::move(action)] {
                          if (incarnation_ == incarnation) f();
                        });
}

protocol::AgentOutput AgentProcess::take_output() { return shard_ ? shard_->take_output() : engine_->take_output(); }

// Save, then send, then perform; the process may die between any two of them.
void AgentProcess::drain() {
  if (draining_) return;
  draining_ = true;
  struct Reset {
    bool& flag;
    ~Reset() { flag = false; }
  } reset{draining_};
  const auto incarnation = incarnation_;
  const auto output = take_output();
  if (output.save) {
    save(*output.save);
    if (world_.dies()) return kill();
  }
  for (const auto& envelope : output.send) {
    check_send(envelope);
    world_.send(envelope);
    if (world_.dies()) return kill();
  }
  for (const auto& action : output.perform) {
    enqueue(action);
    if (incarnation_ != incarnation) return;
  }
  if (output.fatal) {
    world_.note(self_.id.value() + " ends: " + output.fatal->message);
    kill();
  }
}

void AgentProcess::save(const protocol::AgentState& state) {
  const auto before = disk_.value_or(protocol::AgentState{});
  if (const auto wrong = protocol::check_agent_state(before, state)) {
    throw Violation(fmt::format("{}: {}", self_.id.value(), *wrong));
  }
  disk_ = state;
}

void AgentProcess::check_send(const protocol::Envelope& envelope) {
  const auto* staged = std::get_if<protocol::Staged>(&envelope.body);
  if (!staged) return;
  // Whether it is right is known once its version is: kept by what is in memory now.
  const std::size_t half = disk_->halves[0].tag == staged->tag ? 0 : 1;
  if (disk_->halves[half].tag != staged->tag)
    throw Violation(self_.id.value() + " says Staged of a half without that tag");
  world_.staged(self_.id, staged->tag, true);
}

void AgentProcess::report(protocol::AgentEvent event) {
  with([&](auto& fsm) { fsm.done(world_.clock.protocol_now(), event); });
}

// ---------------------------------------------------------------- actions, one at a time

void AgentProcess::enqueue(protocol::AgentAction action) {
  if (const auto* cancel = std::get_if<protocol::DoCancel>(&action)) {
    cancelled_.insert(cancel->update.value());
    return;
  }
  if (const auto* release = std::get_if<protocol::DoReleaseSource>(&action)) cancelled_.insert(release->update.value());
  if (const auto* retain = std::get_if<protocol::DoRetain>(&action)) return perform(*retain);
  if (const auto* digest = std::get_if<protocol::DoDigestLive>(&action)) return perform(*digest);
  queue_.push_back(std::move(action));
  start_next();
}

void AgentProcess::start_next() {
  if (busy_ || queue_.empty()) return;
  busy_ = true;
  const protocol::AgentAction action = std::move(queue_.front());
  queue_.pop_front();
  std::visit([&](const auto& a) { perform(a); }, action);
}

void AgentProcess::finish(protocol::AgentEvent event) {
  busy_ = false;
  const auto incarnation = incarnation_;
  report(std::move(event));
  if (incarnation_ == incarnation) start_next();
}

// ---------------------------------------------------------------- source

const Bytes* AgentProcess::served(model::UpdateId update) {
  const auto it = serving_.find(update.value());
  return alive() && it != serving_.end() && it->second.told ? it->second.memory : nullptr;
}

void AgentProcess::perform(const protocol::DoOpenSource& action) {
  later(3'000, [this, action] {
    using protocol::SourceOpened;
    const auto fail = [&](base::Error error) {
      finish(protocol::SourceOpenDone{action.update, base::fail(std::move(error))});
    };
    if (cancelled_.contains(action.update.value())) return fail({base::ErrorCode::kAborted, "cancelled"});
    if (world_.random.chance(world_.faults.work_failure)) return fail(failure());
    Serving serving;
    model::SourceManifest manifest;
    if (const auto* checkpoint = std::get_if<protocol::CheckpointSource>(&action.source)) {
      const auto content = std::stoull(checkpoint->directory);
      trainer_memory_ = world_.toy.source_bytes(content, self_.rank, self_.world);
      serving.memory = &trainer_memory_;
      manifest = ToyModel::source_manifest(self_.rank, self_.world);
    } else if (const auto* live = std::get_if<protocol::LiveSource>(&action.source)) {
      const auto& state = engine_->state();
      if (!state.has_arena || !state.halves[state.live].tag || state.halves[state.live].tag->version != live->version) {
        return fail({base::ErrorCode::kNotFound, "another version is live"});
      }
      serving.memory = &halves_[state.live];
      manifest = model::as_source(ToyModel::sink_manifest(self_.rank, self_.world));
    } else {
      const auto version = std::get<protocol::SnapshotSource>(action.source).version;
      const auto snapshot = snapshots_.find(version);
      if (snapshot == snapshots_.end()) return fail({base::ErrorCode::kNotFound, "no such snapshot"});
      serving.owned = std::make_shared<const Bytes>(snapshot->second.bytes);
      serving.memory = serving.owned.get();
      serving.snapshot = version;
      manifest = model::as_source(ToyModel::sink_manifest(self_.rank, self_.world));
    }
    serving_[action.update.value()] = std::move(serving);
    finish(protocol::SourceOpenDone{action.update, SourceOpened{std::move(manifest), {{"toy", self_.id.value()}}}});
  });
}

void AgentProcess::perform(const protocol::DoServe& action) {
  later(1'000, [this, action] {
    const auto it = serving_.find(action.update.value());
    if (it == serving_.end()) return finish(protocol::SourceServeDone{action.update, base::fail(failure())});
    it->second.told = true;
    finish(protocol::SourceServeDone{action.update, {}});
  });
}

void AgentProcess::perform(const protocol::DoDigestSource& action) {
  later(5'000, [this, action] {
    const auto* memory = served(action.update);
    if (!memory || cancelled_.contains(action.update.value()) || world_.random.chance(world_.faults.work_failure)) {
      return finish(protocol::SourceDigestDone{action.update, base::fail(failure())});
    }
    protocol::SourceStaged staged;
    staged.units = ToyModel::unit_digests(*action.part, memory->data());
    staged.element = staged.units;  // the digest does not depend on the grain
    finish(protocol::SourceDigestDone{action.update, std::move(staged)});
  });
}

void AgentProcess::perform(const protocol::DoReleaseSource& action) {
  later(3'000, [this, action] {
    serving_.erase(action.update.value());
    // The memory is the trainer's again, and it changes its weights at once.
    if (shard_) std::fill(trainer_memory_.begin(), trainer_memory_.end(), std::byte{0xEE});
    finish(protocol::SourceReleaseDone{action.update});
  });
}

// ---------------------------------------------------------------- sink

void AgentProcess::perform(const protocol::DoOpenSink& action) {
  later(3'000, [this, action] {
    if (action.tensors.empty() || world_.random.chance(world_.faults.work_failure)) {
      return finish(protocol::SinkOpenDone{base::fail(failure())});
    }
    auto manifest = ToyModel::sink_manifest(self_.rank, self_.world);
    for (auto& half : halves_)
      half.assign(manifest.region_bytes[0], std::byte{0xDD});
    finish(protocol::SinkOpenDone{std::move(manifest)});
  });
}

void AgentProcess::perform(const protocol::DoJoin& action) {
  later(3'000, [this, action] {
    if (cancelled_.contains(action.update.value()) || world_.random.chance(world_.faults.work_failure)) {
      return finish(protocol::SinkJoinDone{action.update, base::fail(failure())});
    }
    finish(protocol::SinkJoinDone{action.update, std::vector<std::string>(action.sources.size(), "toy")});
  });
}

void AgentProcess::perform(const protocol::DoPull& action) {
  const auto deadline = world_.clock.now() + protocol::from_ms(action.deadline_ms);
  if (disk_->halves[action.half].tag)
    throw Violation(self_.id.value() + " writes into a half whose tag was not cleared");
  if (disk_->live == action.half && disk_->has_arena) throw Violation(self_.id.value() + " writes into its live half");
  later(2'000, [this, action, deadline] { pull_bucket(action, 0, deadline); });
}

void AgentProcess::pull_bucket(const protocol::DoPull& action, std::size_t index, base::Instant deadline) {
  const auto fail = [&](base::Error error) {
    finish(protocol::SinkPullDone{action.update, base::fail(std::move(error))});
  };
  Bytes& to = halves_[action.half];
  if (index == action.part->buckets.size()) {
    if (world_.random.chance(world_.faults.corruption)) {
      to[world_.random.below(to.size())] ^= std::byte{0x10};
      ++world_.counts.corruptions;
      world_.note(self_.id.value() + ": a byte goes wrong");
    }
    const auto manifest = ToyModel::sink_manifest(self_.rank, self_.world);
    protocol::PullResult result{ToyModel::slot_digests(*action.part, manifest, to.data()), {1, 1, action.part->bytes}};
    return finish(protocol::SinkPullDone{action.update, std::move(result)});
  }
  if (cancelled_.contains(action.update.value())) return fail({base::ErrorCode::kAborted, "cancelled"});
  if (world_.clock.now() > deadline) return fail({base::ErrorCode::kDeadlineExceeded, "too slow"});
  const auto& bucket = action.part->buckets[index];
  AgentProcess* source = world_.agent(bucket.source);
  const Bytes* memory = source ? source->served(action.update) : nullptr;
  if (!memory || world_.random.chance(world_.faults.work_failure)) return fail(failure());
  const auto& engine = world_.engine(self_.engine);
  if (engine.attached(self_.rank) && engine.mapped(self_.rank) == static_cast<int>(action.half)) {
    throw Violation(self_.id.value() + " writes into memory that its client has mapped");
  }
  for (const auto& fragment : bucket.fragments) {
    const auto& tensor = action.part->tensors[fragment.tensor];
    copy_box(memory->data() + fragment.from.offset, fragment.from.strides, to.data() + fragment.to.offset,
             fragment.to.strides, fragment.box.extent, model::dtype_size(tensor.dtype));
  }
  later(4'000, [this, action, index, deadline] { pull_bucket(action, index + 1, deadline); });
}

void AgentProcess::perform(const protocol::DoLeave&) {
  busy_ = false;
  start_next();
}

// ---------------------------------------------------------------- the client

void AgentProcess::perform(const protocol::DoPause& action) {
  auto& engine = world_.engine(self_.engine);
  if (engine.attached(self_.rank) && world_.random.chance(world_.faults.pause_failure)) {
    const bool stops_later = world_.random.chance(50);
    return world_.clock.after(
        protocol::from_ms(action.deadline_ms), [this, action, stops_later, incarnation = incarnation_] {
          if (incarnation_ != incarnation) return;
          if (stops_later) world_.engine(self_.engine).close_gate(self_.rank);
          finish(protocol::PauseDone{action.attempt,
                                     base::fail(base::ErrorCode::kDeadlineExceeded, "the client did not pause")});
        });
  }
  engine.close_gate(self_.rank);
  const auto wait = engine.stepping() ? engine.step_ends() - world_.clock.now() : base::Duration::zero();
  world_.clock.after(wait + std::chrono::microseconds(world_.between(1, 2'000)),
                     [this, action, incarnation = incarnation_] {
                       if (incarnation_ == incarnation) finish(protocol::PauseDone{action.attempt, {}});
                     });
}

void AgentProcess::perform(const protocol::DoExchange& action) {
  later(1'500, [this, action] {
    auto& engine = world_.engine(self_.engine);
    if (engine.attached(self_.rank)) {
      if (!engine.gate_closed(self_.rank) || engine.stepping())
        throw Violation(self_.id.value() + " exchanges under a running step");
      if (world_.random.chance(world_.faults.exchange_failure)) {
        if (world_.random.chance(50)) engine.map(self_.rank, action.live);
        engine.kill();  // a client whose exchange failed halfway must not compute again
        return finish(protocol::ExchangeDone{action.attempt, base::fail(failure())});
      }
      engine.map(self_.rank, action.live);
    }
    finish(protocol::ExchangeDone{action.attempt, {}});
  });
}

void AgentProcess::perform(const protocol::DoResume& action) {
  later(1'000, [this, action] {
    world_.engine(self_.engine).open_gate(self_.rank);
    finish(protocol::ResumeDone{action.attempt});
  });
}

// ---------------------------------------------------------------- snapshots

void AgentProcess::perform(const protocol::DoRetain& action) {
  later(20'000, [this, action] {
    std::optional<base::Error> error;
    std::erase_if(snapshots_, [&](const auto& entry) {
      if (std::find(action.keep.begin(), action.keep.end(), entry.first) != action.keep.end()) return false;
      for (const auto& [update, serving] : serving_) {
        if (serving.snapshot == entry.first)
          throw Violation(self_.id.value() + " retires a snapshot that an update reads");
      }
      return true;
    });
    if (action.capture) {
      if (world_.random.chance(world_.faults.work_failure * 5)) {
        error = base::Error{base::ErrorCode::kResourceExhausted, "the disk is full"};
      } else {
        const auto layout = model::layout_hash(ToyModel::sink_manifest(self_.rank, self_.world));
        const auto content = world_.content_of(*action.capture);
        if (!content || halves_[action.half] != world_.toy.sink_bytes(*content, self_.rank, self_.world)) {
          throw Violation(fmt::format("{} captures other bytes than those of version {}", self_.id.value(),
                                      action.capture->value()));
        }
        snapshots_[*action.capture] = {layout, halves_[action.half]};
      }
    }
    std::vector<protocol::HeldVersion> held;
    for (const auto& [version, snapshot] : snapshots_)
      held.push_back({version, snapshot.layout, snapshot.bytes.size()});
    report(protocol::RetainDone{std::move(held), error});
  });
}

void AgentProcess::perform(const protocol::DoDigestLive&) {
  later(5'000, [this] { report(protocol::DigestLiveDone{std::vector<protocol::SlotDigest>{}}); });
}

}  // namespace weightbus::simulation
