// weightbus-reader: an inference process in small. It attaches to an engine agent, maps the live half of its arena, and
// runs "generation steps": each reads every slot twice, at its start and at its end, and takes a digest of what it
// read.
//
//   weightbus-reader --socket /run/weightbus/engine-0-tp0.sock
//
// A step has seen one whole version if both digests are equal, and equal to those of every other step that was told the
// same version number. Any mixture of two versions has a digest of its own and is caught. With --ignore-pause the same
// program reads without entering its launch gate, as a broken engine would: the check must catch it.
//
// Standard output is one JSON object a line: {"event": "version"} whenever a step sees another version than the step
// before, {"event": "violation"} for each step that was not whole (the first 20), and {"event": "summary"} at the end
// (SIGTERM, SIGINT, --steps, or --stop-on-violation). Exit status: 0 all steps were whole, 1 it could not run,
// 3 violations.
#include "weightbus/client/reader.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "weightbus/base/hash.h"

namespace {

using nlohmann::json;
using weightbus::base::Hash128;
using weightbus::base::Hasher;
using weightbus::client::Arena;
using weightbus::client::Reader;

constexpr int kExitFailed = 1;
constexpr int kExitViolations = 3;
constexpr std::uint64_t kMaxReported = 20;
// How soon a signal is noticed while the gate is closed.
constexpr auto kGatePatience = std::chrono::milliseconds(50);

volatile sig_atomic_t stop_requested = 0;
void request_stop(int) { stop_requested = 1; }

struct Options {
  std::string socket;
  bool observer = false;
  bool ignore_pause = false;
  bool stop_on_violation = false;
  std::uint64_t steps = 0;  // 0: until a signal
  std::uint64_t step_us = 1000;
  std::uint64_t connect_timeout_ms = 30'000;
  std::vector<std::string> expect;
};

Hash128 digest(const Arena& arena) {
  Hasher all;
  for (const auto& slot : *arena.slots)
    all.add(weightbus::base::hash128(slot.data, slot.span_bytes));
  return all.finish();
}

void print(const json& line) {
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

// Decides whether steps were whole.
class WholenessCheck {
 public:
  // "VERSION=DIGEST": a digest that is known beforehand. False: not of that form.
  bool expect(const std::string& text) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || text.find_first_not_of("0123456789") != equals) return false;
    const auto hash = Hash128::parse(text.substr(equals + 1));
    if (!hash || equals > 18) return false;
    digests_[std::stoull(text.substr(0, equals))] = *hash;
    return true;
  }

  // One step that was told `version` and read these digests at its start and its end.
  void add(std::uint64_t version, const Hash128& first, const Hash128& last) {
    ++steps_;
    if (first != last) {
      report(version, "torn: the step's second reading differs from its first", first, last);
    } else if (const auto [known, is_new] = digests_.try_emplace(version, first); !is_new && known->second != first) {
      report(version, "mixed: another step of this version read something else", known->second, first);
    }
    if (last_version_ != version) {
      print({{"event", "version"}, {"version", version}, {"digest", last.to_string()}, {"step", steps_}});
      last_version_ = version;
      ++changes_;
    }
  }

  // The slots' addresses must stay the same as long as the layout does.
  void add_addresses(const Arena& arena) {
    if (slots_ == arena.slots) return;
    if (slots_ != nullptr) {
      ++layouts_;
      bool moved = slots_->size() != arena.slots->size();
      for (std::size_t i = 0; !moved && i < slots_->size(); ++i)
        moved = (*slots_)[i].data != (*arena.slots)[i].data;
      if (moved) ++moves_;
    }
    slots_ = arena.slots;
  }

  std::uint64_t steps() const { return steps_; }
  std::uint64_t violations() const { return violations_; }

  json summary() const {
    json versions = json::object();
    for (const auto& [version, hash] : digests_)
      versions[std::to_string(version)] = hash.to_string();
    json out{{"event", "summary"},          {"steps", steps_},
             {"violations", violations_},   {"versions", versions},
             {"version_changes", changes_}, {"layout_changes", layouts_},
             {"address_changes", moves_}};
    out["last_version"] = last_version_ ? json(*last_version_) : json(nullptr);
    return out;
  }

 private:
  void report(std::uint64_t version, const char* what, const Hash128& first, const Hash128& last) {
    if (++violations_ > kMaxReported) return;
    print({{"event", "violation"},
           {"version", version},
           {"what", what},
           {"first", first.to_string()},
           {"last", last.to_string()},
           {"step", steps_}});
  }

  std::map<std::uint64_t, Hash128> digests_;
  std::shared_ptr<const std::vector<weightbus::client::Slot>> slots_;
  std::optional<std::uint64_t> last_version_;
  std::uint64_t steps_ = 0;
  std::uint64_t violations_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t layouts_ = 0;
  std::uint64_t moves_ = 0;
};

void run_step(const Arena& arena, std::uint64_t step_us, WholenessCheck& check) {
  check.add_addresses(arena);
  const Hash128 first = digest(arena);
  // Stands for the forward pass, during which an exchange would do harm.
  if (step_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(step_us));
  check.add(arena.tag.version.value(), first, digest(arena));
}

int run(Reader& reader, const Options& options, WholenessCheck& check) {
  while (stop_requested == 0 && (options.steps == 0 || check.steps() < options.steps)) {
    if (options.ignore_pause) {
      if (const auto arena = reader.peek()) {
        run_step(*arena, options.step_us, check);
      } else {
        std::this_thread::sleep_for(kGatePatience);
      }
    } else if (const auto step = reader.enter_step(kGatePatience)) {
      run_step(step->arena(), options.step_us, check);
    } else if (step.error().code != weightbus::base::ErrorCode::kDeadlineExceeded) {
      std::fprintf(stderr, "weightbus-reader: %s\n", step.error().message.c_str());
      return kExitFailed;
    }
    if (options.stop_on_violation && check.violations() > 0) break;
  }
  const auto state = reader.state();
  json summary = check.summary();
  summary["exchanges"] = state.exchanges;
  summary["attachments"] = state.attachments;
  summary["last_exchange_ns"] = state.last_exchange_ns;
  print(summary);
  return check.violations() > 0 ? kExitViolations : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Maps an engine's arena as an inference process does, and checks that every step sees one whole version."};
  app.add_option("--socket", options.socket, "the engine agent's attach socket")->required();
  app.add_flag("--observer", options.observer, "attach as an observer, for which no pause waits");
  app.add_flag("--ignore-pause", options.ignore_pause,
               "read outside the launch gate: a control that the check must catch");
  app.add_flag("--stop-on-violation", options.stop_on_violation, "end at the first step that was not whole");
  app.add_option("--steps", options.steps, "end after so many steps; 0: at SIGTERM")->capture_default_str();
  app.add_option("--step-us", options.step_us, "time between the two readings of a step")->capture_default_str();
  app.add_option("--connect-timeout-ms", options.connect_timeout_ms, "how long to wait for the agent and its arena")
      ->capture_default_str();
  app.add_option("--expect", options.expect, "VERSION=DIGEST, known beforehand; may be repeated");
  CLI11_PARSE(app, argc, argv);

  WholenessCheck check;
  for (const auto& text : options.expect) {
    if (check.expect(text)) continue;
    std::fprintf(stderr, "weightbus-reader: --expect %s: give VERSION=DIGEST with 32 hexadecimal digits\n",
                 text.c_str());
    return kExitFailed;
  }
  struct sigaction action {};
  action.sa_handler = &request_stop;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);

  const auto kind =
      options.observer ? weightbus::wire::ClientKind::kObserver : weightbus::wire::ClientKind::kEngineRank;
  auto reader = Reader::connect({.socket_path = options.socket,
                                 .kind = kind,
                                 .connect_timeout = std::chrono::milliseconds(options.connect_timeout_ms),
                                 .hooks = {.on_pause = {}, .on_resume = {}, .log = [](std::string_view line) {
                                             std::fprintf(stderr, "weightbus-reader: %.*s\n",
                                                          static_cast<int>(line.size()), line.data());
                                           }}});
  if (!reader) {
    std::fprintf(stderr, "weightbus-reader: %s\n", reader.error().message.c_str());
    return kExitFailed;
  }
  return run(**reader, options, check);
}
