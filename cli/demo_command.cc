// demo: the command, its table and its JSON.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/commands.h"
#include "cli/demo.h"
#include "cli/exit_codes.h"
#include "cli/format.h"
#include "cli/table.h"
#include "cli/update_view.h"

namespace weightbus::cli {
namespace {

constexpr std::uint64_t kNanosPerMs = 1'000'000;

std::uint64_t total_ns(const protocol::UpdateStatus& update) {
  std::uint64_t sum = 0;
  for (const auto& phase : update.phases)
    sum += phase.duration_ns;
  return sum;
}

std::uint64_t longest_pause_ns(const protocol::UpdateStatus& update) {
  std::uint64_t longest = 0;
  for (const auto& engine : update.engines)
    longest = std::max(longest, engine.pause_ns);
  return longest;
}

std::string demo_table(const std::vector<DemoStep>& steps, const Console& console) {
  using enum protocol::Phase;
  Table table({{"version"},
               {"bytes", Align::kRight},
               {"open", Align::kRight},
               {"plan", Align::kRight},
               {"prepare", Align::kRight},
               {"stage", Align::kRight},
               {"decide", Align::kRight},
               {"commit", Align::kRight},
               {"rate", Align::kRight},
               {"digests", Align::kRight},
               {"pause", Align::kRight}});
  for (const auto& step : steps) {
    const auto& u = step.update;
    const auto phase = [&](protocol::Phase p) { return format_nanos(time_in(u, p)); };
    table.add({step.title, format_size(u.bytes_total), phase(kAnnounced), phase(kPlanned), phase(kAccepted),
               phase(kStaging), phase(kStaged), phase(kCommitting), u.bytes_total ? format_rate(staging_rate(u)) : "-",
               std::to_string(u.digests_compared), format_nanos(longest_pause_ns(u))});
  }
  std::string text = "\n" + table.render(console, 118) + "\n";
  for (const auto& step : steps)
    text += fmt::format("version {}: {}\n", step.title, step.note);
  return text;
}

Json demo_json(const std::vector<DemoStep>& steps) {
  Json rows = Json::array();
  for (const auto& step : steps) {
    rows.push_back({{"title", step.title},
                    {"note", step.note},
                    {"pause_ns_max", longest_pause_ns(step.update)},
                    {"gb_per_s", staging_rate(step.update) / 1e9},
                    {"update", to_json(step.update)}});
  }
  return {{"steps", rows}};
}

int demo(Session& session, const DemoOptions& options) {
  Demo demo(session, options);
  const auto ran = demo.run();
  const auto steps = demo.steps();
  const auto closed = demo.close();
  if (!ran) return session.fail(ran.error(), demo_json(steps), kExitFailed);
  if (!closed) return session.fail(closed.error(), demo_json(steps), kExitFailed);
  return session.done(demo_table(steps, session.console), demo_json(steps));
}

Json bench_row(const char* name, std::vector<double> samples, const char* unit) {
  std::sort(samples.begin(), samples.end());
  return {{"name", name},
          {"median", samples[samples.size() / 2]},
          {"worst", samples.back()},
          {"unit", unit},
          {"samples", samples.size()}};
}

// What an update of a tiny model takes beside reading its checkpoint and copying: the control plane.
int bench(Session& session, DemoOptions options) {
  options.engines = 4;  // of two ranks: 8 engine agents
  options.size = "tiny";
  constexpr std::size_t kWarmUp = 5;
  Demo demo(session, options);
  const auto ran = demo.bench();
  const auto steps = demo.steps();
  const auto closed = demo.close();
  if (!ran) return session.fail(ran.error());
  if (!closed) return session.fail(closed.error());
  std::vector<double> overhead, total, stage, commit;
  for (std::size_t i = kWarmUp; i < steps.size(); ++i) {
    const auto& u = steps[i].update;
    const auto ms = [](std::uint64_t ns) { return static_cast<double>(ns) / kNanosPerMs; };
    const double all = ms(total_ns(u));
    const double open = ms(time_in(u, protocol::Phase::kAnnounced));
    const double staging = ms(time_in(u, protocol::Phase::kStaging));
    total.push_back(all);
    stage.push_back(staging);
    commit.push_back(ms(time_in(u, protocol::Phase::kCommitting)));
    overhead.push_back(all - open - staging);
  }
  const Json rows = {bench_row("control_overhead_ms", overhead, "ms"), bench_row("tiny_update_ms", total, "ms"),
                     bench_row("tiny_stage_ms", stage, "ms"), bench_row("tiny_commit_ms", commit, "ms")};
  session.console.out << to_line({{"rows", rows}}) << std::endl;
  return kExitOk;
}

}  // namespace

base::Status copy_changed(const std::string& from, const std::string& to, std::uint64_t variant) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(to, error);
  for (const auto& entry : fs::directory_iterator(from, error)) {
    const std::string target = to + "/" + entry.path().filename().string();
    if (!entry.is_regular_file() || !fs::copy_file(entry.path(), target, error)) continue;
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(target, std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t header = 0;
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    // The lowest mantissa bits of the first values: small changes, as an optimiser makes.
    for (std::uint64_t at = 8 + header, i = 0; i < 4096 && at + i < fs::file_size(target, error); i += 2) {
      char byte = 0;
      file.seekg(static_cast<std::streamoff>(at + i));
      file.get(byte);
      file.seekp(static_cast<std::streamoff>(at + i));
      file.put(static_cast<char>(byte ^ static_cast<char>(variant & 3)));
    }
    if (!file) return base::fail(base::ErrorCode::kUnavailable, "cannot change {}", target);
  }
  if (error) return base::fail(base::ErrorCode::kUnavailable, "cannot copy {} to {}: {}", from, to, error.message());
  return {};
}

void add_demo(CLI::App& app, Session& session) {
  const auto options = std::make_shared<DemoOptions>();
  CLI::App* command =
      app.add_subcommand("demo", "Show the main job with real processes on this machine: push, kill, roll back");
  command->add_option("--size", options->size, "Of the made checkpoint, shaped like Qwen3")
      ->check(CLI::IsMember({"tiny", "small", "0.6b"}))
      ->capture_default_str();
  command->add_option("--checkpoint", options->checkpoint, "Publish this Hugging Face folder instead of a made one")
      ->type_name("DIR");
  command
      ->add_option("--dir", options->directory,
                   "Folder for everything; a new one under the temporary folder if not given")
      ->type_name("DIR");
  command->add_flag("--keep", options->keep, "Leave the folder, with logs and journal");
  command
      ->add_option("--bench", options->updates,
                   "Time so many updates of a tiny model with 8 engine agents instead, and print rows")
      ->type_name("N")
      ->group("");
  command->callback([&session, options] {
    session.action = [&session, options] {
      return options->updates > 0 ? bench(session, *options) : demo(session, *options);
    };
  });
}

}  // namespace weightbus::cli
