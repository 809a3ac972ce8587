#include "tests/simulation/coordinator_process.h"

#include <fmt/format.h>

#include "weightbus/wire/codec.h"

namespace weightbus::simulation {
namespace {
constexpr base::Duration kLease = base::Millis(1'500);
constexpr base::Duration kTick = base::Millis(25);
}  // namespace

bool CoordinatorProcess::writer() const {
  return fsm_ && !stopped() && store_->watch().value_or(0) == fsm_->epoch().number;
}

void CoordinatorProcess::start() {
  if (fsm_ || down_) return;
  ++incarnation_;
  const auto retry = [this] {
    store_.reset();
    world_.clock.after(base::Millis(200), [this, incarnation = incarnation_] {
      if (incarnation_ == incarnation) start();
    });
  };
  store_ = std::make_unique<store::MemoryStore>(world_.journal,
                                                [this] { return static_cast<std::int64_t>(world_.clock.unix_ms()); });
  auto epoch = store_->acquire(name_, kLease, 0);
  if (!epoch) return retry();
  auto records = store_->read(0);
  if (!records) return retry();
  protocol::CoordinatorState state;
  for (const auto& record : *records) {
    auto decoded = wire::decode_record(record.payload);
    if (!decoded) throw Violation("the journal cannot be read: " + decoded.error().message);
    state.apply(*decoded);
  }
  world_.note(fmt::format("{} starts, epoch {}", name_, epoch->number));
  fsm_ = std::make_unique<protocol::CoordinatorFsm>(world_.options, *epoch, std::move(state));
  fsm_->start(world_.clock.protocol_now());
  renew_at_ = world_.clock.now() + kLease / 3;
  drain();
  world_.clock.after(kTick, [this, incarnation = incarnation_] {
    if (incarnation_ == incarnation) tick();
  });
}

void CoordinatorProcess::kill() {
  if (!fsm_) return;
  world_.note(name_ + " dies");
  ++world_.counts.deaths;
  ++incarnation_;
  fsm_.reset();
  store_.reset();
  stopped_until_ = {};
  world_.clock.after_us(world_.between(1'000, 1'500'000), [this, incarnation = incarnation_] {
    if (incarnation_ == incarnation) start();
  });
}

void CoordinatorProcess::stop_for(base::Duration time) {
  if (!fsm_) return;
  world_.note(name_ + " is stopped");
  stopped_until_ = world_.clock.now() + time;
}

template <class F>
void CoordinatorProcess::when_running(F f) {
  if (!fsm_) return;
  if (!stopped()) return f();
  world_.clock.after(stopped_until_ - world_.clock.now(), [this, incarnation = incarnation_, f] {
    if (incarnation_ == incarnation) when_running(f);
  });
}

void CoordinatorProcess::tick() {
  when_running([this] {
    world_.clock.after(kTick, [this, incarnation = incarnation_] {
      if (incarnation_ == incarnation) tick();
    });
    if (world_.clock.now() >= renew_at_) {
      renew_at_ = world_.clock.now() + kLease / 3;
      if (!store_->renew(kLease)) {
        ++world_.counts.fenced;
        return kill();
      }
    }
    fsm_->tick(world_.clock.protocol_now());
    drain();
  });
}

void CoordinatorProcess::receive(const protocol::Envelope& message) {
  when_running([this, message] {
    fsm_->step(world_.clock.protocol_now(), message);
    drain();
  });
}

// False: this process has ended.
bool CoordinatorProcess::append(protocol::CoordinatorOutput& output) {
  std::vector<std::string> payloads;
  for (const auto& record : output.persist)
    payloads.push_back(wire::encode_record(record));
  if (world_.random.chance(world_.faults.append_failure)) {
    using Fault = store::MemoryJournal::Fault;
    constexpr Fault kFaults[] = {Fault::kDiskFull, Fault::kUnknownLost, Fault::kUnknownWritten};
    world_.journal->fail_next_append(kFaults[world_.random.below(3)]);
  }
  for (const auto& record : output.persist) {
    const auto* decided = std::get_if<protocol::Decided>(&record);
    if (decided) world_.before_decision(*decided, fsm_->models().at(decided->model)->run());
  }
  const auto status = store_->append(payloads);
  world_.journal_grew();
  if (!status) world_.note(fmt::format("{}: append: {}", name_, status.error().message));
  if (!status &&
      (status.error().code == base::ErrorCode::kInternal || status.error().code == base::ErrorCode::kStale)) {
    if (status.error().code == base::ErrorCode::kStale) ++world_.counts.fenced;
    kill();
    return false;
  }
  if (world_.dies()) {
    kill();
    return false;
  }
  fsm_->persisted(world_.clock.protocol_now(), status);
  return true;
}

void CoordinatorProcess::drain() {
  if (draining_) return;
  draining_ = true;
  struct Reset {
    bool& flag;
    ~Reset() { flag = false; }
  } reset{draining_};
  for (int round = 0; round < 64; ++round) {
    auto output = fsm_->take_output();
    if (world_.tracing()) {
      for (const auto& observation : output.observe) {
        if (const auto* note = std::get_if<protocol::Note>(&observation)) world_.note("  * " + note->text);
      }
    }
    const bool persisted = !output.persist.empty();
    if (persisted && !append(output)) return;
    for (const auto& envelope : output.send) {
      world_.send(envelope);
      if (world_.dies()) return kill();
    }
    for (auto& action : output.perform)
      perform(std::move(action));
    if (!persisted) return;
  }
  throw Violation("the coordinator keeps on persisting");
}

void CoordinatorProcess::perform(protocol::CoordinatorAction action) {
  world_.clock.after_us(world_.between(1, 5'000), [this, incarnation = incarnation_, action = std::move(action)] {
    if (incarnation_ != incarnation) return;
    when_running([this, action] {
      if (const auto* plan = std::get_if<protocol::MakePlan>(&action)) {
        fsm_->planned(world_.clock.protocol_now(), plan->model, plan->update, protocol::make_plan(*plan));
      } else {
        fsm_->epoch_acquired(world_.clock.protocol_now(),
                             store_->acquire(name_, kLease, std::get<protocol::AcquireEpoch>(action).minimum));
      }
      drain();
    });
  });
}

}  // namespace weightbus::simulation
