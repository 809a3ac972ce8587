#include "weightbus/store/sqlite/writer_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace weightbus::store {

namespace {

struct flock byte_of(std::uint64_t epoch, int type) {
  struct flock range {};
  range.l_type = static_cast<short>(type);
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(epoch);
  range.l_len = 1;
  return range;
}

}  // namespace

WriterLock::~WriterLock() {
  if (fd_ >= 0) ::close(fd_);
}

WriterLock::WriterLock(WriterLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

WriterLock& WriterLock::operator=(WriterLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

base::Result<WriterLock> WriterLock::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) {
    return base::fail(errno == ENOSPC ? base::ErrorCode::kResourceExhausted : base::ErrorCode::kPermissionDenied,
                      "cannot open the journal's lock file {}: {}", path, std::strerror(errno));
  }
  return WriterLock(fd);
}

base::Status WriterLock::hold(std::uint64_t epoch) {
  auto range = byte_of(epoch, F_WRLCK);
  if (::fcntl(fd_, F_OFD_SETLK, &range) == 0) return {};
  return base::fail(base::ErrorCode::kUnavailable, "cannot lock epoch {} of the journal: {}", epoch,
                    std::strerror(errno));
}

void WriterLock::drop(std::uint64_t epoch) noexcept {
  auto range = byte_of(epoch, F_UNLCK);
  [[maybe_unused]] const int rc = ::fcntl(fd_, F_OFD_SETLK, &range);
}

bool WriterLock::is_held_elsewhere(std::uint64_t epoch) const noexcept {
  auto range = byte_of(epoch, F_WRLCK);
  return ::fcntl(fd_, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

}  // namespace weightbus::store
