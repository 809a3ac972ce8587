#include "cli/demo.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <ostream>
#include <thread>

#include "cli/format.h"
#include "weightbus/checkpoint/synthetic.h"
#include "weightbus/runtime/clock.h"

namespace weightbus::cli {
namespace {

namespace fs = std::filesystem;
constexpr base::Duration kWaitDeadline = base::Millis(120'000);
constexpr base::Duration kPoll = base::Millis(5);
constexpr std::uint64_t kBytesWorthRacing = 500'000'000;
constexpr const char* kVictim = "engine-1-tp1";
constexpr const char* kVictimEngine = "engine-1";

std::atomic<bool> interrupted{false};
void on_interrupt(int) { interrupted = true; }

base::Status check_interrupted() {
  if (interrupted) return base::fail(base::ErrorCode::kAborted, "interrupted");
  return {};
}

}  // namespace

Demo::~Demo() { static_cast<void>(close()); }

void Demo::say(const std::string& text) {
  if (!session_.options.json) session_.console.out << text << std::endl;
}

base::Status Demo::open() {
  ::signal(SIGINT, on_interrupt);
  ::signal(SIGTERM, on_interrupt);
  model_ = fmt::format("demo-{}", ::getpid());
  directory_ = options_.directory;
  std::error_code error;
  if (directory_.empty()) {
    std::string pattern = (fs::temp_directory_path(error) / "weightbus-demo-XXXXXX").string();
    if (!::mkdtemp(pattern.data()))
      return base::fail(base::ErrorCode::kUnavailable, "cannot make a folder like {}", pattern);
    directory_ = pattern;
    made_directory_ = true;
  } else {
    if (fs::exists(directory_, error) && !fs::is_empty(directory_, error)) {
      return base::fail(base::ErrorCode::kConflict, "{} is not empty; name a new folder", directory_);
    }
    made_directory_ = fs::create_directories(directory_, error);
    directory_ = fs::absolute(directory_, error).string();
  }
  say(fmt::format("everything is in {}", directory_));
  const std::string programs = fs::read_symlink("/proc/self/exe", error).parent_path().string();
  DemoFleetOptions fleet{directory_, programs, model_};
  fleet.engines = options_.engines;
  if (options_.updates > 0) fleet.retain_versions = 0;
  WB_ASSIGN(fleet_, DemoFleet::start(std::move(fleet)));
  runtime::AdminClientOptions client;
  client.endpoint = fleet_->endpoint();
  client.model = model_;
  client.timeout = base::Millis(30'000);
  WB_ASSIGN(client_, runtime::AdminClient::connect(std::move(client)));
  const std::size_t agents = fleet_->agents();
  WB_ASSIGN(const auto status, wait_for("all agents to join", [agents](const protocol::ModelStatus& s) {
              return static_cast<std::size_t>(std::count_if(s.members.begin(), s.members.end(),
                                                            [](const auto& m) { return m.connected; })) == agents;
            }));
  say(fmt::format("1 coordinator, 2 shard agents and {} engines of 2 engine agents each are running (epoch {})",
                  options_.engines, status.epoch.number));
  return {};
}

base::Status Demo::close() {
  client_.reset();
  base::Status ended;
  if (fleet_) ended = fleet_->stop();
  fleet_.reset();
  if (!directory_.empty() && !options_.keep) {
    std::error_code error;
    if (made_directory_) {
      fs::remove_all(directory_, error);
    } else {
      for (const auto& entry : fs::directory_iterator(directory_, error))
        fs::remove_all(entry.path(), error);
    }
    directory_.clear();
  }
  return ended;
}

base::Status Demo::make_checkpoint(std::uint64_t version, std::string& path) {
  if (version == 1 && !options_.checkpoint.empty()) {
    path = fs::absolute(options_.checkpoint).string();
    base_checkpoint_ = path;
    return {};
  }
  path = fmt::format("{}/checkpoint-{}", directory_, version);
  if (!options_.checkpoint.empty()) return copy_changed(base_checkpoint_, path, version);
  device::Control control;
  checkpoint::SyntheticOptions made;
  const auto size = checkpoint::parse_synthetic_size(options_.size);
  if (!size) return base::fail(base::ErrorCode::kInvalidArgument, "--size {}: tiny, small or 0.6b", options_.size);
  made.size = *size;
  made.variant = version - 1;
  WB_ASSIGN(const auto written, checkpoint::write_synthetic(path, made, control));
  say(fmt::format("made checkpoint {}: {} in {} tensors, Qwen3-{}-shaped", version, format_size(written.bytes),
                  written.tensors, options_.size));
  return {};
}

base::Result<protocol::UpdateStatus> Demo::update(protocol::Body request) {
  WB_ASSIGN(const auto accepted, client_->ask<protocol::UpdateAccepted>(std::move(request)));
  WB_ASSIGN(auto status, session_.wait(*client_, accepted, session_.progress_mode()));
  if (status.phase == protocol::Phase::kCommitted) return status;
  return base::fail(status.error.value_or(base::Error{base::ErrorCode::kInternal, "the update did not commit"}));
}

base::Status Demo::push(std::uint64_t version, const std::string& title) {
  std::string path;
  WB_TRY(make_checkpoint(version, path));
  say(fmt::format("\npublishing version {}", version));
  WB_ASSIGN(auto status, update(protocol::PublishRequest{protocol::CheckpointSource{path}}));
  const auto target = status.target;
  steps_.push_back({title, std::move(status), "committed on every engine, every slot's digest equal to its source's"});
  WB_ASSIGN(const auto live, wait_for_all_live(target));
  static_cast<void>(live);
  WB_ASSIGN(seen_[version], digests(target));
  // A checkpoint made here has been read; only the copy that a given one is made from is needed again.
  std::error_code error;
  if (path != base_checkpoint_) fs::remove_all(path, error);
  return wait_for_snapshots(target);
}

// Publishes version 3, kills the victim while its bytes move, and watches the rest go on without it. A small update is
// over too soon for that: there the victim is stopped first, so that the update surely waits for it when it is killed.
base::Status Demo::push_and_kill() {
  std::string path;
  WB_TRY(make_checkpoint(3, path));
  say(fmt::format("\npublishing version 3, and killing {} in the middle of it", kVictim));
  const bool stop_first = steps_.back().update.bytes_total < kBytesWorthRacing;
  WB_ASSIGN(const pid_t worker, fleet_->worker(kVictim));
  if (stop_first) ::kill(worker, SIGSTOP);
  protocol::PublishRequest request{protocol::CheckpointSource{path}};
  request.require = 1;
  WB_ASSIGN(const auto accepted, client_->ask<protocol::UpdateAccepted>(std::move(request)));
  const auto wanted = stop_first ? protocol::Phase::kAnnounced : protocol::Phase::kStaging;
  auto reached = wait_for("version 3 to be on its way", [&](const protocol::ModelStatus& s) {
    return s.running && s.running->update == accepted.update && s.running->phase >= wanted;
  });
  ::kill(worker, SIGKILL);
  if (!reached) return base::fail(reached.error());
  const std::string phase = protocol::phase_name(reached->running->phase);
  say(fmt::format("killed {} (process {}) while the update was {}", kVictim, worker, phase));
  WB_ASSIGN(auto status, session_.wait(*client_, accepted, session_.progress_mode()));
  if (status.phase != protocol::Phase::kCommitted) {
    return base::fail(status.error.value_or(base::Error{base::ErrorCode::kInternal, "version 3 did not commit"}));
  }
  const auto victim = std::find_if(status.engines.begin(), status.engines.end(),
                                   [](const auto& e) { return e.engine == kVictimEngine; });
  if (victim == status.engines.end() || victim->committed) {
    return base::fail(base::ErrorCode::kInternal, "{} was killed and counted as committed all the same", kVictim);
  }
  const auto target = status.target;
  steps_.push_back(
      {"3, one agent killed", std::move(status),
       fmt::format("{} was killed while {}; engine-0 committed, {} caught up from it", kVictim, phase, kVictimEngine)});
  WB_ASSIGN(const auto live, wait_for_all_live(target));
  for (const auto& recent : live.recent) {
    if (recent.kind != protocol::UpdateKind::kCatchUp || recent.target != target) continue;
    steps_.push_back({"3, catching up", recent, fmt::format("{}'s ranks read engine-0's live half", kVictimEngine)});
    break;
  }
  WB_ASSIGN(seen_[3], digests(target));
  say("the killed agent and the others serve the same whole version 3");
  std::error_code error;
  fs::remove_all(path, error);
  return wait_for_snapshots(target);
}

base::Status Demo::roll_back() {
  const auto first = steps_.front().update.target;
  say(fmt::format("\nrolling back to version {}", first.value()));
  WB_ASSIGN(auto status, update(protocol::RollbackRequest{first}));
  steps_.push_back(
      {"rollback to 1", std::move(status), "from snapshots, which must match the digests recorded for version 1"});
  WB_ASSIGN(const auto live, wait_for_all_live(first));
  static_cast<void>(live);
  WB_ASSIGN(const auto now, digests(first));
  if (now != seen_[1]) return base::fail(base::ErrorCode::kCorrupted, "version 1 is not what it was before");
  say("every engine serves exactly what it served as version 1");
  return {};
}

base::Status Demo::run() {
  WB_TRY(open());
  WB_TRY(push(1, "1"));
  WB_TRY(push(2, "2"));
  if (seen_[1] == seen_[2]) return base::fail(base::ErrorCode::kInternal, "versions 1 and 2 hold the same bytes");
  WB_TRY(push_and_kill());
  return roll_back();
}

base::Status Demo::bench() {
  WB_TRY(open());
  std::string paths[2];
  for (std::uint64_t version = 1; version <= 2; ++version)
    WB_TRY(make_checkpoint(version, paths[version - 1]));
  for (std::uint32_t i = 0; i < options_.updates; ++i) {
    WB_ASSIGN(auto status, update(protocol::PublishRequest{protocol::CheckpointSource{paths[i % 2]}}));
    steps_.push_back({fmt::format("{}", i + 1), std::move(status), ""});
  }
  return {};
}

// ---------------------------------------------------------------- looking

base::Result<protocol::ModelStatus> Demo::wait_for(const std::string& what,
                                                   const std::function<bool(const protocol::ModelStatus&)>& done) {
  const base::Instant deadline = runtime::now() + kWaitDeadline;
  base::Error last{base::ErrorCode::kUnavailable, "nothing was heard"};
  while (runtime::now() < deadline) {
    WB_TRY(check_interrupted());
    auto status = client_->ask<protocol::ModelStatus>(protocol::StatusRequest{});
    if (status && done(*status)) return status;
    // Until the first agent has joined, the coordinator does not know the model.
    if (!status) last = status.error();
    if (status && !status->events.empty()) last.message = "the last event was: " + status->events.back().text;
    std::this_thread::sleep_for(kPoll);
  }
  return base::fail(base::ErrorCode::kDeadlineExceeded, "waited in vain for {}; {}", what, last.message);
}

base::Result<protocol::ModelStatus> Demo::wait_for_all_live(model::WeightVersion version) {
  return wait_for(
      fmt::format("every engine to serve version {}", version.value()), [&](const protocol::ModelStatus& s) {
        return !s.running && std::all_of(s.members.begin(), s.members.end(), [&](const protocol::MemberStatus& m) {
          if (m.member.role != model::Role::kEngineAgent) return true;
          return m.connected && !m.quarantined && m.live && m.live->version == version;
        });
      });
}

base::Status Demo::wait_for_snapshots(model::WeightVersion version) {
  const std::size_t ranks = std::size_t{options_.engines} * 2;
  const auto status =
      wait_for(fmt::format("version {} to be kept on disk", version.value()), [&](const protocol::ModelStatus& s) {
        for (const auto& row : s.versions) {
          if (row.version != version) continue;
          return static_cast<std::size_t>(
                     std::count_if(row.holders.begin(), row.holders.end(),
                                   [](const std::string& holder) { return holder.ends_with(" snapshot"); })) == ranks;
        }
        return false;
      });
  if (!status) return base::fail(status.error());
  return {};
}

base::Result<Demo::Digests> Demo::digests(model::WeightVersion version) {
  WB_ASSIGN(const auto reply, client_->ask<protocol::VerifyReply>(protocol::VerifyRequest{}, kWaitDeadline));
  Digests by_member;
  std::map<std::string, std::vector<protocol::SlotDigest>> by_rank;
  for (const auto& engine : reply.engines) {
    if (!engine.live || engine.live->version != version) {
      return base::fail(base::ErrorCode::kCorrupted, "{} does not serve version {}", engine.member.value(),
                        version.value());
    }
    const std::string rank = engine.member.value().substr(engine.engine.size());
    const auto [other, is_new] = by_rank.try_emplace(rank, engine.slots);
    if (!is_new && other->second != engine.slots) {
      return base::fail(base::ErrorCode::kCorrupted, "{} serves other bytes than the same rank of another engine",
                        engine.member.value());
    }
    by_member.emplace(engine.member.value(), engine.slots);
  }
  if (by_member.size() != std::size_t{options_.engines} * 2)
    return base::fail(base::ErrorCode::kUnavailable, "not every engine agent answered");
  return by_member;
}

}  // namespace weightbus::cli
