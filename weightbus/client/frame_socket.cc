#include "weightbus/client/frame_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace weightbus::client {
namespace {

using base::ErrorCode;
using base::fail;

constexpr std::size_t kReadBytes = 64U << 10;
constexpr int kReadsPerFill = 16;
constexpr std::size_t kMaxQueuedBytes = 2 * wire::kMaxAttachFrameBytes;

}  // namespace

base::Result<FrameSocket> FrameSocket::connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return fail(ErrorCode::kInvalidArgument, "socket path \"{}\" has {} bytes; 1 to {} are possible", path, path.size(),
                sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fail(ErrorCode::kResourceExhausted, "no socket: {}", std::strerror(errno));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail(errno == EACCES ? ErrorCode::kPermissionDenied : ErrorCode::kUnavailable,
                "cannot reach the agent at {}: {}", path, std::strerror(errno));
  return FrameSocket(std::move(fd));
}

base::Status FrameSocket::send(std::string_view frame) {
  if (out_.size() + frame.size() > kMaxQueuedBytes)
    return fail(ErrorCode::kUnavailable, "the other side has not read {} bytes", out_.size());
  out_.append(frame);
  return flush();
}

base::Status FrameSocket::send(const wire::AttachMessage& message) {
  WB_ASSIGN(const auto frame, wire::encode_attach(message));
  return send(frame);
}

base::Status FrameSocket::flush() {
  std::size_t sent = 0;
  while (sent < out_.size()) {
    const auto count = ::send(fd_.get(), out_.data() + sent, out_.size() - sent, MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      return fail(ErrorCode::kUnavailable, "the connection is closed: {}", std::strerror(errno));
    }
  }
  out_.erase(0, sent);
  return {};
}

base::Status FrameSocket::fill() {
  std::vector<char> bytes(kReadBytes);
  for (int reads = 0; reads < kReadsPerFill; ++reads) {
    const auto count = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (count > 0) {
      cutter_.add({bytes.data(), static_cast<std::size_t>(count)});
    } else if (count == 0) {
      if (reads > 0) return {};  // what came before the end is delivered first; the next call meets the end again
      return fail(ErrorCode::kUnavailable, "the connection was closed by the other side");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return {};
    } else if (errno != EINTR) {
      return fail(ErrorCode::kUnavailable, "the connection is closed: {}", std::strerror(errno));
    }
  }
  return {};
}

base::Result<std::optional<wire::AttachMessage>> FrameSocket::next() {
  WB_ASSIGN(auto frame, cutter_.next());
  if (!frame) return std::nullopt;
  WB_ASSIGN(auto message, wire::decode_attach(*frame));
  return message;
}

}  // namespace weightbus::client
