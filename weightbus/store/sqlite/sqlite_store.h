// The journal as one SQLite file (WAL, synchronous=FULL), beside it FILE.lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weightbus/store/state_store.h"

namespace weightbus::store {

// Grows when the tables change in a way that older software cannot read.
inline constexpr int kStoreRevision = 1;

struct SqliteOptions {
  // Wall clock for lease expiry, milliseconds since 1970; the system's unless given.
  std::function<std::int64_t()> unix_ms;
  base::Duration busy_timeout = base::Millis(2000);  // how long to wait for another process's lock
  std::string vfs;                                   // SQLite's name of the file layer; empty: the default one
};

// The lease: acquire() gives kConflict while another writer's lease has not run out and its process lives. The kernel
// tells that by a lock on one byte of FILE.lock for each epoch, which ends with the process, so that a coordinator
// that was killed can be started again at once.
// Errors of every call: kUnavailable (another process holds the file; nothing written), kResourceExhausted (disk full;
// nothing written), kCorrupted, kInternal (outcome unknown: every later call fails, end the process).
class SqliteStore final : public StateStore {
 public:
  // Opens the journal, making it if the file is missing or empty; its folder must exist. kUnsupported if newer software
  // wrote it (the file is not touched), kInvalidArgument if it is another program's, kCorrupted if it is damaged.
  static base::Result<std::unique_ptr<SqliteStore>> open(const std::string& path, SqliteOptions options = {});
  ~SqliteStore() override;

  base::Hash128 journal() const override;
  base::Result<model::Epoch> acquire(const std::string& holder, base::Duration lease, std::uint64_t minimum) override;
  base::Status renew(base::Duration lease) override;
  void release() noexcept override;
  base::Status append(const std::vector<std::string>& payloads) override;
  base::Result<std::vector<StoredRecord>> read(std::uint64_t after_sequence) override;
  base::Result<std::uint64_t> watch() override;

 private:
  struct Impl;
  explicit SqliteStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightbus::store
