#include "faulty_vfs.h"

#include <sqlite3.h>

#include <array>

#include "weightbus/base/assert.h"

namespace weightbus::store {

namespace {

FaultyVfs* faults = nullptr;  // SQLite's callbacks carry no context of ours
sqlite3_vfs vfs;

// A set of calls of the wrapped layer, and the same with two of them replaced. The "unix" layer has one set for the
// database and another for the WAL.
struct Wrapped {
  const sqlite3_io_methods* real = nullptr;
  sqlite3_io_methods methods{};
};
std::array<Wrapped, 4> wrapped;

const sqlite3_io_methods* real_of(const sqlite3_file* file) {
  // `methods` is a member of its Wrapped, which tells the original.
  for (const auto& entry : wrapped) {
    if (file->pMethods == &entry.methods) return entry.real;
  }
  base::assertion_failed("known methods", __FILE__, __LINE__, "only files of ours are passed here");
}

// True: this call is to fail.
bool is_spent(std::int64_t& left) {
  if (left == FaultyVfs::kNever) return false;
  if (left == 0) return true;
  --left;
  return false;
}

int sync_file(sqlite3_file* file, int flags) {
  ++faults->syncs;
  if (is_spent(faults->syncs_left)) return SQLITE_IOERR_FSYNC;
  return real_of(file)->xSync(file, flags);
}

int write_file(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
  ++faults->writes;
  const bool full = is_spent(faults->disk_full_after);
  const auto* real = real_of(file);
  if (!full && !is_spent(faults->writes_left)) return real->xWrite(file, data, size, offset);
  real->xWrite(file, data, size / 2, offset);
  return full ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

int open_file(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  auto* parent = sqlite3_vfs_find("unix");
  const int rc = parent->xOpen(parent, name, file, flags, out_flags);
  if (rc != SQLITE_OK || file->pMethods == nullptr) return rc;
  for (auto& entry : wrapped) {
    if (entry.real == nullptr) {
      entry.real = file->pMethods;
      entry.methods = *entry.real;
      entry.methods.xSync = &sync_file;
      entry.methods.xWrite = &write_file;
    }
    if (entry.real != file->pMethods) continue;
    file->pMethods = &entry.methods;
    return SQLITE_OK;
  }
  return SQLITE_CANTOPEN;
}

}  // namespace

FaultyVfs::FaultyVfs() {
  WB_ASSERT(faults == nullptr, "one at a time");
  faults = this;
  vfs = *sqlite3_vfs_find("unix");
  vfs.zName = kName;
  vfs.pNext = nullptr;
  vfs.xOpen = &open_file;
  WB_ASSERT(sqlite3_vfs_register(&vfs, 0) == SQLITE_OK, "SQLite takes another file layer");
}

FaultyVfs::~FaultyVfs() {
  sqlite3_vfs_unregister(&vfs);
  faults = nullptr;
  wrapped = {};
}

}  // namespace weightbus::store
