// The coordinator's state machine: epochs, and one ModelFsm for each model.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "weightbus/protocol/model_fsm.h"

namespace weightbus::protocol {

// Pure: time and messages come in, output is handed out. From one thread. The loop calls take_output() after each call,
// persists its records in order as one append, and reports by persisted() before it sends anything.
class CoordinatorFsm {
 public:
  // `state`: the replayed journal. `epoch`: acquired by this start.
  CoordinatorFsm(CoordinatorOptions options, model::Epoch epoch, CoordinatorState state);

  void start(Now now);
  void step(Now now, const Envelope& message);
  void tick(Now now);
  void planned(Now now, const model::ModelName& model, model::UpdateId update,
               base::Result<std::shared_ptr<const PlanBundle>> result);
  // The records of the output last taken are durable, or (an error) none of them was written.
  void persisted(Now now, const base::Status& status);
  void epoch_acquired(Now now, base::Result<model::Epoch> result);

  CoordinatorOutput take_output();
  std::vector<ModelStatus> status(Now now) const;
  const model::Epoch& epoch() const { return epoch_; }
  const CoordinatorState& state() const { return state_; }
  const std::map<model::ModelName, std::unique_ptr<ModelFsm>>& models() const { return models_; }

 private:
  ModelFsm* find_model(Now now, const Envelope& message);
  void adopt(Now now, const Envelope& message);
  void finish_adopt(const base::Status& status);

  CoordinatorOptions options_;
  model::Epoch epoch_;
  CoordinatorState state_;
  CoordinatorOutput output_;
  std::map<model::ModelName, std::unique_ptr<ModelFsm>> models_;
  std::vector<JournalRecord> persisting_;
  std::optional<Envelope> adopting_;  // the request that waits for the new epoch
};

}  // namespace weightbus::protocol
