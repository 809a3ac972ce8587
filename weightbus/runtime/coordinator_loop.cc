#include "weightbus/runtime/coordinator_loop.h"

#include <fmt/format.h>

#include "weightbus/observe/logs.h"
#include "weightbus/protocol/dispatch.h"
#include "weightbus/runtime/clock.h"
#include "weightbus/wire/codec.h"

namespace weightbus::runtime {
namespace {

constexpr base::Duration kTick = base::Millis(20);
constexpr base::Duration kReport = base::Millis(500);
constexpr std::size_t kSendersMax = 4096;

protocol::Now present() { return {now(), unix_millis()}; }

void log_error(std::string_view event, const base::Error& error) {
  observe::log(observe::Level::kError, event, {{"code", base::error_code_name(error.code)}, {"error", error.message}});
}

}  // namespace

base::Result<protocol::CoordinatorState> replay(store::StateStore& store) {
  WB_ASSIGN(const auto records, store.read(0));
  protocol::CoordinatorState state;
  for (const auto& stored : records) {
    auto record = wire::decode_record(stored.payload);
    if (!record) return base::fail(record.error().with(fmt::format("journal record {}", stored.sequence)));
    state.apply(*record);
  }
  return state;
}

CoordinatorLoop::CoordinatorLoop(CoordinatorLoopOptions options, transport::Transport& transport,
                                 store::StateStore& store)
    : options_(std::move(options)), transport_(transport), store_(store), link_(transport), mailbox_([&transport] {
        transport.wake();
      }) {}

CoordinatorLoop::~CoordinatorLoop() = default;

void CoordinatorLoop::stop() {
  stop_ = true;
  transport_.wake();
}

std::vector<protocol::ModelStatus> CoordinatorLoop::status() const {
  const std::lock_guard lock(status_mutex_);
  return status_;
}

bool CoordinatorLoop::begin() {
  const auto epoch = store_.acquire(options_.holder, options_.lease, 1);
  if (!epoch) {
    log_error("journal.acquire", epoch.error());
    exit_code_ = epoch.error().code == base::ErrorCode::kConflict ? kExitFenced : kExitJournal;
    return false;
  }
  auto state = replay(store_);
  if (!state) {
    log_error("journal.replay", state.error());
    exit_code_ = state.error().code == base::ErrorCode::kUnsupported ? kExitNewerJournal : kExitJournal;
    return false;
  }
  observe::log(observe::Level::kInfo, "coordinator.epoch",
               {{"journal", epoch->journal.to_string()}, {"epoch", epoch->number}});
  fsm_ = std::make_unique<protocol::CoordinatorFsm>(options_.protocol, *epoch, std::move(*state));
  planner_ = std::make_unique<WorkerPool>(1, 64, [this](Task task) { mailbox_.post(std::move(task)); });
  next_renew_ = now() + options_.lease / 3;
  return true;
}

int CoordinatorLoop::run() {
  if (!begin()) return *exit_code_;
  fsm_->start(present());
  carry_out();
  serving_ = true;
  base::Instant next_tick = now();
  while (!stop_ && !exit_code_) {
    if (auto message = link_.receive(std::max(next_tick - now(), base::Duration::zero()))) {
      if (const auto refused = admit(*message)) {
        options_.dropped("impostor");
        observe::log(observe::Level::kWarn, "coordinator.refused",
                     {{"from", message->envelope.from.value()},
                      {"message", protocol::body_name(message->envelope.body)},
                      {"error", refused->message}});
      } else {
        fsm_->step(present(), message->envelope);
        carry_out();
      }
    }
    if (mailbox_.run() > 0) carry_out();
    if (now() < next_tick || exit_code_) continue;
    next_tick = now() + kTick;
    fsm_->tick(present());
    carry_out();
    keep_lease();
    publish_status();
  }
  serving_ = false;
  planner_.reset();
  if (!exit_code_) store_.release();
  return exit_code_.value_or(0);
}

// Who may say what: a key speaks for its own member and role; without keys (loopback only), the first name on a
// connection keeps it, and only Hello or a new connection's first word leads replies elsewhere.
std::optional<base::Error> CoordinatorLoop::admit(const Incoming& message) {
  const auto& envelope = message.envelope;
  const auto denied = [](std::string why) { return base::Error{base::ErrorCode::kPermissionDenied, std::move(why)}; };
  if (envelope.from == protocol::kCoordinator || envelope.from.value().empty())
    return denied("it speaks for the coordinator");
  const auto* hello = std::get_if<protocol::Hello>(&envelope.body);
  const bool admin = envelope.request != 0;
  if (message.identity) {
    const auto& identity = *message.identity;
    if (identity.member.value() != "*" && identity.member != envelope.from) {
      return denied(fmt::format("the key belongs to {}", identity.member.value()));
    }
    if (hello && hello->member.role != identity.role) return denied("the key has another role");
    if (admin != (identity.role == model::Role::kAdmin)) return denied("the key's role may not send this");
  }
  if (senders_.size() >= kSendersMax) senders_.clear();
  const auto [sender, is_new] = senders_.try_emplace(message.connection, envelope.from);
  if (sender->second != envelope.from)
    return denied(fmt::format("the connection belongs to {}", sender->second.value()));
  const std::string* route = link_.connection_of(envelope.from);
  if (!route || hello || admin || message.identity) {
    link_.route(envelope.from, message.connection);
  } else if (*route != message.connection) {
    return denied("the member is on another connection; it has to say Hello");
  }
  return std::nullopt;
}

void CoordinatorLoop::carry_out() {
  // Persisting can lead to more output; each round takes one step of one update, so there are few.
  for (int round = 0; round < 16 && !exit_code_; ++round) {
    protocol::CoordinatorOutput output = fsm_->take_output();
    const bool nothing =
        output.persist.empty() && output.send.empty() && output.perform.empty() && output.observe.empty();
    if (nothing) return;
    if (!output.persist.empty() && !persist(output.persist)) return;
    for (const auto& envelope : output.send)
      link_.send(envelope);
    for (auto& action : output.perform)
      perform(std::move(action));
    for (const auto& observation : output.observe)
      options_.observe(observation);
  }
}

bool CoordinatorLoop::persist(const std::vector<protocol::JournalRecord>& records) {
  std::vector<std::string> payloads;
  for (const auto& record : records)
    payloads.push_back(wire::encode_record(record));
  const base::Instant began = now();
  const auto status = store_.append(payloads);
  options_.appended(now() - began);
  if (!status) {
    log_error("journal.append", status.error());
    if (status.error().code == base::ErrorCode::kStale) exit_code_ = kExitFenced;
    if (status.error().code == base::ErrorCode::kInternal || status.error().code == base::ErrorCode::kCorrupted) {
      exit_code_ = kExitJournal;  // unknown: send nothing, end, read the journal again
    }
    if (exit_code_) return false;
  }
  fsm_->persisted(present(), status);
  return true;
}

void CoordinatorLoop::perform(protocol::CoordinatorAction action) {
  std::visit(protocol::Overloaded{
                 [&](protocol::MakePlan& request) {
                   const auto model = request.model;
                   const auto update = request.update;
                   const auto queued = planner_->submit([this, request = std::move(request)]() -> Task {
                     auto plan = protocol::make_plan(request);
                     return [this, plan = std::move(plan), model = request.model, update = request.update] {
                       fsm_->planned(present(), model, update, plan);
                     };
                   });
                   if (!queued) fsm_->planned(present(), model, update, base::fail(queued.error()));
                 },
                 [&](protocol::AcquireEpoch& request) {
                   fsm_->epoch_acquired(present(), store_.acquire(options_.holder, options_.lease, request.minimum));
                 },
             },
             action);
}

void CoordinatorLoop::keep_lease() {
  if (now() < next_renew_ || exit_code_) return;
  next_renew_ = now() + options_.lease / 3;
  const auto renewed = store_.renew(options_.lease);
  if (renewed) return;
  log_error("journal.lease", renewed.error());
  if (renewed.error().code == base::ErrorCode::kStale) exit_code_ = kExitFenced;
  if (renewed.error().code == base::ErrorCode::kInternal) exit_code_ = kExitJournal;
}

void CoordinatorLoop::publish_status() {
  if (now() < next_report_) return;
  next_report_ = now() + kReport;
  auto status = fsm_->status(present());
  options_.report(status);
  const std::lock_guard lock(status_mutex_);
  status_ = std::move(status);
}

}  // namespace weightbus::runtime
