// The coordinator's durable state: an append-only log of records under one writer's epoch. About six calls, so that an
// etcd store can stand in the SQLite store's place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weightbus/base/hash.h"
#include "weightbus/base/result.h"
#include "weightbus/base/time.h"
#include "weightbus/model/ids.h"

namespace weightbus::store {

struct StoredRecord {
  std::uint64_t sequence;  // 1, 2, ... without gaps
  std::string payload;     // opaque here
};

// Not thread safe: one writer thread. An append whose outcome is unknown (an fsync that failed) returns kInternal; the
// process must then end and read the journal again, never go on.
class StateStore {
 public:
  virtual ~StateStore() = default;
  // The journal's UUID, made once with the journal.
  virtual base::Hash128 journal() const = 0;
  // Becomes the writer: takes the next epoch number (previous + 1, or at least `minimum`) for this lease.
  // kConflict names the holder when another writer's lease has not run out, unless its process is known to have ended.
  virtual base::Result<model::Epoch> acquire(const std::string& holder, base::Duration lease,
                                             std::uint64_t minimum) = 0;
  virtual base::Status renew(base::Duration lease) = 0;  // kStale when another epoch has been acquired
  virtual void release() noexcept = 0;
  // Appends durably (on disk before it returns) if our epoch is still the newest; kStale otherwise, nothing written.
  // kResourceExhausted when the disk is full, nothing written.
  virtual base::Status append(const std::vector<std::string>& payloads) = 0;
  virtual base::Result<std::vector<StoredRecord>> read(std::uint64_t after_sequence) = 0;
  // The newest epoch number acquired by anyone: a change means that we are fenced.
  virtual base::Result<std::uint64_t> watch() = 0;
};

}  // namespace weightbus::store
