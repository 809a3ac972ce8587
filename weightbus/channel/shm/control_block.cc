#include "weightbus/channel/shm/control_block.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <thread>

#include "weightbus/device/host/shared_memory.h"

namespace weightbus::channel {
namespace {

using base::ErrorCode;
using base::fail;

constexpr char kPrefix[] = "weightbus.ctl.";
constexpr std::uint32_t kMagic = 0x4c434257;  // "WBCL"
constexpr std::uint32_t kRevision = 1;
constexpr std::size_t kPageBytes = 4096;
constexpr off_t kSourceByte = 0;
constexpr off_t kReaderByte = 1;
constexpr int kCreateAttempts = 16;

bool set_lock(int fd, short type, off_t byte) noexcept {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// Whether another open file description holds a lock on this byte.
bool is_locked(int fd, off_t byte) noexcept {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// A new object of the right size that this process has locked, or -1 with errno. The sweep of another process removes a
// block that it finds unlocked, so one that lost its name meanwhile is given up.
int create_locked(const std::string& path) {
  const int fd = ::shm_open(path.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (fd < 0) return -1;
  int code = EEXIST;
  struct stat info {};
  if (set_lock(fd, F_WRLCK, kSourceByte) && ::fstat(fd, &info) == 0 && info.st_nlink > 0) {
    code = ::posix_fallocate(fd, 0, kPageBytes);
    if (code == 0) return fd;
  }
  ::shm_unlink(path.c_str());
  ::close(fd);
  errno = code;
  return -1;
}

}  // namespace

base::Result<std::unique_ptr<ControlBlock>> ControlBlock::create(const Secret& token) {
  std::string name;
  int fd = -1;
  for (int i = 0; i < kCreateAttempts && fd < 0; ++i) {
    name = fmt::format("{}{:016x}", kPrefix, random_number());
    fd = create_locked("/" + name);
    if (fd < 0 && errno != EEXIST) break;
  }
  if (fd < 0) {
    const auto code = errno == ENOSPC || errno == ENOMEM ? ErrorCode::kResourceExhausted : ErrorCode::kUnavailable;
    const auto free = device::shared_memory_free_bytes();
    return fail(code, "a control page of {} bytes cannot be made in /dev/shm ({} bytes free): {}", kPageBytes,
                free ? *free : 0, std::strerror(errno));
  }
  void* data = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    const int code = errno;
    ::shm_unlink(("/" + name).c_str());
    ::close(fd);
    return fail(ErrorCode::kResourceExhausted, "a control page cannot be mapped: {}", std::strerror(code));
  }
  auto* page = new (data) ControlPage{kMagic, kRevision, ServeState::kWaiting, token};
  return std::unique_ptr<ControlBlock>(new ControlBlock(std::move(name), fd, page, true));
}

base::Result<std::unique_ptr<ControlBlock>> ControlBlock::open(const std::string& name) {
  WB_TRY(device::check_shared_memory_name(name));
  const int fd = ::shm_open(("/" + name).c_str(), O_RDONLY, 0);
  if (fd < 0) {
    const auto code = errno == EACCES ? ErrorCode::kPermissionDenied : ErrorCode::kUnavailable;
    return fail(code, "its control page {} cannot be opened: {}", name, std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size != kPageBytes) {
    ::close(fd);
    return fail(ErrorCode::kCorrupted, "{} is not a control page", name);
  }
  void* data = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    const int code = errno;
    ::close(fd);
    return fail(ErrorCode::kResourceExhausted, "its control page cannot be mapped: {}", std::strerror(code));
  }
  auto block = std::unique_ptr<ControlBlock>(new ControlBlock(name, fd, static_cast<ControlPage*>(data), false));
  if (block->page_->magic != kMagic || block->page_->revision != kRevision) {
    return fail(ErrorCode::kCorrupted, "{} is not a control page of revision {}", name, kRevision);
  }
  return block;
}

ControlBlock::~ControlBlock() {
  if (owner_) ::shm_unlink(("/" + name_).c_str());
  ::munmap(page_, kPageBytes);
  ::close(fd_);
}

void ControlBlock::sweep() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix)) continue;
    const int fd = ::shm_open(("/" + name).c_str(), O_RDWR, 0);
    if (fd < 0) continue;
    if (set_lock(fd, F_WRLCK, kSourceByte)) ::shm_unlink(("/" + name).c_str());
    ::close(fd);
  }
}

void ControlBlock::drain(base::Duration most) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!set_lock(fd_, F_WRLCK, kReaderByte) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

bool ControlBlock::source_alive() const noexcept { return is_locked(fd_, kSourceByte); }

bool ControlBlock::begin_read() noexcept { return set_lock(fd_, F_RDLCK, kReaderByte); }

void ControlBlock::end_read() noexcept { set_lock(fd_, F_UNLCK, kReaderByte); }

}  // namespace weightbus::channel
