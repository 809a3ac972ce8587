// simulation --seeds N --start S [--verbose] [--no-faults]: runs N seeds; --seed S replays one, with its last events.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>

#include "tests/simulation/world.h"

namespace weightbus::simulation {
namespace {

struct Options {
  std::uint64_t seeds = 1'000;
  std::uint64_t start = 1;
  std::optional<std::uint64_t> seed;
  bool verbose = false;
  std::uint64_t events = 100;
  bool faults = true;
};

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--verbose") {
      options.verbose = true;
      continue;
    }
    if (name == "--no-faults") {
      options.faults = false;
      continue;
    }
    if (i + 1 == argc) return std::nullopt;
    char* end = nullptr;
    const auto value = std::strtoull(argv[++i], &end, 10);
    if (end == argv[i] || *end != '\0') return std::nullopt;
    if (name == "--seeds")
      options.seeds = value;
    else if (name == "--start")
      options.start = value;
    else if (name == "--seed")
      options.seed = value;
    else if (name == "--events")
      options.events = value;
    else
      return std::nullopt;
  }
  return options;
}

// What is wrong with a seed, if anything.
std::optional<std::string> run_one(std::uint64_t seed, const Options& options, World::Counts& totals, double& hours) {
  World world(seed, options.faults, 0);
  std::optional<std::string> wrong;
  try {
    world.run();
  } catch (const Violation& violation) {
    wrong = violation.what();
  }
  const auto& c = world.counts;
  totals.updates += c.updates;
  totals.commits += c.commits;
  totals.rollbacks += c.rollbacks;
  totals.catch_ups += c.catch_ups;
  totals.aborts += c.aborts;
  totals.steps += c.steps;
  totals.messages += c.messages;
  totals.deaths += c.deaths;
  totals.corruptions += c.corruptions;
  totals.fenced += c.fenced;
  totals.lost += c.lost;
  hours += static_cast<double>(world.clock.since_start_ms()) / 3.6e6;
  return wrong;
}

// The same seed again, telling what happens.
void show(std::uint64_t seed, const Options& options) {
  World world(seed, options.faults, options.events);
  std::string end = "it holds";
  try {
    world.run();
  } catch (const Violation& violation) {
    end = violation.what();
  }
  for (const auto& event : world.events())
    fmt::print("{}\n", event);
  fmt::print("seed {}: {}\n", seed, end);
}

int run(const Options& options) {
  if (options.seed) {
    show(*options.seed, options);
    World::Counts totals;
    double hours = 0;
    return run_one(*options.seed, options, totals, hours) ? 1 : 0;
  }
  World::Counts totals;
  double hours = 0;
  std::uint64_t failures = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t seed = options.start; seed < options.start + options.seeds; ++seed) {
    const auto wrong = run_one(seed, options, totals, hours);
    if (!wrong) continue;
    if (failures++ == 0) show(seed, options);
    fmt::print("FAILED seed {}: {}\n", seed, *wrong);
    if (failures >= 20 && !options.verbose) break;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{} seeds, {} failed; {:.0f} seeds/s, {:.2f} simulated hours\n", options.seeds, failures,
             static_cast<double>(options.seeds) / seconds, hours);
  fmt::print(
      "{} updates: {} pushes, {} rollbacks and {} catch-ups committed, {} aborted; {} steps, {} messages, {} deaths, "
      "{} corrupted copies, {} fenced, {} times every holder was lost\n",
      totals.updates, totals.commits, totals.rollbacks, totals.catch_ups, totals.aborts, totals.steps, totals.messages,
      totals.deaths, totals.corruptions, totals.fenced, totals.lost);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weightbus::simulation

int main(int argc, char** argv) {
  const auto options = weightbus::simulation::parse(argc, argv);
  if (!options) {
    fmt::print(stderr, "usage: simulation [--seeds N] [--start S] [--seed S] [--events N] [--no-faults] [--verbose]\n");
    return 2;
  }
  return weightbus::simulation::run(*options);
}
