#include "tests/simulation/world.h"

#include <fmt/format.h>

#include "tests/simulation/admin_client.h"
#include "tests/simulation/agent_process.h"
#include "tests/simulation/coordinator_process.h"
#include "tests/simulation/engine_process.h"
#include "weightbus/wire/chunks.h"
#include "weightbus/wire/codec.h"

namespace weightbus::simulation {
Faults Faults::draw(base::Prng& random) {
  Faults faults;
  const auto sometimes = [&](std::uint64_t percent, std::uint64_t most) {
    return random.chance(percent) ? random.below(most + 1) : 0;
  };
  faults.loss = sometimes(60, 30);
  faults.replay = sometimes(60, 50);
  faults.delay_us_max = random.chance(50) ? 2'000 : 50'000;
  faults.late = sometimes(40, 10);
  faults.death_per_100k = sometimes(60, 400);
  faults.corruption = sometimes(40, 10);
  faults.work_failure = sometimes(40, 4);
  faults.pause_failure = sometimes(40, 20);
  faults.exchange_failure = sometimes(30, 15);
  faults.append_failure = sometimes(40, 8);
  faults.disaster_ms = random.chance(70) ? 300 + random.below(3'000) : 0;
  return faults;
}

World::World(std::uint64_t seed, bool with_faults, std::size_t trace) : random(seed), trace_(trace) {
  if (with_faults) faults = Faults::draw(random);
  options.heartbeat_interval = base::Millis(250);
  options.member_timeout = base::Millis(1'000);
  options.update_deadline = base::Millis(3'000);
  options.pause_deadline = base::Millis(300);
  options.commit_deadline = base::Millis(1'500);
  options.abort_deadline = base::Millis(1'000);
  options.resend_interval = base::Millis(100);
  options.unavailable_grace = base::Millis(3'000);
  options.bucket_bytes = 64 + random.below(200);
  options.retain_versions = static_cast<std::uint32_t>(random.below(4));
  journal = std::make_shared<store::MemoryJournal>(base::Hash128{1, seed + 1});
  make_fleet();
}

World::~World() = default;

void World::make_fleet() {
  const auto add = [&](model::Role role, std::uint32_t rank, std::uint32_t world, const std::string& name,
                       const std::string& engine) {
    model::Member member{model::MemberId{name}, role, kModel, model::HostId{"h"}};
    member.rank = rank;
    member.world = world;
    member.engine = engine;
    agents_.emplace(member.id, std::make_unique<AgentProcess>(*this, member));
    return member.id;
  };
  const auto trainers = static_cast<std::uint32_t>(between(1, 2));
  for (std::uint32_t rank = 0; rank < trainers; ++rank)
    add(model::Role::kShardAgent, rank, trainers, fmt::format("shard-{}", rank), "");
  const auto engines = between(1, 3);
  for (std::uint64_t e = 0; e < engines; ++e) {
    const auto world = static_cast<std::uint32_t>(between(1, 2));
    const std::string name = fmt::format("engine-{}", e);
    std::vector<model::MemberId> ranks;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      ranks.push_back(add(model::Role::kEngineAgent, rank, world, fmt::format("{}/{}", name, rank), name));
    }
    engines_.emplace(name, std::make_unique<EngineProcess>(*this, name, std::move(ranks)));
  }
  coordinators_.push_back(std::make_unique<CoordinatorProcess>(*this, "coordinator-a"));
  coordinators_.push_back(std::make_unique<CoordinatorProcess>(*this, "coordinator-b"));
  coordinators_[1]->keep_down(true);
  admin_ = std::make_unique<AdminClient>(*this);
}

AgentProcess* World::agent(const model::MemberId& id) {
  const auto it = agents_.find(id);
  return it == agents_.end() ? nullptr : it->second.get();
}

void World::note(std::string text) {
  if (trace_ == 0) return;
  const auto ms = clock.since_start_ms();
  events_.push_back(fmt::format("{:6}.{:03} {}", ms / 1000, ms % 1000, text));
  if (events_.size() > trace_) events_.pop_front();
}

// ---------------------------------------------------------------- network

bool World::cut(const model::MemberId& from, const model::MemberId& to) const {
  return !cuts_.empty() && cuts_.contains({from.value(), to.value()});
}

void World::send(const protocol::Envelope& envelope) {
  ++counts.messages;
  if (trace_ > 0 && !std::holds_alternative<protocol::Heartbeat>(envelope.body) &&
      !std::holds_alternative<protocol::Welcome>(envelope.body)) {
    note(fmt::format("{} -> {}: {} e{} u{}", envelope.from.value(), envelope.to.value(),
                     protocol::body_name(envelope.body), envelope.epoch.number,
                     envelope.update ? envelope.update->value() : 0));
  }
  if (cut(envelope.from, envelope.to) || random.chance(faults.loss)) return;
  auto message = std::make_shared<const std::string>(wire::encode(envelope));
  const int copies = random.chance(faults.replay) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    auto delay = between(50, faults.delay_us_max);
    if (random.chance(faults.late) || copy > 0) delay = between(1'000, random.chance(30) ? 4'000'000 : 200'000);
    clock.after_us(delay, [this, from = envelope.from, to = envelope.to, message] {
      if (!cut(from, to)) deliver(to, *message);
    });
  }
}

void World::deliver(const model::MemberId& to, const std::string& message) {
  wire::Reassembler reassembler;
  std::optional<std::string> whole;
  for (auto& frame : wire::to_frames(message, ++stream_)) {
    auto added = reassembler.add(std::move(frame));
    if (!added) throw Violation("a frame was refused: " + added.error().message);
    if (*added) whole = std::move(*added);
  }
  const auto envelope = wire::decode(whole.value());
  if (!envelope) throw Violation("a message was refused: " + envelope.error().message);
  if (to == protocol::kCoordinator) {
    for (auto& coordinator : coordinators_)
      coordinator->receive(*envelope);
  } else if (auto* process = agent(to)) {
    process->receive(*envelope);
  } else {
    admin_->receive(*envelope);
  }
}

// ---------------------------------------------------------------- what the checks know

void World::staged(const model::MemberId& member, const protocol::Tag& tag, bool) {
  staged_.insert_or_assign({member.value(), tag.update.value()}, true);
}

void World::before_decision(const protocol::Decided& record, const protocol::UpdateRun* run) {
  if (!run || run->spec().id != record.update) throw Violation("a decision without its update");
  std::vector<std::string> required;
  for (const auto& engine : run->spec().engines) {
    if (engine.required && run->spec().require == 0) required.push_back(engine.name);
  }
  if (const auto wrong = protocol::check_decision(record, required, run->spec().require)) throw Violation(*wrong);
  for (const auto& engine : record.engines) {
    if (engine.ranks.size() != engines_.at(engine.engine.value())->ranks().size())
      throw Violation("a decision without all ranks");
    for (const auto& rank : engine.ranks) {
      if (!staged_.contains({rank.rank.value(), rank.tag.update.value()})) {
        throw Violation(
            fmt::format("update {} is decided, {} has not staged it", record.update.value(), rank.rank.value()));
      }
    }
  }
  // The bytes, where they still are: a host may have lost them since, and a fenced coordinator decides nothing.
  const std::uint64_t content = record.kind == protocol::UpdateKind::kPush
                                    ? std::stoull(record.source.substr(record.source.rfind(' ') + 1))
                                    : content_of(record.target).value_or(0);
  for (const auto& engine : record.engines) {
    for (const auto& rank : engine.ranks) {
      const AgentProcess& process = *agents_.at(rank.rank);
      for (std::size_t half = 0; half < 2; ++half) {
        if (!process.has_arena() || !process.disk() || process.disk()->halves[half].tag != rank.tag) continue;
        if (process.half(half) != toy.sink_bytes(content, process.self().rank, process.self().world)) {
          throw Violation(
              fmt::format("update {} is decided, {} holds other bytes", record.update.value(), rank.rank.value()));
        }
      }
    }
  }
}

void World::journal_grew() {
  const auto& records = journal->records();
  for (; journal_checked_ < records.size(); ++journal_checked_) {
    const auto record = wire::decode_record(records[journal_checked_].payload);
    if (!record) throw Violation("a record cannot be read back: " + record.error().message);
    if (const auto wrong = journal_checker_.add(*record)) throw Violation("journal: " + *wrong);
    if (const auto* ended = std::get_if<protocol::Ended>(&*record)) {
      ++counts.updates;
      if (ended->status.kind == protocol::UpdateKind::kPush) ended_.insert(ended->status.target.value());
      counts.aborts += ended->status.phase == protocol::Phase::kAborted;
    }
    const auto* decided = std::get_if<protocol::Decided>(&*record);
    if (!decided) continue;
    if (decided->kind == protocol::UpdateKind::kPush) {
      ++counts.commits;
      contents_[decided->target.value()] = std::stoull(decided->source.substr(decided->source.rfind(' ') + 1));
    } else {
      ++(decided->kind == protocol::UpdateKind::kRollback ? counts.rollbacks : counts.catch_ups);
    }
    for (const auto& engine : decided->engines) {
      for (const auto& rank : engine.ranks)
        decided_.insert({rank.rank.value(), rank.tag.update.value()});
    }
  }
}

std::optional<std::uint64_t> World::content_of(model::WeightVersion version) const {
  const auto it = contents_.find(version.value());
  if (it == contents_.end()) return std::nullopt;
  return it->second;
}

}  // namespace weightbus::simulation
