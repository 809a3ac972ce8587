// A page of named shared memory by which a source tells its sinks whether it serves, and waits for their reads to end.
//
// Only the source writes it. Two bytes of it carry locks of open file descriptions, which the kernel releases when a
// process dies: the source holds one for as long as it lives; a sink holds the other, shared, while it reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"
#include "weightbus/channel/secret.h"

namespace weightbus::channel {

enum class ServeState : std::uint32_t { kWaiting = 1, kServing = 2, kClosed = 3 };

struct ControlPage {
  std::uint32_t magic;
  std::uint32_t revision;
  std::atomic<ServeState> state;
  Secret token;
};
static_assert(std::atomic<ServeState>::is_always_lock_free);

class ControlBlock {
 public:
  // The source's: made, locked, state kWaiting.
  static base::Result<std::unique_ptr<ControlBlock>> create(const Secret& token);
  // The sink's, read-only. kUnavailable when it is gone, kCorrupted when it is not a control block.
  static base::Result<std::unique_ptr<ControlBlock>> open(const std::string& name);
  // Removes the blocks whose source has died.
  static void sweep();

  ControlBlock(const ControlBlock&) = delete;
  ControlBlock& operator=(const ControlBlock&) = delete;
  ~ControlBlock();  // the source's removes the name

  const std::string& name() const noexcept { return name_; }
  const Secret& token() const noexcept { return page_->token; }
  ServeState state() const noexcept { return page_->state.load(std::memory_order_acquire); }

  // Source: only.
  void set_state(ServeState state) noexcept { page_->state.store(state, std::memory_order_release); }
  void drain(base::Duration most);  // returns when no sink reads, or after `most`

  // Sink: only.
  bool source_alive() const noexcept;
  bool begin_read() noexcept;  // false when the source is draining
  void end_read() noexcept;

 private:
  ControlBlock(std::string name, int fd, ControlPage* page, bool owner)
      : name_(std::move(name)), fd_(fd), page_(page), owner_(owner) {}

  const std::string name_;
  const int fd_;
  ControlPage* const page_;
  const bool owner_;
};

}  // namespace weightbus::channel
