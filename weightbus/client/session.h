// What a client does at each message of its agent: the decisions of the attach protocol, apart from sockets and
// threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weightbus/client/reader.h"

namespace weightbus::client {

// Driven by one thread; snapshot() and peek() may be called from any.
class Session {
 public:
  using Send = std::function<void(const wire::AttachMessage&)>;  // drops the message when there is no connection

  Session(Gate& gate, ReaderHooks hooks, MapFunction map, Send send)
      : gate_(gate), hooks_(std::move(hooks)), send_(std::move(send)), range_(map) {}

  void on_attached();
  // kUnsupported, kNotFound, ...: the message cannot be obeyed; end the connection. Nothing changed.
  base::Status on_message(const wire::AttachMessage& message);
  void on_lost(const base::Error& why);
  // The last step has left the closed gate.
  void on_idle() { report(settle()); }

  bool has_arena() const;  // something is mapped
  ReaderState snapshot() const;
  std::shared_ptr<const Arena> peek() const;

 private:
  base::Status on_arena(const wire::ArenaInfo& info);
  base::Status on_pause(const wire::Pause& pause);
  base::Status on_exchange(const wire::Exchange& exchange);
  base::Status on_resume(const wire::Resume& resume);
  // Brings gate and mapping to what the agent said last, as far as the steps inside allow.
  base::Status settle();
  base::Status adopt(const wire::ArenaInfo& info);
  base::Status map_target();
  void report(const base::Status& status);
  void log(const std::string& sentence) const;
  void quiesce();

  Gate& gate_;
  ReaderHooks hooks_;
  Send send_;
  LiveRange range_;
  std::shared_ptr<const std::vector<Slot>> slots_;
  wire::ArenaInfo info_;                    // of range_, less its live half and tag
  std::optional<wire::ArenaInfo> pending_;  // another arena, to be adopted when no step is inside
  std::uint32_t target_live_ = 0;           // what the agent said last
  std::optional<protocol::Tag> target_tag_;
  bool mapped_any_ = false;
  std::optional<std::uint64_t> pause_;  // running pause of this connection
  bool answered_ = false;               // Paused was sent for it
  bool hold_ = false;                   // closed until the agent says what is live
  bool quiesced_ = true;                // on_resume is due before the gate opens

  mutable std::mutex mutex_;  // of what follows
  ReaderState state_;
  std::shared_ptr<const Arena> mapped_arena_;
};

}  // namespace weightbus::client
