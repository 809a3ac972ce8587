// How long planning takes and how much memory, for a model of a trillion parameters on 256 -> 128 ranks. Times are
// those of the one core that works, so that other work on the machine does not count; plan_1t_moe_wall_s is the wall's.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "deepseek.h"
#include "weightbus/plan/plan.h"

namespace {

using namespace weightbus;

// A line of /proc/self/status, in MiB.
double status_mib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stod(line.substr(key.size())) / 1024;
  }
  return 0;
}

double core_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

nlohmann::json row(const std::string& name, std::vector<double> samples, const std::string& unit) {
  std::sort(samples.begin(), samples.end());
  return {{"name", name},
          {"median", samples[samples.size() / 2]},
          {"worst", samples.back()},
          {"unit", unit},
          {"samples", samples.size()}};
}

// The process's peak from here on is not what it was before.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace

int main() {
  const auto layout = bench::make_deepseek_layout();
  std::vector<plan::PlanSource> sources;
  std::vector<plan::PlanSink> sinks;
  for (std::size_t i = 0; i < layout.sources.size(); ++i) {
    sources.push_back({model::MemberId(fmt::format("trainer-{}", i)), model::HostId(fmt::format("t{}", i / 8)), "",
                       &layout.sources[i]});
  }
  for (std::size_t i = 0; i < layout.sinks.size(); ++i) {
    sinks.push_back(
        {model::MemberId(fmt::format("engine-{}", i)), model::HostId(fmt::format("e{}", i / 8)), "", &layout.sinks[i]});
  }
  std::vector<double> plan_s;
  std::vector<double> wall_s;
  std::vector<double> part_s;
  std::vector<double> peak_mib;
  std::vector<double> held_mib;
  double bytes = 0;
  for (int sample = 0; sample < 5; ++sample) {
    reset_peak();
    const auto start = std::chrono::steady_clock::now();
    auto core_start = core_seconds();
    const auto planned = plan::plan(sources, sinks, {});
    plan_s.push_back(core_seconds() - core_start);
    wall_s.push_back(seconds_since(start));
    if (!planned) {
      std::cerr << planned.error().message << "\n";
      return 1;
    }
    held_mib.push_back(status_mib("VmRSS:"));
    core_start = core_seconds();
    // One part at a time is alive, as in a coordinator that answers its members.
    const auto sink_hash = (*planned)->sink_part(0).hash();
    const auto source_hash = (*planned)->source_part(0).hash();
    part_s.push_back((core_seconds() - core_start) / 2);
    if (sink_hash == source_hash) return 1;
    peak_mib.push_back(status_mib("VmHWM:"));
    bytes = static_cast<double>((*planned)->bytes());
  }
  nlohmann::json rows = nlohmann::json::array();
  rows.push_back(row("plan_1t_moe_s", plan_s, "s"));
  rows.push_back(row("plan_1t_moe_wall_s", wall_s, "s"));
  rows.push_back(row("plan_1t_moe_peak_mib", peak_mib, "MiB"));
  rows.push_back(row("plan_1t_moe_held_mib", held_mib, "MiB"));
  rows.push_back(row("plan_1t_moe_part_s", part_s, "s"));
  rows.push_back(row("plan_1t_moe_moved_tb", {bytes / 1e12}, "TB"));
  std::cout << nlohmann::json{{"rows", rows}}.dump(2) << "\n";
}
