// Files of the operating system, with errors as values. Nothing here maps a file: one that shrinks is a short read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weightbus/base/result.h"

namespace weightbus::checkpoint {

// An open file descriptor and the path it was opened by. Closes on destruction. Reads and writes give their offset, so
// that several threads may use one File.
class File {
 public:
  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  // An existing regular file; links are followed. kNotFound, kPermissionDenied, kInvalidArgument (not a regular file).
  static base::Result<File> open_for_reading(const std::string& path);
  // A new file, mode 0644. kConflict when the name is taken.
  static base::Result<File> create(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  int descriptor() const noexcept { return descriptor_; }
  // Its size now, in bytes.
  base::Result<std::uint64_t> size() const;
  // A value that changes when the content may have changed: nanoseconds of the last modification.
  base::Result<std::int64_t> modified_ns() const;

  // Fills `out` from `offset`. kCorrupted when the file ends before.
  base::Status read_at(std::uint64_t offset, std::span<std::byte> out) const;
  // kResourceExhausted when the disk, the quota or the file size limit is full.
  base::Status write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // Takes room for the first `bytes` bytes now, where the file system can; kResourceExhausted says needed and free
  // bytes.
  base::Status reserve(std::uint64_t bytes);
  // Until it returns, a crash of the machine may lose what was written.
  base::Status sync();

 private:
  File(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::string path_;
};

// The error of a failed system call on `path`, by errno: `what` is "cannot write".
base::Error system_error(int error_number, std::string_view what, const std::string& path);

// The whole file as text. kCorrupted when it is longer than `max_bytes`.
base::Result<std::string> read_text(const std::string& path, std::uint64_t max_bytes);

// Writes `text` under a temporary name in the same folder, makes it durable, and renames it to `path`: afterwards there
// is the old file or the new one, whole. On an error the temporary is gone.
base::Status write_text_atomically(const std::string& path, std::string_view text);

// Makes created, renamed and removed names of this folder durable.
base::Status sync_directory(const std::string& directory);

// Bytes that a file in this folder could still take; 0 when that cannot be told.
std::uint64_t free_disk_bytes(const std::string& directory) noexcept;

// Suffix of names that a crash may leave behind; whoever owns the folder removes them when it starts.
inline constexpr std::string_view kTemporarySuffix = ".tmp";

}  // namespace weightbus::checkpoint
