#include "weightbus/checkpoint/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "weightbus/base/checked_math.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;

bool is_out_of_space(int error_number) {
  return error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
}

std::string parent_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Linux moves at most about 2 GiB in one call; smaller steps also keep a cancelled load prompt.
constexpr std::size_t kStepBytes = std::size_t{1} << 30;

}  // namespace

base::Error system_error(int error_number, std::string_view what, const std::string& path) {
  const auto reason = std::strerror(error_number);
  ErrorCode code = ErrorCode::kUnavailable;
  if (error_number == ENOENT || error_number == ENOTDIR) code = ErrorCode::kNotFound;
  if (error_number == EACCES || error_number == EPERM || error_number == EROFS) code = ErrorCode::kPermissionDenied;
  if (error_number == EEXIST || error_number == ENOTEMPTY) code = ErrorCode::kConflict;
  if (error_number == EISDIR || error_number == ENAMETOOLONG || error_number == ELOOP || error_number == EINVAL)
    code = ErrorCode::kInvalidArgument;
  if (is_out_of_space(error_number)) {
    return {ErrorCode::kResourceExhausted,
            fmt::format("{} {}: {} ({} bytes are free there)", what, path, reason, free_disk_bytes(parent_of(path)))};
  }
  return {code, fmt::format("{} {}: {}", what, path, reason)};
}

File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  if (this == &other) return *this;
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  path_ = std::move(other.path_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

base::Result<File> File::open_for_reading(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return base::fail(system_error(errno, "cannot open", path));
  File file(descriptor, path);
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return base::fail(system_error(errno, "cannot stat", path));
  if (!S_ISREG(info.st_mode)) return base::fail(ErrorCode::kInvalidArgument, "{} is not a regular file", path);
  return file;
}

base::Result<File> File::create(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) return base::fail(system_error(errno, "cannot create", path));
  return File(descriptor, path);
}

base::Result<std::uint64_t> File::size() const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) return base::fail(system_error(errno, "cannot stat", path_));
  return static_cast<std::uint64_t>(info.st_size);
}

base::Result<std::int64_t> File::modified_ns() const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) return base::fail(system_error(errno, "cannot stat", path_));
  return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

base::Status File::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  const auto end = base::checked_add<std::uint64_t>(offset, out.size());
  if (!end || !base::checked_cast<off_t>(*end)) {
    return base::fail(ErrorCode::kCorrupted, "{} cannot hold an offset of {} bytes", path_, offset);
  }
  std::size_t done = 0;
  while (done < out.size()) {
    const auto step = std::min(out.size() - done, kStepBytes);
    const auto got = ::pread(descriptor_, out.data() + done, step, static_cast<off_t>(offset + done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return base::fail(system_error(errno, "cannot read", path_));
    }
    if (got == 0) {
      return base::fail(ErrorCode::kCorrupted, "{} ends at byte {} where {} bytes were expected: it was cut short",
                        path_, offset + done, *end);
    }
    done += static_cast<std::size_t>(got);
  }
  return {};
}

base::Status File::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto step = std::min(bytes.size() - done, kStepBytes);
    const auto put = ::pwrite(descriptor_, bytes.data() + done, step, static_cast<off_t>(offset + done));
    if (put < 0) {
      if (errno == EINTR) continue;
      return base::fail(system_error(errno, fmt::format("cannot write {} bytes to", bytes.size()), path_));
    }
    done += static_cast<std::size_t>(put);
  }
  return {};
}

base::Status File::reserve(std::uint64_t bytes) {
  const auto length = base::checked_cast<off_t>(bytes);
  if (!length) return base::fail(ErrorCode::kResourceExhausted, "{} cannot become {} bytes long", path_, bytes);
  if (*length == 0) return {};
  // Asked first, since a file system may fill itself up before it finds out that it cannot.
  struct statvfs info {};
  const bool known = ::fstatvfs(descriptor_, &info) == 0;
  const auto free = known ? static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize : 0;
  if (known && free < bytes) {
    return base::fail(ErrorCode::kResourceExhausted, "no room for {}: {} bytes are needed, {} bytes are free there",
                      path_, bytes, free);
  }
  int result = 0;
  do {
    result = ::fallocate(descriptor_, 0, 0, *length);
  } while (result != 0 && errno == EINTR);
  // A file system that cannot reserve fails in write_at instead.
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return base::fail(system_error(errno, fmt::format("cannot reserve {} bytes for", bytes), path_));
}

base::Status File::sync() {
  if (::fsync(descriptor_) != 0) return base::fail(system_error(errno, "cannot make durable", path_));
  return {};
}

base::Result<std::string> read_text(const std::string& path, std::uint64_t max_bytes) {
  WB_ASSIGN(const auto file, File::open_for_reading(path));
  WB_ASSIGN(const auto size, file.size());
  if (size > max_bytes) {
    return base::fail(ErrorCode::kCorrupted, "{} is {} bytes long; at most {} are read", path, size, max_bytes);
  }
  std::string text(size, '\0');
  WB_TRY(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

base::Status write_text_atomically(const std::string& path, std::string_view text) {
  const std::string temporary = path + std::string(kTemporarySuffix);
  ::unlink(temporary.c_str());
  const auto write = [&]() -> base::Status {
    WB_ASSIGN(auto file, File::create(temporary));
    WB_TRY(file.write_at(0, std::as_bytes(std::span(text))));
    WB_TRY(file.sync());
    if (::rename(temporary.c_str(), path.c_str()) != 0) return base::fail(system_error(errno, "cannot write", path));
    return sync_directory(parent_of(path));
  };
  auto status = write();
  if (!status) ::unlink(temporary.c_str());
  return status;
}

base::Status sync_directory(const std::string& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return base::fail(system_error(errno, "cannot open folder", directory));
  const int result = ::fsync(descriptor);
  const int error_number = errno;
  ::close(descriptor);
  // Some network file systems refuse fsync on a folder; there a rename is as durable as it gets.
  if (result != 0 && error_number != EINVAL) {
    return base::fail(system_error(error_number, "cannot make durable", directory));
  }
  return {};
}

std::uint64_t free_disk_bytes(const std::string& directory) noexcept {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) return 0;
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace weightbus::checkpoint
