// World: what happens to the fleet, and whether it comes to rest.
#include <fmt/format.h>

#include "tests/simulation/admin_client.h"
#include "tests/simulation/agent_process.h"
#include "tests/simulation/coordinator_process.h"
#include "tests/simulation/engine_process.h"
#include "tests/simulation/world.h"

namespace weightbus::simulation {
namespace {
constexpr base::Duration kConvergeWithin = base::Millis(90'000);
constexpr int kPushesMax = 4;
constexpr base::Duration kRequestLost = base::Millis(10'000);
// Its own deadline, the commit's or the abort's, and what a stopped coordinator sleeps.
constexpr base::Duration kUpdateEndsWithin = base::Millis(3'000 + 1'500 + 1'000 + 4'000);
}  // namespace

// Every update ends by its deadline.
void World::check_runs() {
  for (const auto& coordinator : coordinators_) {
    if (!coordinator->writer()) continue;
    const auto& models = coordinator->fsm()->models();
    const auto model = models.find(kModel);
    if (model == models.end() || !model->second->run()) continue;
    const auto* run = model->second->run();
    const auto key = std::pair{coordinator->fsm()->epoch().number, run->spec().id.value()};
    const auto began = run_began_.try_emplace(key, clock.now()).first->second;
    if (clock.now() - began > kUpdateEndsWithin)
      throw Violation(fmt::format("update {} does not end", run->spec().id.value()));
  }
}

void World::disaster() {
  auto pick = [&]() -> AgentProcess& {
    auto it = agents_.begin();
    std::advance(it, random.below(agents_.size()));
    return *it->second;
  };
  const auto roll = random.below(100);
  if (roll < 35) {
    pick().kill();
  } else if (roll < 42) {
    pick().reboot();
  } else if (roll < 46) {
    pick().wipe();
  } else if (roll < 56) {
    auto it = engines_.begin();
    std::advance(it, random.below(engines_.size()));
    it->second->kill();
  } else if (roll < 66) {
    coordinators_[random.below(2)]->kill();
  } else if (roll < 74) {
    // The rival may take the journal over while the other one sleeps, which then wakes with what it knew.
    for (auto& coordinator : coordinators_) {
      if (coordinator->alive()) coordinator->stop_for(base::Millis(between(100, 3'500)));
    }
    for (auto& coordinator : coordinators_) {
      coordinator->keep_down(false);
      coordinator->start();
    }
  } else {
    // One direction, or both, of what one member says to another.
    const std::string one = pick().self().id.value();
    const std::string other = random.chance(70) ? protocol::kCoordinator.value() : pick().self().id.value();
    std::vector<std::pair<std::string, std::string>> cuts;
    if (random.chance(70)) cuts.emplace_back(one, other);
    if (random.chance(70)) cuts.emplace_back(other, one);
    note(fmt::format("a cut between {} and {}", one, other));
    for (const auto& direction : cuts)
      cuts_.insert(direction);
    clock.after_us(between(50'000, 3'000'000), [this, cuts] {
      for (const auto& direction : cuts)
        cuts_.erase(direction);
    });
  }
}

void World::heal() {
  note("---- faults stop");
  faults = Faults{};
  cuts_.clear();
}

bool World::converged(std::string& why) const {
  const CoordinatorProcess* writer = nullptr;
  for (const auto& coordinator : coordinators_)
    writer = coordinator->writer() ? coordinator.get() : writer;
  if (!writer) return why = "no coordinator", false;
  const auto& models = writer->fsm()->models();
  const auto model = models.find(kModel);
  if (model == models.end()) return why = "nobody has said Hello", false;
  const auto status = model->second->status(clock.protocol_now());
  if (status.running)
    return why = fmt::format("update {} is {}", status.running->update.value(),
                             protocol::phase_name(status.running->phase)),
           false;
  if (status.members.size() != agents_.size()) return why = "members are missing", false;
  for (const auto& member : status.members) {
    if (!member.connected) return why = member.member.id.value() + " is not connected", false;
    if (member.quarantined) return why = member.member.id.value() + " is quarantined", false;
  }
  for (const auto& [name, engine] : engines_) {
    if (!engine->alive()) return why = name + " is down", false;
    for (std::uint32_t rank = 0; rank < engine->ranks().size(); ++rank) {
      const AgentProcess& agent = *agents_.at(engine->ranks()[rank]);
      if (!status.committed) continue;
      if (!agent.ready()) return why = agent.self().id.value() + " is not ready", false;
      if (engine->gate_closed(rank)) return why = agent.self().id.value() + " is paused", false;
      const auto mapped = engine->mapped(rank);
      if (mapped < 0 || !agent.disk()->halves[mapped].tag ||
          agent.disk()->halves[mapped].tag->version != *status.committed) {
        return why = agent.self().id.value() + " computes with another version than the committed one", false;
      }
    }
  }
  return true;
}

// Whoever held a version is gone for good: only a new push helps.
bool World::lost_all() const {
  for (const auto& coordinator : coordinators_) {
    if (!coordinator->writer()) continue;
    const auto status = coordinator->fsm()->models().at(kModel)->status(clock.protocol_now());
    if (status.running || status.members.size() != agents_.size()) return false;
    for (const auto& member : status.members) {
      if (!member.connected) return false;
    }
    return std::none_of(status.versions.begin(), status.versions.end(),
                        [](const auto& version) { return version.available; });
  }
  return false;
}

void World::run() {
  for (auto& coordinator : coordinators_)
    coordinator->start();
  for (auto& [id, process] : agents_)
    clock.after_us(between(0, 500'000), [p = process.get()] { p->start(); });
  for (auto& [name, engine] : engines_)
    clock.after_us(between(0, 500'000), [e = engine.get()] { e->start(); });
  const bool has_disasters = faults.disaster_ms > 0;
  const auto disaster_ms = faults.disaster_ms;
  const auto begin = clock.now();
  const auto calm_at = begin + base::Millis(between(3'000, 9'000));
  std::function<void()> act = [&] {
    if (clock.now() >= calm_at) return;
    admin_->random_request();
    clock.after_us(between(20'000, 1'200'000), act);
  };
  std::function<void()> fail = [&] {
    if (clock.now() >= calm_at) return;
    disaster();
    clock.after_us(between(1'000, 2 * disaster_ms * 1'000), fail);
  };
  clock.after_us(700'000, act);
  if (has_disasters) clock.after_us(300'000, fail);
  std::uint64_t turns = 0;
  while (clock.now() < calm_at && clock.run_next()) {
    if (++turns % 16 == 0) check_runs();
  }
  heal();

  std::string why;
  const auto wait_until = [&](const std::function<bool()>& done, const char* what) {
    const auto deadline = clock.now() + kConvergeWithin;
    auto next = clock.now();
    for (;;) {
      if (clock.now() >= next) {
        if (done()) return;
        next = clock.now() + base::Millis(50);
        check_runs();
      }
      if (clock.now() > deadline) throw Violation(fmt::format("{}: {}", what, why));
      clock.run_next();
    }
  };
  auto lost_since = clock.now();
  wait_until(
      [&] {
        if (converged(why)) return true;
        if (!lost_all()) lost_since = clock.now();
        return clock.now() - lost_since > base::Millis(2'000);
      },
      "the fleet does not converge");
  if (!converged(why)) ++counts.lost;
  // Then a push succeeds. The first may meet what nobody has noticed yet: a member that died just before.
  std::optional<std::uint64_t> request;
  int pushes = 0;
  auto asked_at = clock.now();
  wait_until(
      [&] {
        const auto version = request ? admin_->accepted(*request) : std::nullopt;
        if (!converged(why) && !lost_all()) return false;
        if (version && content_of(*version)) return converged(why);
        // What a coordinator accepted that had been replaced without knowing it yet never begins.
        const bool waits = request && (!admin_->answered(*request) || (version && !ended_.contains(version->value())));
        if (waits && clock.now() - asked_at < kRequestLost) return false;
        asked_at = clock.now();
        if (++pushes > kPushesMax) throw Violation("a push does not succeed: " + why);
        admin_->push(0, true);
        request = admin_->last_request();
        return false;
      },
      "a push does not succeed");
}

}  // namespace weightbus::simulation
