// The launch gate: generation steps run inside it, and memory is exchanged while it is closed and empty.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"
#include "weightbus/client/arena.h"

namespace weightbus::client {

// Thread safe. Starts closed.
class Gate {
 public:
  // `on_idle` runs in the thread of the last step that leaves a closed gate; it must not block.
  explicit Gate(std::function<void()> on_idle) : on_idle_(std::move(on_idle)) {}

  // Waits until the gate is open and goes in. kDeadlineExceeded after `timeout`; kUnavailable after shut().
  base::Result<std::shared_ptr<const Arena>> enter(std::optional<base::Duration> timeout);
  void leave();

  void close();                                   // no step begins from now on
  bool idle() const;                              // closed, and no step is inside
  void open(std::shared_ptr<const Arena> arena);  // steps see this arena
  void shut();                                    // for ever: waiting and later calls of enter() fail
  bool is_open() const;
  std::uint64_t steps() const;  // that have begun so far

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> on_idle_;
  std::shared_ptr<const Arena> arena_;  // null while closed
  std::uint64_t inside_ = 0;
  std::uint64_t steps_ = 0;
  bool shut_ = false;
};

}  // namespace weightbus::client
