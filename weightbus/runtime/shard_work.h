// The long work of a shard agent: reading its rows of a checkpoint, serving and digesting them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "weightbus/runtime/agent_loop.h"
#include "weightbus/runtime/source_work.h"
#include "weightbus/runtime/worker_pool.h"

namespace weightbus::runtime {

// perform() and report() from the loop's thread; the work itself runs on a thread of this object.
class ShardWork final : public AgentWork {
 public:
  ShardWork(model::Member self, std::string shm_prefix, std::shared_ptr<device::Device> device, Channels channels,
            unsigned threads);
  void perform(protocol::AgentAction action, std::function<void(protocol::AgentEvent)> post) override;
  void report() override {}
  void finish() override;

 private:
  base::Result<SourceMemory> open(model::UpdateId update, const protocol::SourceSpec& spec, device::Control& control);

  model::Member self_;
  std::string shm_prefix_;
  std::shared_ptr<device::Device> device_;
  SourceWork source_;
  std::unique_ptr<WorkerPool> pool_;  // none after finish()
};

}  // namespace weightbus::runtime
