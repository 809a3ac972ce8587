#include "weightbus/protocol/coordinator_fsm.h"

#include <fmt/format.h>

#include <algorithm>

#include "weightbus/protocol/dispatch.h"

namespace weightbus::protocol {
namespace {
constexpr std::size_t kModelsMax = 64;

const model::ModelName& model_of(const JournalRecord& record) {
  return std::visit([](const auto& r) -> const model::ModelName& { return r.model; }, record);
}
}  // namespace

CoordinatorFsm::CoordinatorFsm(CoordinatorOptions options, model::Epoch epoch, CoordinatorState state)
    : options_(options), epoch_(epoch), state_(std::move(state)) {
  for (auto& [name, model] : state_.models)
    models_.emplace(name, std::make_unique<ModelFsm>(name, options_, model, output_));
}

void CoordinatorFsm::start(Now now) {
  for (auto& [name, model] : models_)
    model->start(now, epoch_);
}

ModelFsm* CoordinatorFsm::find_model(Now now, const Envelope& message) {
  if (const auto it = models_.find(message.model); it != models_.end()) return it->second.get();
  if (!std::holds_alternative<Hello>(message.body) || models_.size() >= kModelsMax || message.model.value().empty())
    return nullptr;
  ModelState& state = state_.models[message.model];
  auto& model = models_[message.model];
  model = std::make_unique<ModelFsm>(message.model, options_, state, output_);
  model->start(now, epoch_);
  return model.get();
}

void CoordinatorFsm::step(Now now, const Envelope& message) {
  if (message.to != kCoordinator) {
    output_.observe.push_back(StaleDropped{"a message for somebody else"});
    return;
  }
  if (message.epoch.journal == epoch_.journal && message.epoch.number > epoch_.number) {
    // Somebody acquired the journal after us; the store will refuse our next append. Change nothing meanwhile.
    output_.observe.push_back(StaleDropped{"a message of a newer epoch: this coordinator has been replaced"});
    return;
  }
  ModelFsm* model = find_model(now, message);
  if (!model) {
    if (message.request != 0) {
      output_.send.push_back(
          Envelope{epoch_, message.model, std::nullopt, kCoordinator, message.from, message.request,
                   ErrorReply{{base::ErrorCode::kNotFound,
                               fmt::format("no agent of model {} has ever connected", message.model.value())}}});
    }
    return;
  }
  if (std::holds_alternative<AdoptRequest>(message.body)) return adopt(now, message);
  model->step(now, message);
}

void CoordinatorFsm::tick(Now now) {
  for (auto& [name, model] : models_)
    model->tick(now);
}

void CoordinatorFsm::planned(Now now, const model::ModelName& model, model::UpdateId update,
                             base::Result<std::shared_ptr<const PlanBundle>> result) {
  if (const auto it = models_.find(model); it != models_.end()) it->second->planned(now, update, std::move(result));
}

CoordinatorOutput CoordinatorFsm::take_output() {
  WB_ASSERT(persisting_.empty(), "persisted() is called before the next output is taken");
  persisting_ = output_.persist;
  return std::exchange(output_, CoordinatorOutput{});
}

void CoordinatorFsm::persisted(Now now, const base::Status& status) {
  const auto records = std::exchange(persisting_, {});
  if (status) {
    for (const auto& record : records)
      state_.apply(record);
  }
  for (const auto& record : records) {
    if (std::holds_alternative<Adopted>(record)) finish_adopt(status);
    const auto it = models_.find(model_of(record));
    if (it != models_.end()) it->second->persisted(now, record, status);
  }
}

// ---------------------------------------------------------------- adopt

void CoordinatorFsm::adopt(Now now, const Envelope& message) {
  ModelFsm& model = *models_.at(message.model);
  const auto answer = [&](Body body) {
    output_.send.push_back(
        Envelope{epoch_, message.model, std::nullopt, kCoordinator, message.from, message.request, std::move(body)});
  };
  if (adopting_) {
    if (adopting_->from == message.from && adopting_->request == message.request) return;
    return answer(ErrorReply{{base::ErrorCode::kConflict, "an adoption is under way"}});
  }
  if (model.foreign().empty())
    return answer(ErrorReply{{base::ErrorCode::kNotFound, "no member of another journal waits"}});
  if (model.run())
    return answer(ErrorReply{{base::ErrorCode::kConflict, "an update is running; wait for it or abort it"}});
  std::uint64_t epoch = epoch_.number;
  for (const auto& [id, foreign] : model.foreign())
    epoch = std::max(epoch, foreign.epoch);
  adopting_ = message;
  output_.perform.push_back(AcquireEpoch{epoch + 1});
  static_cast<void>(now);
}

void CoordinatorFsm::epoch_acquired(Now, base::Result<model::Epoch> result) {
  if (!adopting_) return;
  if (!result) {
    output_.send.push_back(Envelope{epoch_, adopting_->model, std::nullopt, kCoordinator, adopting_->from,
                                    adopting_->request, ErrorReply{result.error()}});
    adopting_.reset();
    return;
  }
  epoch_ = *result;
  for (auto& [name, model] : models_)
    model->set_epoch(epoch_);
  const ModelState& state = state_.models.at(adopting_->model);
  Adopted record{adopting_->model, model::WeightVersion{state.versions_reserved},
                 model::UpdateId{state.updates_reserved}, epoch_.number};
  for (const auto& [id, foreign] : models_.at(adopting_->model)->foreign()) {
    record.versions_to = std::max(record.versions_to, model::WeightVersion{foreign.versions + kNumbersBlock});
    record.updates_to = std::max(record.updates_to, model::UpdateId{foreign.updates + kNumbersBlock});
  }
  output_.persist.push_back(std::move(record));
}

void CoordinatorFsm::finish_adopt(const base::Status& status) {
  if (!adopting_) return;
  Body body = Done{};
  if (status) {
    models_.at(adopting_->model)->adopted();
  } else {
    body = ErrorReply{status.error()};
  }
  output_.send.push_back(Envelope{epoch_, adopting_->model, std::nullopt, kCoordinator, adopting_->from,
                                  adopting_->request, std::move(body)});
  adopting_.reset();
}

std::vector<ModelStatus> CoordinatorFsm::status(Now now) const {
  std::vector<ModelStatus> all;
  for (const auto& [name, model] : models_)
    all.push_back(model->status(now));
  return all;
}

}  // namespace weightbus::protocol
