// The ZAP handler: libzmq asks it about every connection to a listening socket of its context.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "weightbus/transport/keys.h"
#include "weightbus/transport/zmq/socket.h"

namespace weightbus::transport {

inline constexpr const char* kZapDomain = "weightbus";

// Who may connect now. Thread safe.
class Access {
 public:
  Access(bool curve, AllowList list) : curve_(curve), list_(std::make_shared<const AllowList>(std::move(list))) {}
  bool curve() const noexcept { return curve_; }
  std::shared_ptr<const AllowList> list() const {
    const std::lock_guard lock(mutex_);
    return list_;
  }
  void set_list(AllowList list) {
    auto fresh = std::make_shared<const AllowList>(std::move(list));
    const std::lock_guard lock(mutex_);
    list_.swap(fresh);
  }

 private:
  const bool curve_;
  mutable std::mutex mutex_;
  std::shared_ptr<const AllowList> list_;
};

// Answers from a thread of its own, so that a busy caller of receive() does not hold up handshakes. One per context,
// made before the first listening socket and destroyed after the last.
class ZapHandler {
 public:
  // `access` must outlive the handler.
  ZapHandler(void* context, const Access& access);
  ~ZapHandler();
  ZapHandler(const ZapHandler&) = delete;
  ZapHandler& operator=(const ZapHandler&) = delete;

  std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }

 private:
  void run();
  void answer();

  const Access& access_;
  ZmqSocket socket_;
  int stop_fd_;
  std::atomic<std::uint64_t> refused_{0};
  std::thread thread_;
};

}  // namespace weightbus::transport
