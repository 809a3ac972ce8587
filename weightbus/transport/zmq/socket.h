// Owners of libzmq's handles. Internal to transport/zmq.
#pragma once

#include <zmq.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "weightbus/base/assert.h"

namespace weightbus::transport {

class ZmqSocket {
 public:
  ZmqSocket() = default;
  // Null (and zmq_errno set) when the context has no socket left.
  ZmqSocket(void* context, int type) : handle_(zmq_socket(context, type)) {}
  ~ZmqSocket() { close(); }
  ZmqSocket(ZmqSocket&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ZmqSocket& operator=(ZmqSocket&& other) noexcept {
    if (this != &other) {
      close();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  void* handle() const noexcept { return handle_; }
  void close() noexcept {
    if (handle_ != nullptr) zmq_close(std::exchange(handle_, nullptr));
  }

  void set(int option, int value) { check(zmq_setsockopt(handle_, option, &value, sizeof value)); }
  void set(int option, std::int64_t value) { check(zmq_setsockopt(handle_, option, &value, sizeof value)); }
  void set(int option, const std::string& value) { check(zmq_setsockopt(handle_, option, value.data(), value.size())); }
  int get(int option) const {
    int value = 0;
    std::size_t size = sizeof value;
    check(zmq_getsockopt(handle_, option, &value, &size));
    return value;
  }

 private:
  // Options and their values are ours, so a refusal is a programmer's error.
  static void check(int rc) { WB_ASSERT(rc == 0, "libzmq refused a socket option"); }
  void* handle_ = nullptr;
};

class ZmqMessage {
 public:
  ZmqMessage() { zmq_msg_init(&message_); }
  ~ZmqMessage() { zmq_msg_close(&message_); }
  ZmqMessage(const ZmqMessage&) = delete;
  ZmqMessage& operator=(const ZmqMessage&) = delete;

  // False when nothing is there (or the context ends); never blocks.
  bool receive(ZmqSocket& socket) { return zmq_msg_recv(&message_, socket.handle(), ZMQ_DONTWAIT) >= 0; }
  bool more() const { return zmq_msg_more(&message_) != 0; }
  std::size_t size() const { return zmq_msg_size(&message_); }
  std::string text() { return {static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)}; }
  // The key that the ZAP handler attached; empty without authentication.
  std::string user_id() const {
    const char* value = zmq_msg_gets(&message_, "User-Id");
    return value == nullptr ? std::string() : std::string(value);
  }

 private:
  zmq_msg_t message_{};
};

// Drops the remaining parts of a message whose last read part has `more` set.
inline void drain_parts(ZmqSocket& socket, bool more) {
  while (more) {
    ZmqMessage part;
    if (!part.receive(socket)) return;
    more = part.more();
  }
}

}  // namespace weightbus::transport
