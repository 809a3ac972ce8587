// What the coordinator's state machine hands out. The loop carries it out in this order: persist (and report by
// persisted()), then send, perform, observe.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "weightbus/protocol/journal.h"
#include "weightbus/protocol/messages.h"
#include "weightbus/protocol/observation.h"

namespace weightbus::protocol {

struct PlanInput {
  model::MemberId member;
  model::HostId host;
  std::string device_uuid;
  std::shared_ptr<const model::SourceManifest> source;  // of a source
  std::shared_ptr<const model::SinkManifest> sink;      // of a sink
};

// Plan, and expand every part -> CoordinatorFsm::planned().
struct MakePlan {
  model::ModelName model;
  model::UpdateId update;
  std::vector<PlanInput> sources;
  std::vector<PlanInput> sinks;
  std::uint64_t bucket_bytes;
};
// Become the writer with an epoch number of at least `minimum` -> CoordinatorFsm::epoch_acquired().
struct AcquireEpoch {
  std::uint64_t minimum;
};
using CoordinatorAction = std::variant<MakePlan, AcquireEpoch>;

// A plan with its parts, kept as long as no layout changes.
struct PlanBundle {
  std::shared_ptr<const plan::ReshardPlan> plan;
  std::vector<std::shared_ptr<const plan::SourcePart>> source_parts;
  std::vector<std::shared_ptr<const plan::SinkPart>> sink_parts;
  std::vector<base::Hash128> source_hashes;
  std::vector<base::Hash128> sink_hashes;
};

// Carries out MakePlan. Pure, possibly slow: call it where it does not hold up the loop.
base::Result<std::shared_ptr<const PlanBundle>> make_plan(const MakePlan& request);

struct CoordinatorOutput {
  std::vector<JournalRecord> persist;
  std::vector<Envelope> send;
  std::vector<CoordinatorAction> perform;
  std::vector<Observation> observe;
};

}  // namespace weightbus::protocol
