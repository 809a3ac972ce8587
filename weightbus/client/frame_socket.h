// One end of an attach connection: a non-blocking stream socket with its frames. Not thread safe; both the client and
// the agent's server use it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "weightbus/base/result.h"
#include "weightbus/client/unique_fd.h"
#include "weightbus/wire/attach.h"

namespace weightbus::client {

class FrameSocket {
 public:
  // `fd` is a connected, non-blocking socket. Frames over `max_frame_bytes` from the other side are refused.
  explicit FrameSocket(UniqueFd fd, std::size_t max_frame_bytes = wire::kMaxAttachFrameBytes)
      : fd_(std::move(fd)), cutter_(max_frame_bytes) {}

  // Connects to an agent's socket without waiting. kUnavailable: nobody listens there now.
  static base::Result<FrameSocket> connect(const std::string& path);

  // Queues an encoded frame and writes as much as goes now. An error (kUnavailable) means that the connection is over:
  // closed by the other side, or it has not read for so long that the queue is full.
  base::Status send(std::string_view frame);
  base::Status send(const wire::AttachMessage& message);
  base::Status flush();
  bool wants_write() const noexcept { return !out_.empty(); }

  // Reads what is there, at most about 1 MiB. kUnavailable at the end of the stream.
  base::Status fill();
  // The next whole message; nullopt: wait for more.
  base::Result<std::optional<wire::AttachMessage>> next();

  int fd() const noexcept { return fd_.get(); }

 private:
  UniqueFd fd_;
  wire::FrameCutter cutter_;
  std::string out_;
};

}  // namespace weightbus::client
