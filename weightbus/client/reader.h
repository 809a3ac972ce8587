// Reader: maps an engine agent's arena into this process and keeps it there, version after version, at unchanged
// addresses. An inference process makes one for each rank, and runs every generation step inside enter_step().
//
//   WB_ASSIGN(auto reader, client::Reader::connect({.socket_path = "/run/weightbus/engine-0-tp0.sock"}));
//   while (serving) {
//     WB_ASSIGN(auto step, reader->enter_step());   // waits while the agent exchanges versions
//     forward(step.arena());                        // one whole version, from the first kernel to the last
//   }
//
// When the agent is gone, steps go on with what is mapped, and a thread behind the scenes attaches again. Only a client
// that had already answered a pause waits for the agent's return: the other ranks of its engine may have moved on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"
#include "weightbus/client/arena.h"
#include "weightbus/client/gate.h"
#include "weightbus/client/live_range.h"
#include "weightbus/wire/attach.h"

namespace weightbus::client {

// Called from the reader's own thread, which does nothing else meanwhile: the agent's pause waits for them. They must
// not call the reader's close() or destroy it.
struct ReaderHooks {
  // The gate is closed and no step is inside: finish what steps left behind (synchronise the device, drop caches).
  std::function<void()> on_pause;
  // The memory shows this version; called before the gate opens, the first time and after each on_pause.
  std::function<void(const Arena&)> on_resume;
  // A sentence for the log.
  std::function<void(std::string_view)> log;
};

struct ReaderOptions {
  std::string socket_path;
  wire::ClientKind kind = wire::ClientKind::kEngineRank;
  base::Duration connect_timeout = std::chrono::seconds(30);  // for the first attachment
  ReaderHooks hooks = {};
  MapFunction map = nullptr;  // tests only; nullptr: mmap
};

struct ReaderState {
  bool attached = false;             // an agent is connected and has named an arena
  bool open = false;                 // steps may begin
  std::optional<protocol::Tag> tag;  // of what is mapped
  std::uint64_t steps = 0;
  std::uint64_t attachments = 0;  // how often it attached
  std::uint64_t exchanges = 0;    // mappings of another half or arena after the first
  std::uint64_t last_exchange_ns = 0;
  std::string last_error;  // why it is not attached, or could not map; empty if all is well
};

// Thread safe. Not for use in a forked child, which must make its own.
class Reader {
 public:
  // Attaches and maps the live half; waits for an agent and for its arena until connect_timeout (kDeadlineExceeded,
  // with the last reason). An agent that refuses, or an arena that cannot be mapped, is an error at once. The arena may
  // hold no version yet: then the first enter_step() waits for one.
  static base::Result<std::unique_ptr<Reader>> connect(ReaderOptions options);
  // No step may be inside. Unmaps the arena.
  ~Reader();

  // Inside the launch gate until destroyed or ended. One step must not be entered inside another: a pause that comes in
  // between would wait for both, and the inner one for the pause.
  class Step {
   public:
    Step(Step&& other) noexcept = default;
    Step& operator=(Step&& other) = delete;
    ~Step() {
      if (arena_) gate_->leave();
    }
    model::WeightVersion version() const noexcept { return arena_->tag.version; }
    const Arena& arena() const noexcept { return *arena_; }

   private:
    friend class Reader;
    Step(Gate& gate, std::shared_ptr<const Arena> arena) : gate_(&gate), arena_(std::move(arena)) {}
    Gate* gate_;
    std::shared_ptr<const Arena> arena_;
  };

  // Waits while the gate is closed; kDeadlineExceeded after `timeout`, kUnavailable after close().
  base::Result<Step> enter_step(std::optional<base::Duration> timeout = std::nullopt);

  // What is mapped now, outside any step: addresses and layout are sound, contents may change at any moment. Null
  // before the arena holds a version.
  std::shared_ptr<const Arena> peek() const;
  ReaderState state() const;
  // Ends the connection and every waiting enter_step(). Idempotent.
  void close();

 private:
  class Impl;
  explicit Reader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightbus::client
