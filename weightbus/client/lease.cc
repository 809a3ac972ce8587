#include "weightbus/client/lease.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace weightbus::client {
namespace {

using base::ErrorCode;
using base::fail;
using base::Result;

constexpr int kAttempts = 32;
constexpr unsigned kRandomBits = 24;

struct flock byte_range(short type, off_t start, off_t length) noexcept {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return lock;
}

Result<UniqueFd> open_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid())
    return fail(errno == ENOENT ? ErrorCode::kUnavailable : ErrorCode::kPermissionDenied, "cannot open {}: {}", path,
                std::strerror(errno));
  return fd;
}

// Whether the path still names the file that is open: an agent may have removed it in between.
bool still_there(int fd, const std::string& path) noexcept {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

std::string lease_path(const std::string& socket_path) { return socket_path + ".lease"; }

Result<Lease> Lease::take(const std::string& path) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    WB_ASSIGN(UniqueFd fd, open_file(path));
    std::uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random))
      return fail(ErrorCode::kInternal, "no random numbers: {}", std::strerror(errno));
    const std::uint64_t key =
        (static_cast<std::uint64_t>(::getpid()) << kRandomBits) | (random & ((std::uint64_t{1} << kRandomBits) - 1));
    auto lock = byte_range(F_WRLCK, static_cast<off_t>(key), 1);
    if (::fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
      // Taken: by the same number from another process namespace, or by an agent that is removing the file.
      if (errno == EAGAIN || errno == EACCES) continue;
      return fail(ErrorCode::kInternal, "cannot lock {}: {}", path, std::strerror(errno));
    }
    if (still_there(fd.get(), path)) return Lease(std::move(fd), key);
  }
  return fail(ErrorCode::kUnavailable, "cannot get a lease in {} after {} attempts", path, kAttempts);
}

Result<LeaseFile> LeaseFile::open(const std::string& path) {
  WB_ASSIGN(UniqueFd fd, open_file(path));
  return LeaseFile(std::move(fd), path);
}

Result<std::vector<std::uint64_t>> LeaseFile::held() const {
  std::vector<std::uint64_t> keys;
  // The kernel names one conflicting lock a query: each answer splits the range that is left to ask about.
  std::vector<std::pair<off_t, off_t>> ranges{{0, std::numeric_limits<off_t>::max()}};
  while (!ranges.empty()) {
    const auto [begin, end] = ranges.back();
    ranges.pop_back();
    auto lock = byte_range(F_WRLCK, begin, end - begin);
    if (::fcntl(fd_.get(), F_OFD_GETLK, &lock) != 0)
      return fail(ErrorCode::kInternal, "cannot query {}: {}", path_, std::strerror(errno));
    if (lock.l_type == F_UNLCK) continue;
    const off_t last = lock.l_len == 0 ? end : lock.l_start + lock.l_len;
    for (off_t key = std::max(begin, lock.l_start); key < std::min(end, last); ++key) {
      keys.push_back(static_cast<std::uint64_t>(key));
      if (keys.size() > 4096) return fail(ErrorCode::kCorrupted, "{} is locked as a whole by another program", path_);
    }
    if (begin < lock.l_start) ranges.emplace_back(begin, lock.l_start);
    if (last < end) ranges.emplace_back(last, end);
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

void LeaseFile::remove_if_free() noexcept {
  // Under a lock of the whole file: a client that comes in between sees a taken byte and opens the file anew.
  auto lock = byte_range(F_WRLCK, 0, 0);
  if (::fcntl(fd_.get(), F_OFD_SETLK, &lock) == 0 && still_there(fd_.get(), path_)) ::unlink(path_.c_str());
}

}  // namespace weightbus::client
