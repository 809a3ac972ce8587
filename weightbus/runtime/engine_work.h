// The long work of an engine agent: its arena, its clients, its snapshots.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "weightbus/checkpoint/snapshot_store.h"
#include "weightbus/model/layout.h"
#include "weightbus/observe/metrics.h"
#include "weightbus/runtime/agent_files.h"
#include "weightbus/runtime/agent_loop.h"
#include "weightbus/runtime/attach_server.h"
#include "weightbus/runtime/sink_work.h"
#include "weightbus/runtime/worker_pool.h"

namespace weightbus::runtime {

struct EngineWorkOptions {
  model::Member self;
  model::Layout layout;
  model::LayoutNumbers numbers;
  std::string shm_prefix;  // of the arena's region names
  unsigned threads = 1;    // for copies and digests
};

// perform() and report() from the loop's thread; the work itself runs on threads of this object.
class EngineWork final : public AgentWork {
 public:
  // `arena`: of an earlier start, or null. `attach`, `files` and `metrics` are borrowed. `snapshots` may be null: then
  // nothing is retained on disk.
  EngineWork(EngineWorkOptions options, std::shared_ptr<device::Device> device, Channels channels,
             std::shared_ptr<Arena> arena, AttachServer& attach, AgentFiles& files,
             std::unique_ptr<checkpoint::SnapshotStore> snapshots, observe::Metrics& metrics);

  // The machine that this work reports its progress to; before the loop runs.
  void set_machine(protocol::EngineAgentFsm& machine) { machine_ = &machine; }
  void perform(protocol::AgentAction action, std::function<void(protocol::AgentEvent)> post) override;
  void report() override;
  void finish() override;

 private:
  using Post = std::function<void(protocol::AgentEvent)>;
  static void submit(WorkerPool& pool, std::function<protocol::AgentEvent()> job, Post post);
  base::Result<model::SinkManifest> open_sink(const protocol::DoOpenSink& action);
  base::Result<SourceMemory> open_source(const protocol::SourceSpec& spec, device::Control& control);
  base::Result<SourceMemory> open_snapshot(model::WeightVersion version, device::Control& control);
  protocol::RetainDone retain(const protocol::DoRetain& action);
  base::Status pause(const protocol::DoPause& action);
  base::Status exchange(const protocol::DoExchange& action);
  std::shared_ptr<Arena> arena() const;

  EngineWorkOptions options_;
  std::shared_ptr<device::Device> device_;
  AttachServer& attach_;
  AgentFiles& files_;
  observe::Metrics& metrics_;
  protocol::EngineAgentFsm* machine_ = nullptr;
  std::uint32_t live_ = 0;  // as of the loop's last look, for LiveSource
  mutable std::mutex mutex_;
  std::shared_ptr<Arena> arena_;
  std::mutex snapshots_mutex_;
  std::unique_ptr<checkpoint::SnapshotStore> snapshots_;
  device::Control capture_control_;
  SourceWork source_;
  SinkWork sink_;
  // Bulk work in order; commits beside it; retention and digests aside. None after finish().
  struct Pools {
    WorkerPool bulk;
    WorkerPool rank;
    WorkerPool aside;
  };
  std::unique_ptr<Pools> pools_;
};

}  // namespace weightbus::runtime
