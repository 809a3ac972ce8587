#include "weightbus/runtime/state_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "weightbus/client/unique_fd.h"

namespace weightbus::runtime {
namespace {

using base::ErrorCode;
using base::fail;
using client::UniqueFd;

ErrorCode code_of(int error) noexcept {
  switch (error) {
    case ENOENT: return ErrorCode::kNotFound;
    case ENOSPC:
    case EDQUOT: return ErrorCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS: return ErrorCode::kPermissionDenied;
    default: return ErrorCode::kInternal;
  }
}

tl::unexpected<base::Error> failed(const char* verb, const std::string& path, int error) {
  return fail(code_of(error), "cannot {} {}: {}", verb, path, std::strerror(error));
}

base::Status write_all(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

base::Status sync_folder(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) return failed("sync", folder, errno);
  return {};
}

}  // namespace

base::Status write_file(const std::string& path, std::string_view bytes, Durability durability) {
  const std::string beside = path + ".tmp";
  const auto give_up = [&](tl::unexpected<base::Error> error) {
    ::unlink(beside.c_str());
    return error;
  };
  {
    const UniqueFd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) return failed("write", beside, errno);
    if (auto status = write_all(fd.get(), beside, bytes); !status) return give_up(fail(status.error()));
    // Before the rename: otherwise the name may point at an empty file after a crash of the machine.
    if (durability == Durability::kMachine && ::fsync(fd.get()) != 0) return give_up(failed("sync", beside, errno));
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) return give_up(failed("replace", path, errno));
  if (durability == Durability::kMachine) return sync_folder(path);
  return {};
}

base::Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return failed("open", path, errno);
  std::string bytes;
  char chunk[16U << 10];
  for (;;) {
    const auto count = ::read(fd.get(), chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("read", path, errno);
    if (count == 0) return bytes;
    bytes.append(chunk, static_cast<std::size_t>(count));
    if (bytes.size() > max_bytes)
      return fail(ErrorCode::kCorrupted, "{} has more than {} bytes; it is not what it should be", path, max_bytes);
  }
}

}  // namespace weightbus::runtime
