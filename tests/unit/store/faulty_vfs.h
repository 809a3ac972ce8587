// SQLite's file layer with faults: a disk that is full, or that fails to write or to sync.
#pragma once

#include <cstdint>
#include <string>

namespace weightbus::store {

// Registered under a name of its own while it lives; one at a time. Faults count down over every file of the database.
class FaultyVfs {
 public:
  FaultyVfs();
  ~FaultyVfs();
  FaultyVfs(const FaultyVfs&) = delete;
  FaultyVfs& operator=(const FaultyVfs&) = delete;

  static constexpr const char* kName = "weightbus-faulty";
  static constexpr std::int64_t kNever = -1;
  // How many more calls succeed before every later one fails.
  std::int64_t syncs_left = kNever;
  std::int64_t writes_left = kNever;      // then SQLITE_IOERR_WRITE, after half of the bytes
  std::int64_t disk_full_after = kNever;  // writes; then SQLITE_FULL, after half of the bytes
  std::int64_t syncs = 0;                 // seen so far
  std::int64_t writes = 0;
};

}  // namespace weightbus::store
