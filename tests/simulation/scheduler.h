// Simulated time: events in the order of their time, and of their making where times are equal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "weightbus/protocol/time.h"

namespace weightbus::simulation {

class Scheduler {
 public:
  using Action = std::function<void()>;

  base::Instant now() const { return now_; }
  protocol::Now protocol_now() const { return {now_, unix_ms()}; }
  std::uint64_t unix_ms() const { return 1'700'000'000'000ULL + since_start_ms(); }
  std::uint64_t since_start_ms() const {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<base::Millis>(now_ - kStart).count());
  }

  void after(base::Duration delay, Action action) {
    events_.push_back({now_ + delay, ++made_, std::move(action)});
    std::push_heap(events_.begin(), events_.end(), Later{});
  }
  void after_us(std::uint64_t us, Action action) { after(std::chrono::microseconds(us), std::move(action)); }
  // Runs the next event; false when there is none.
  bool run_next() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end(), Later{});
    Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.at;
    event.action();
    return true;
  }

 private:
  static constexpr base::Instant kStart{base::Millis(3'600'000)};
  struct Event {
    base::Instant at;
    std::uint64_t made;
    Action action;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const { return a.at != b.at ? a.at > b.at : a.made > b.made; }
  };

  base::Instant now_ = kStart;
  std::uint64_t made_ = 0;
  std::vector<Event> events_;
};

}  // namespace weightbus::simulation
