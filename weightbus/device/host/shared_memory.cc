#include "weightbus/device/host/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "weightbus/base/hash.h"

namespace weightbus::device {
namespace {

using base::ErrorCode;
using base::fail;

constexpr char kDirectory[] = "/dev/shm";
constexpr std::size_t kMaxNameLength = 200;

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

// Removes the name again unless the region was finished.
class NameGuard {
 public:
  explicit NameGuard(const std::string& path) : path_(path) {}
  NameGuard(const NameGuard&) = delete;
  NameGuard& operator=(const NameGuard&) = delete;
  ~NameGuard() {
    if (!kept_) ::shm_unlink(path_.c_str());
  }
  void keep() noexcept { kept_ = true; }

 private:
  const std::string& path_;
  bool kept_ = false;
};

base::Result<std::uint64_t> available_memory() {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (!file) return fail(ErrorCode::kInternal, "/proc/meminfo cannot be read: {}", std::strerror(errno));
  char line[256];
  unsigned long long kib = 0;
  bool found = false;
  while (!found && std::fgets(line, sizeof line, file))
    found = std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
  std::fclose(file);
  if (!found) return fail(ErrorCode::kInternal, "/proc/meminfo does not say MemAvailable");
  return std::uint64_t{kib} << 10;
}

// Differs between two objects that had the same name one after the other.
std::uint64_t allocation_id(const struct stat& info) {
  base::Hasher hasher;
  hasher.add(static_cast<std::uint64_t>(info.st_dev));
  hasher.add(static_cast<std::uint64_t>(info.st_ino));
  return hasher.finish().low | 1;  // 0 means "not known"
}

base::Result<std::byte*> map(int fd, std::uint64_t bytes, bool writable, const std::string& name) {
  if (bytes == 0) return nullptr;
  void* data = ::mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::kResourceExhausted, "shared memory {} of {} bytes cannot be mapped: {}", name, bytes,
                std::strerror(errno));
  }
  return static_cast<std::byte*>(data);
}

base::Status no_room(const std::string& name, std::uint64_t bytes) {
  const auto free = shared_memory_free_bytes();
  return fail(ErrorCode::kResourceExhausted,
              "shared memory {} needs {} bytes, {} are free in {}: free some or mount it larger", name, bytes,
              free ? *free : 0, kDirectory);
}

// Sizes the object and takes its pages now; ftruncate alone succeeds on a full /dev/shm, and the fault comes later.
base::Status reserve(int fd, const std::string& name, std::uint64_t bytes) {
  if (bytes == 0) return {};
  int code = 0;
  do {
    code = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (code == EINTR);
  if (code == ENOSPC || code == ENOMEM || code == EFBIG) return no_room(name, bytes);
  if (code != 0) {
    return fail(ErrorCode::kInternal, "shared memory {} of {} bytes cannot be reserved: {}", name, bytes,
                std::strerror(code));
  }
  return {};
}

void prefault(std::byte* data, std::uint64_t bytes, bool writable, bool wanted) {
  // A kernel without this call (before 5.14) faults the pages in as they are used.
  if (wanted && bytes > 0) ::madvise(data, bytes, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

// Huge pages are given while pages are first touched through a mapping that asks for them, so this comes before
// reserve(). What it could not get, reserve() takes as small pages or refuses.
void touch_huge(int fd, std::uint64_t bytes) {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return;
  if (::madvise(data, bytes, MADV_HUGEPAGE) == 0) ::madvise(data, bytes, MADV_POPULATE_WRITE);
  ::munmap(data, bytes);
}

}  // namespace

SharedMemory::~SharedMemory() {
  if (data_) ::munmap(data_, region_.bytes);
}

base::Result<std::uint64_t> shared_memory_free_bytes() {
  struct statvfs info {};
  if (::statvfs(kDirectory, &info) != 0) {
    return fail(ErrorCode::kUnavailable, "{} cannot be examined: {}", kDirectory, std::strerror(errno));
  }
  WB_ASSIGN(const std::uint64_t memory, available_memory());
  return std::min<std::uint64_t>(static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize, memory);
}

base::Status check_shared_memory_name(const std::string& name) {
  constexpr std::string_view prefix = "weightbus.";
  const bool good = name.size() > prefix.size() && name.size() <= kMaxNameLength && name.starts_with(prefix) &&
                    name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (good) return {};
  return fail(ErrorCode::kInvalidArgument,
              "a shared memory name is \"weightbus.\" and up to {} characters without a slash; this one has {}",
              kMaxNameLength - prefix.size(), name.size());
}

base::Result<std::unique_ptr<SharedMemory>> create_shared_memory(const std::string& name, std::uint64_t bytes,
                                                                 const MapOptions& options) {
  WB_TRY(check_shared_memory_name(name));
  // Asked before, since filling the file system to find out would fail everyone else's writes meanwhile.
  WB_ASSIGN(const std::uint64_t free, shared_memory_free_bytes());
  if (bytes > free || bytes > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
    return fail(no_room(name, bytes).error());
  }
  const std::string path = "/" + name;
  const Descriptor fd(::shm_open(path.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
  if (fd.get() < 0) {
    if (errno == EEXIST) {
      return fail(ErrorCode::kConflict, "shared memory {} exists already: another process uses it or left it behind",
                  name);
    }
    return fail(ErrorCode::kUnavailable, "shared memory {} cannot be made: {}", name, std::strerror(errno));
  }
  NameGuard guard(path);
  if (options.huge_pages && bytes > 0) touch_huge(fd.get(), bytes);
  WB_TRY(reserve(fd.get(), name, bytes));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return fail(ErrorCode::kInternal, "shared memory {} cannot be examined: {}", name, std::strerror(errno));
  }
  WB_ASSIGN(std::byte * data, map(fd.get(), bytes, true, name));
  prefault(data, bytes, true, options.populate);
  guard.keep();
  return std::make_unique<SharedMemory>(
      data, model::Region{model::RegionKind::kHostShm, "", name, bytes, allocation_id(info)});
}

base::Result<std::unique_ptr<SharedMemory>> open_shared_memory(const model::Region& region, bool writable,
                                                               const MapOptions& options) {
  if (region.kind != model::RegionKind::kHostShm) {
    return fail(ErrorCode::kUnsupported, "host memory maps named shared memory only, not a region of kind {}",
                static_cast<int>(region.kind));
  }
  WB_TRY(check_shared_memory_name(region.handle));
  const Descriptor fd(::shm_open(("/" + region.handle).c_str(), writable ? O_RDWR : O_RDONLY, 0));
  if (fd.get() < 0) {
    const ErrorCode code = errno == ENOENT   ? ErrorCode::kNotFound
                           : errno == EACCES ? ErrorCode::kPermissionDenied
                                             : ErrorCode::kUnavailable;
    return fail(code, "shared memory {} cannot be opened: {}", region.handle, std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return fail(ErrorCode::kInternal, "shared memory {} cannot be examined: {}", region.handle, std::strerror(errno));
  }
  if (region.allocation_id != 0 && region.allocation_id != allocation_id(info)) {
    return fail(ErrorCode::kNotFound, "shared memory {} was removed, and its name taken by another region",
                region.handle);
  }
  // Before mapping: touching a page past the end of an object is a SIGBUS.
  if (!S_ISREG(info.st_mode) || static_cast<std::uint64_t>(info.st_size) != region.bytes) {
    return fail(ErrorCode::kCorrupted, "shared memory {} has {} bytes, not the {} that its owner stated", region.handle,
                static_cast<std::uint64_t>(info.st_size), region.bytes);
  }
  WB_ASSIGN(std::byte * data, map(fd.get(), region.bytes, writable, region.handle));
  prefault(data, region.bytes, writable, options.populate);
  model::Region found = region;
  found.allocation_id = allocation_id(info);
  return std::make_unique<SharedMemory>(data, std::move(found));
}

void remove_shared_memory(const std::string& name) noexcept {
  if (check_shared_memory_name(name)) ::shm_unlink(("/" + name).c_str());
}

}  // namespace weightbus::device
