#include "weightbus/runtime/engine_work.h"

#include <fmt/format.h>

#include <filesystem>

#include "weightbus/observe/catalogue.h"
#include "weightbus/observe/logs.h"
#include "weightbus/protocol/dispatch.h"

namespace weightbus::runtime {
namespace {
constexpr base::Duration kExchangeDeadline = base::Millis(10'000);
constexpr std::size_t kJobsMax = 64;
void run_now(const Task& task) {
  if (task) task();
}
}  // namespace

EngineWork::EngineWork(EngineWorkOptions options, std::shared_ptr<device::Device> device, Channels channels,
                       std::shared_ptr<Arena> arena, AttachServer& attach, AgentFiles& files,
                       std::unique_ptr<checkpoint::SnapshotStore> snapshots, observe::Metrics& metrics)
    : options_(std::move(options)),
      device_(std::move(device)),
      attach_(attach),
      files_(files),
      metrics_(metrics),
      arena_(std::move(arena)),
      snapshots_(std::move(snapshots)),
      source_([this](model::UpdateId, const protocol::SourceSpec& spec,
                     device::Control& control) { return open_source(spec, control); },
              device_, channels, options_.threads),
      sink_(options_.self, channels, options_.threads),
      pools_(new Pools{{1, kJobsMax, run_now}, {1, kJobsMax, run_now}, {1, kJobsMax, run_now}}) {}

void EngineWork::finish() {
  capture_control_.cancelled = true;
  source_.cancel(model::UpdateId{UINT64_MAX});
  sink_.cancel({model::UpdateId{UINT64_MAX}});
  pools_.reset();
}

std::shared_ptr<Arena> EngineWork::arena() const {
  const std::lock_guard lock(mutex_);
  return arena_;
}

void EngineWork::submit(WorkerPool& pool, std::function<protocol::AgentEvent()> job, Post post) {
  const auto queued = pool.submit([job = std::move(job), post = std::move(post)]() -> Task {
    post(job());
    return {};
  });
  WB_ASSERT(queued.has_value(), "the state machines ask for a bounded number of things at once");
}

void EngineWork::perform(protocol::AgentAction action, Post post) {
  using namespace protocol;  // NOLINT: the names of the actions
  live_ = machine_->state().live;
  std::visit(
      Overloaded{
          [&](DoOpenSource a) {
            submit(
                pools_->bulk, [this, a] { return source_.perform(a); }, post);
          },
          [&](DoServe a) {
            submit(
                pools_->bulk, [this, a] { return source_.perform(a); }, post);
          },
          [&](DoDigestSource a) {
            submit(
                pools_->bulk, [this, a] { return source_.perform(a); }, post);
          },
          [&](DoReleaseSource a) {
            source_.cancel(a.update);
            submit(
                pools_->bulk, [this, a] { return source_.perform(a); }, post);
          },
          [&](DoOpenSink a) {
            submit(
                pools_->bulk, [this, a] { return SinkOpenDone{open_sink(a)}; }, post);
          },
          [&](DoJoin a) {
            submit(
                pools_->bulk, [this, a] { return sink_.perform(a); }, post);
          },
          [&](DoPull a) {
            submit(
                pools_->bulk, [this, a] { return sink_.perform(a, *arena()); }, post);
          },
          [&](DoCancel a) { sink_.cancel(a); },
          [&](DoLeave a) {
            const auto queued = pools_->bulk.submit([this, a]() -> Task {
              sink_.perform(a);
              return {};
            });
            WB_ASSERT(queued.has_value(), "the state machines ask for a bounded number of things at once");
          },
          [&](DoPause a) {
            submit(
                pools_->rank,
                [this, a] {
                  return PauseDone{a.attempt, pause(a)};
                },
                post);
          },
          [&](DoExchange a) {
            submit(
                pools_->rank,
                [this, a] {
                  return ExchangeDone{a.attempt, exchange(a)};
                },
                post);
          },
          [&](DoResume a) {
            submit(
                pools_->rank,
                [this, a] {
                  attach_.resume();
                  return ResumeDone{a.attempt};
                },
                post);
          },
          [&](DoRetain a) {
            submit(
                pools_->aside, [this, a] { return retain(a); }, post);
          },
          [&](DoDigestLive a) {
            submit(
                pools_->aside,
                [this, a] {
                  const auto held = arena();
                  return DigestLiveDone{digest_live(held->manifest(), held->half_const(a.half), options_.threads)};
                },
                post);
          },
      },
      std::move(action));
}

// ---------------------------------------------------------------- arena

base::Result<model::SinkManifest> EngineWork::open_sink(const protocol::DoOpenSink& action) {
  WB_ASSIGN(auto manifest,
            model::make_sink_manifest(options_.layout, action.tensors, action.aliases,
                                      model::TpRank{options_.self.rank}, options_.self.world, options_.numbers));
  WB_TRY(model::validate(manifest));
  WB_ASSIGN(auto made, Arena::create(*device_, options_.shm_prefix, manifest));
  WB_TRY(files_.save_manifest(manifest));
  WB_TRY(attach_.set_arena(made->info()));
  const std::lock_guard lock(mutex_);
  arena_ = std::move(made);
  return manifest;
}

base::Status EngineWork::pause(const protocol::DoPause& action) {
  WB_ASSIGN(const auto report, attach_.pause(base::Millis(action.deadline_ms)));
  static_cast<void>(report);
  return {};
}

base::Status EngineWork::exchange(const protocol::DoExchange& action) {
  WB_ASSIGN(const auto report, attach_.exchange(action.live, action.tag, kExchangeDeadline));
  observe::log(observe::Level::kInfo, "arena.exchanged",
               {{"version", action.tag.version.value()},
                {"half", action.live},
                {"readers", report.readers},
                {"slowest_ms", static_cast<double>(report.slowest_ns) / 1e6}});
  return {};
}

// ---------------------------------------------------------------- source

base::Result<SourceMemory> EngineWork::open_source(const protocol::SourceSpec& spec, device::Control& control) {
  if (const auto* snapshot = std::get_if<protocol::SnapshotSource>(&spec))
    return open_snapshot(snapshot->version, control);
  if (!std::holds_alternative<protocol::LiveSource>(spec)) {
    return base::fail(base::ErrorCode::kUnsupported, "an engine agent has neither a checkpoint nor a trainer");
  }
  const auto held = arena();
  if (!held) return base::fail(base::ErrorCode::kNotFound, "no arena yet");
  return SourceMemory{model::as_source(held->manifest()), held->regions(live_), held};
}

base::Result<SourceMemory> EngineWork::open_snapshot(model::WeightVersion version, device::Control& control) {
  if (!snapshots_)
    return base::fail(base::ErrorCode::kNotFound, "no snapshots are kept here (snapshot_dir is not set)");
  const std::lock_guard lock(snapshots_mutex_);
  WB_ASSIGN(const model::SinkManifest* manifest, snapshots_->manifest(version));
  auto owned = std::make_shared<OwnedRegions>(device_);
  SourceMemory source{model::as_source(*manifest), {}, owned};
  std::vector<std::byte*> regions;
  for (std::size_t i = 0; i < manifest->region_bytes.size(); ++i) {
    WB_ASSIGN(device::Memory * region,
              owned->add(fmt::format("{}snapshot.r{}", options_.shm_prefix, i), manifest->region_bytes[i]));
    regions.push_back(region->data());
    source.regions.push_back(region);
  }
  WB_TRY(snapshots_->load(version, regions, control));
  return source;
}

protocol::RetainDone EngineWork::retain(const protocol::DoRetain& action) {
  protocol::RetainDone done;
  if (!snapshots_) return done;
  const std::lock_guard lock(snapshots_mutex_);
  if (action.capture) {
    const auto held = arena();
    auto captured =
        snapshots_->capture(*action.capture, held->manifest(), held->half_const(action.half), capture_control_);
    if (!captured) done.error = captured.error();
  }
  if (auto retired = snapshots_->retire(action.keep); !retired && !done.error) done.error = retired.error();
  done.held = snapshots_->list();
  return done;
}

void EngineWork::report() {
  machine_->progress(sink_.bytes_done(), attach_.readers());
  const auto& self = options_.self;
  const auto halves = machine_->halves();
  const std::string rank = std::to_string(self.rank);
  const double version = !halves.empty() && halves[0].tag ? static_cast<double>(halves[0].tag->version.value()) : 0;
  namespace catalogue = observe::catalogue;
  metrics_.gauge(catalogue::kActiveVersion, {{"model", self.model.value()}, {"engine", self.engine}, {"tp_rank", rank}})
      .set(version);
  metrics_.gauge(catalogue::kReaders).set(static_cast<double>(attach_.readers()));
  metrics_.gauge(catalogue::kEpoch).set(static_cast<double>(machine_->state().known_epoch.number));
  if (const auto held = arena()) {
    metrics_.gauge(catalogue::kStagingBytes, {{"device", "host"}}).set(static_cast<double>(held->bytes()));
  }
  for (const auto& [channel, bytes] : sink_.bytes_by_channel()) {
    metrics_.counter(catalogue::kBytes, {{"channel", channel}}).raise_to(static_cast<double>(bytes));
  }
}

}  // namespace weightbus::runtime
