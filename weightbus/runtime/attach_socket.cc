#include "weightbus/runtime/attach_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace weightbus::runtime {
namespace {

using base::ErrorCode;
using base::fail;
using client::UniqueFd;

constexpr int kBacklog = 64;

base::Status remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode))
    return fail(ErrorCode::kConflict, "{} exists and is not a socket; remove it or choose another path", path);
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int got = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (got == 0 || errno == EAGAIN)
    return fail(ErrorCode::kConflict, "another agent listens at {}; stop it or choose another path", path);
  if (::unlink(path.c_str()) != 0)
    return fail(ErrorCode::kPermissionDenied, "cannot remove the stale socket {}: {}", path, std::strerror(errno));
  return {};
}

}  // namespace

base::Result<UniqueFd> listen_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return fail(ErrorCode::kInvalidArgument, "socket path \"{}\" has {} bytes; 1 to {} are possible", path, path.size(),
                sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path.data(), path.size());
  WB_TRY(remove_stale(path, address));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fail(ErrorCode::kResourceExhausted, "no socket: {}", std::strerror(errno));
  // Before bind: the file takes its mode from the descriptor, so that it is never open to others.
  if (::fchmod(fd.get(), 0600) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd.get(), kBacklog) != 0)
    return fail(errno == EADDRINUSE ? ErrorCode::kConflict : ErrorCode::kPermissionDenied, "cannot listen at {}: {}",
                path, std::strerror(errno));
  return fd;
}

base::Result<Accepted> accept_unix(int listener) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) return fail(ErrorCode::kUnavailable, "no connection waits: {}", std::strerror(errno));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return fail(ErrorCode::kPermissionDenied, "a client without credentials: {}", std::strerror(errno));
  if (peer.uid != ::geteuid() && peer.uid != 0)
    return fail(ErrorCode::kPermissionDenied, "a client of user {}; only {} may attach", peer.uid, ::geteuid());
  return Accepted{std::move(fd), static_cast<std::uint64_t>(peer.pid)};
}

}  // namespace weightbus::runtime
