#include "weightbus/runtime/shard_work.h"

#include <fmt/format.h>

#include "weightbus/checkpoint/shard_loader.h"
#include "weightbus/protocol/dispatch.h"

namespace weightbus::runtime {

ShardWork::ShardWork(model::Member self, std::string shm_prefix, std::shared_ptr<device::Device> device,
                     Channels channels, unsigned threads)
    : self_(std::move(self)),
      shm_prefix_(std::move(shm_prefix)),
      device_(std::move(device)),
      source_([this](model::UpdateId update, const protocol::SourceSpec& spec,
                     device::Control& control) { return open(update, spec, control); },
              device_, std::move(channels), threads),
      pool_(std::make_unique<WorkerPool>(1, 64, [](const Task& task) {
        if (task) task();
      })) {}

void ShardWork::finish() {
  source_.cancel(model::UpdateId{UINT64_MAX});
  pool_.reset();
}

void ShardWork::perform(protocol::AgentAction action, std::function<void(protocol::AgentEvent)> post) {
  using namespace protocol;  // NOLINT: the names of the actions
  const auto submit = [&](auto job) {
    const auto queued = pool_->submit([job, post]() -> Task {
      post(job());
      return {};
    });
    WB_ASSERT(queued.has_value(), "the state machine asks for a bounded number of things at once");
  };
  std::visit(Overloaded{
                 [&](const DoOpenSource& a) { submit([this, a] { return source_.perform(a); }); },
                 [&](const DoServe& a) { submit([this, a] { return source_.perform(a); }); },
                 [&](const DoDigestSource& a) { submit([this, a] { return source_.perform(a); }); },
                 [&](const DoReleaseSource& a) {
                   source_.cancel(a.update);
                   submit([this, a] { return source_.perform(a); });
                 },
                 [&](const auto&) { WB_ASSERT(false, "a shard agent does source work only"); },
             },
             action);
}

base::Result<SourceMemory> ShardWork::open(model::UpdateId update, const protocol::SourceSpec& spec,
                                           device::Control& control) {
  const auto* source = std::get_if<protocol::CheckpointSource>(&spec);
  if (!source)
    return base::fail(base::ErrorCode::kUnsupported, "this shard agent reads checkpoints only; no trainer is attached");
  WB_ASSIGN(const auto folder, checkpoint::CheckpointFolder::open(source->directory));
  WB_ASSIGN(auto manifest, checkpoint::plan_rows(folder, model::TrainerRank{self_.rank}, self_.world));
  auto owned = std::make_shared<OwnedRegions>(device_);
  WB_ASSIGN(device::Memory * region,
            owned->add(fmt::format("{}shard.{}", shm_prefix_, update.value()), manifest.region_bytes[0]));
  WB_TRY(checkpoint::load_rows(folder, manifest, region->data(), control));
  return SourceMemory{std::move(manifest), {region}, owned};
}

}  // namespace weightbus::runtime
