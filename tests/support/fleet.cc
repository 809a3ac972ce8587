#include "tests/support/fleet.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "weightbus/base/hash.h"
#include "weightbus/checkpoint/synthetic.h"
#include "weightbus/transport/keys.h"

namespace weightbus::testing {
namespace {

using protocol::ModelStatus;
using protocol::UpdateStatus;

// Loopback addresses of its own for each fleet, so that a restarted coordinator finds its port free.
std::string own_address() {
  static std::atomic<unsigned> count{0};
  const auto pid = static_cast<unsigned>(::getpid());
  return fmt::format("127.{}.{}.{}", 1 + pid / 256 % 254, pid % 256, 1 + count++ % 254);
}

std::string new_model() {
  static std::atomic<unsigned> count{0};
  return fmt::format("it{}-{}", ::getpid(), count++);
}

UpdateStatus no_update() {
  return UpdateStatus{model::UpdateId{0}, protocol::UpdateKind::kPush, protocol::Phase::kAborted, std::nullopt,
                      model::WeightVersion{0}};
}

ModelStatus no_status() { return ModelStatus{model::ModelName{""}, model::Epoch{}}; }

base::Hash128 digest_of(const std::vector<protocol::SlotDigest>& slots) {
  base::Hasher all;
  for (const auto& slot : slots)
    all.add(base::hash128(&slot.digest, sizeof slot.digest));
  return all.finish();
}

}  // namespace

std::string describe(const UpdateStatus& update) {
  std::string text =
      fmt::format("update {} ({} to {}) {}", update.update.value(), protocol::update_kind_name(update.kind),
                  update.target.value(), protocol::phase_name(update.phase));
  if (update.error) text += ": " + update.error->message;
  for (const auto& engine : update.engines)
    text += fmt::format("; {} committed={} {}", engine.engine, engine.committed, engine.error);
  return text;
}

Fleet::Fleet(FleetOptions options) : options_(std::move(options)), model_(new_model()), address_(own_address()) {
  std::string pattern = (std::filesystem::temp_directory_path() / "wb-fleet-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  directory_ = pattern;
  endpoint_ = "tcp://" + address_ + ":0";
  if (options_.keys) {
    make_keys("coordinator");
    make_keys("admin");
    allow("admin", model::Role::kAdmin, "*");
  }
  Flags flags{{"journal", path("journal.db")}, {"listen", endpoint_},     {"heartbeat_interval", "100ms"},
              {"member_timeout", "20s"},       {"pause_deadline", "10s"}, {"commit_deadline", "20s"}};
  if (options_.keys) {
    flags["keys_file"] = path("coordinator.keys");
    flags["allow_file"] = path("allow");
  }
  for (const auto& [name, value] : options_.coordinator)
    flags[name] = value;
  add("coordinator", "weightbus-coordinator", std::move(flags));
  for (unsigned rank = 0; rank < options_.trainers; ++rank)
    define_trainer(rank);
  for (unsigned number = 0; number < options_.engines.size(); ++number) {
    for (unsigned rank = 0; rank < options_.engines[number]; ++rank)
      define_engine(number, rank, options_.engines[number], {});
  }
  if (options_.start) start_all();
}

Fleet::~Fleet() {
  ends();
  if (::testing::Test::HasFailure()) dump_logs();
  processes_.clear();
  client_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

// ---------------------------------------------------------------- processes

std::string Fleet::member(unsigned number, unsigned rank) { return fmt::format("engine-{}-tp{}", number, rank); }
std::string Fleet::socket(unsigned number, unsigned rank) const { return path(member(number, rank) + "/attach.sock"); }

ServiceProcess& Fleet::add(const std::string& name, const std::string& program, Flags settings) {
  auto& process = processes_[name];
  process = std::make_unique<ServiceProcess>(WEIGHTBUS_BIN + program, std::move(settings), path(name + ".log"));
  return *process;
}

Flags Fleet::agent_settings(const std::string& name) const {
  Flags flags{{"coordinator", endpoint_}, {"model", model_}, {"member", name}, {"state_dir", path(name)}};
  if (options_.keys) {
    flags["keys_file"] = path(name + ".keys");
    flags["coordinator_key"] = public_keys_.at("coordinator");
  }
  return flags;
}

void Fleet::define_trainer(unsigned rank) {
  const std::string name = fmt::format("trainer-{}", rank);
  if (options_.keys) {
    make_keys(name);
    allow(name, model::Role::kShardAgent, name);
  }
  Flags flags = agent_settings(name);
  flags["trainer_rank"] = std::to_string(rank);
  flags["trainer_world"] = std::to_string(options_.trainers);
  for (const auto& [key, value] : options_.trainer)
    flags[key] = value;
  add(name, "weightbus-shard-agent", std::move(flags));
}

void Fleet::define_engine(unsigned number, unsigned rank, unsigned ranks, const Flags& more) {
  const std::string name = member(number, rank);
  ranks_[number] = ranks;
  if (options_.keys) {
    make_keys(name);
    allow(name, model::Role::kEngineAgent, name);
  }
  Flags flags = agent_settings(name);
  flags["engine"] = fmt::format("engine-{}", number);
  flags["tp_rank"] = std::to_string(rank);
  flags["tp_size"] = std::to_string(ranks);
  if (options_.keys) flags["allow_file"] = path("allow");
  for (const auto& [key, value] : options_.engine)
    flags[key] = value;
  for (const auto& [key, value] : more)
    flags[key] = value;
  add(name, "weightbus-engine-agent", std::move(flags));
}

void Fleet::start_coordinator() {
  auto& process = coordinator();
  process.start();
  const std::string bound = process.logged("coordinator.listening", "endpoint");
  if (bound.empty()) throw std::runtime_error("the coordinator does not listen:\n" + process.log_tail(20));
  if (bound == endpoint_) return;
  endpoint_ = bound;
  process.settings()["listen"] = bound;
  for (auto& [name, other] : processes_) {
    if (other->settings().contains("coordinator")) other->settings()["coordinator"] = bound;
  }
  // Again, so that a worker that the keeper starts anew comes back on this port.
  if (process.stop() != 0) throw std::runtime_error("the coordinator does not stop:\n" + process.log_tail(20));
  start_coordinator();
}

void Fleet::start_all() {
  start_coordinator();
  for (auto& [name, process] : processes_) {
    if (!process->running()) process->start();
  }
  wait_joined();
}

void Fleet::add_engine(unsigned number, unsigned ranks, const Flags& more) {
  for (unsigned rank = 0; rank < ranks; ++rank)
    define_engine(number, rank, ranks, more);
  start_engine(number);
}

void Fleet::kill_engine(unsigned number) {
  for (unsigned rank = 0; rank < ranks_.at(number); ++rank)
    engine(number, rank).kill_keeper();
}

void Fleet::start_engine(unsigned number) {
  for (unsigned rank = 0; rank < ranks_.at(number); ++rank)
    engine(number, rank).start();
}

// ---------------------------------------------------------------- keys

std::string Fleet::make_keys(const std::string& name) {
  const auto keys = transport::generate_keys();
  if (!keys || !transport::save_keys(path(name + ".keys"), *keys)) throw std::runtime_error("no keys for " + name);
  public_keys_[name] = keys->public_key;
  return path(name + ".keys");
}

void Fleet::allow(const std::string& name, model::Role role, const std::string& bound_to) {
  const auto status =
      transport::append_allowed(path("allow"), {public_keys_.at(name), role, model::MemberId{bound_to}, name});
  if (!status) throw std::runtime_error(status.error().message);
}

runtime::AdminClientOptions Fleet::client_options() const {
  runtime::AdminClientOptions options;
  options.endpoint = endpoint_;
  options.model = model_;
  if (options_.keys) {
    options.coordinator_key = public_keys_.at("coordinator");
    if (auto keys = transport::load_keys(path("admin.keys"))) options.keys = *keys;
  }
  return options;
}

runtime::AdminClient& Fleet::client() {
  if (!client_) {
    auto made = runtime::AdminClient::connect(client_options());
    if (!made) throw std::runtime_error(made.error().message);
    client_ = std::move(*made);
  }
  return *client_;
}

// ---------------------------------------------------------------- requests

std::string Fleet::checkpoint(unsigned variant, const std::string& size) {
  const std::string directory = path(fmt::format("checkpoint-{}-{}", size, variant));
  if (std::filesystem::exists(directory)) return directory;
  device::Control control;
  checkpoint::SyntheticOptions options;
  options.size = checkpoint::parse_synthetic_size(size).value();
  options.variant = variant;
  const auto written = checkpoint::write_synthetic(directory, options, control);
  if (!written) throw std::runtime_error(written.error().message);
  return directory;
}

base::Result<protocol::UpdateAccepted> Fleet::push(const std::string& directory, protocol::PublishRequest more) {
  more.source = protocol::CheckpointSource{directory};
  return ask<protocol::UpdateAccepted>(std::move(more));
}

base::Result<protocol::UpdateAccepted> Fleet::rollback(std::optional<std::uint64_t> to) {
  protocol::RollbackRequest request;
  if (to) request.to = model::WeightVersion{*to};
  return ask<protocol::UpdateAccepted>(request);
}

ModelStatus Fleet::status() {
  auto answer = ask<ModelStatus>(protocol::StatusRequest{});
  // A coordinator that was started just now knows no model before the first Hello.
  if (!answer) return no_status();
  return std::move(*answer);
}

ModelStatus Fleet::wait_for(const std::string& what, const std::function<bool(const ModelStatus&)>& holds) {
  ModelStatus last = no_status();
  const bool met = eventually([&] { return holds(last = status()); });
  if (!met) {
    ADD_FAILURE() << "waited in vain for: " << what << "; committed " << (last.committed ? last.committed->value() : 0);
    for (const auto& member : last.members) {
      const auto& live = member.live;
      std::fprintf(stderr, "  %s connected=%d quarantined=%d live=%llu\n", member.member.id.value().c_str(),
                   member.connected, member.quarantined,
                   static_cast<unsigned long long>(live ? live->version.value() : 0));
    }
    for (const auto& event : last.events)
      std::fprintf(stderr, "  event %s\n", event.text.c_str());
    dump_logs();
  }
  return last;
}

void Fleet::wait_joined() {
  std::set<std::string> expected;
  for (auto& [name, process] : processes_) {
    if (process->settings().contains("state_dir") && process->running()) expected.insert(name);
  }
  wait_for("everyone to join", [&](const ModelStatus& status) {
    auto missing = expected;
    for (const auto& member : status.members) {
      if (member.connected) missing.erase(member.member.id.value());
    }
    return missing.empty();
  });
}

std::size_t Fleet::engine_ranks() const {
  std::size_t count = 0;
  for (const auto& [number, ranks] : ranks_)
    count += ranks;
  return count;
}

void Fleet::wait_serving(std::uint64_t version) {
  wait_for(fmt::format("every engine to serve version {}", version), [&](const ModelStatus& status) {
    if (!status.committed || status.committed->value() != version || status.running) return false;
    std::size_t ranks = 0;
    for (const auto& member : status.members) {
      if (member.member.role != model::Role::kEngineAgent) continue;
      const bool serves =
          member.connected && !member.quarantined && member.live && member.live->version.value() == version;
      if (!serves) return false;
      ++ranks;
    }
    return ranks == engine_ranks();
  });
}

void Fleet::wait_snapshots(std::uint64_t version) {
  const auto expected = static_cast<std::ptrdiff_t>(engine_ranks());
  wait_for(fmt::format("snapshots of version {}", version), [&](const ModelStatus& status) {
    for (const auto& row : status.versions) {
      if (row.version.value() != version) continue;
      const auto is_snapshot = [](const std::string& holder) { return holder.ends_with(" snapshot"); };
      return std::count_if(row.holders.begin(), row.holders.end(), is_snapshot) == expected;
    }
    return false;
  });
}

UpdateStatus Fleet::end_of(model::UpdateId update) {
  UpdateStatus found = no_update();
  wait_for(fmt::format("the end of update {}", update.value()), [&](const ModelStatus& status) {
    for (const auto& recent : status.recent) {
      if (recent.update != update) continue;
      found = recent;
      return true;
    }
    return false;
  });
  return found;
}

UpdateStatus Fleet::end_of(const base::Result<protocol::UpdateAccepted>& accepted) {
  if (accepted) return end_of(accepted->update);
  ADD_FAILURE() << "refused: " << accepted.error().message;
  return no_update();
}

UpdateStatus Fleet::push_to_end(const std::string& directory, protocol::PublishRequest more) {
  return end_of(push(directory, std::move(more)));
}

UpdateStatus Fleet::rollback_to_end(std::optional<std::uint64_t> to) { return end_of(rollback(to)); }

std::uint64_t Fleet::committed() {
  const auto now = status().committed;
  return now ? now->value() : 0;
}

std::map<std::string, std::pair<std::uint64_t, std::string>> Fleet::live_digests() {
  std::map<std::string, std::pair<std::uint64_t, std::string>> digests;
  const auto answer = ask<protocol::VerifyReply>(protocol::VerifyRequest{});
  if (!answer) {
    ADD_FAILURE() << "verify: " << answer.error().message;
    return digests;
  }
  for (const auto& engine : answer->engines)
    digests[engine.member.value()] = {engine.live ? engine.live->version.value() : 0,
                                      digest_of(engine.slots).to_string()};
  return digests;
}

// ---------------------------------------------------------------- ending

std::vector<std::string> Fleet::shared_memory() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("weightbus." + model_ + ".")) names.push_back(name);
  }
  return names;
}

void Fleet::ends() {
  if (ended_) return;
  ended_ = true;
  std::vector<std::string> stopped;
  for (auto& [name, process] : processes_) {
    if (!process->running()) continue;
    ::kill(process->keeper(), SIGTERM);
    stopped.push_back(name);
  }
  for (const auto& name : stopped)
    EXPECT_EQ(processes_.at(name)->wait(), 0) << name << " did not end well";
  for (auto& [name, process] : processes_)
    EXPECT_FALSE(process->leftovers()) << name << " left processes";
  const auto left = shared_memory();
  EXPECT_TRUE(left.empty()) << left.size() << " names are left in /dev/shm, as " << left.front();
}

void Fleet::dump_logs() const {
  for (const auto& [name, process] : processes_)
    std::fprintf(stderr, "---- %s\n%s", name.c_str(), process->log_tail(25).c_str());
}

}  // namespace weightbus::testing
