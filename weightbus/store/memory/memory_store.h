// The contract of StateStore in memory, for tests and the simulator, with faults on request.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weightbus/store/state_store.h"

namespace weightbus::store {

// The "disk": outlives the stores that are opened on it, as a file outlives processes. Not thread safe.
class MemoryJournal {
 public:
  enum class Fault : std::uint8_t {
    kDiskFull,        // kResourceExhausted, nothing written
    kUnknownLost,     // kInternal, nothing written
    kUnknownWritten,  // kInternal, yet everything is durable
  };

  explicit MemoryJournal(base::Hash128 uuid) : uuid_(uuid) {}
  // The next append that would succeed fails in this way.
  void fail_next_append(Fault fault) { fault_ = fault; }
  const std::vector<StoredRecord>& records() const noexcept { return records_; }

 private:
  friend class MemoryStore;
  base::Hash128 uuid_;
  std::vector<StoredRecord> records_;
  std::uint64_t epoch_ = 0;
  std::string holder_;
  std::int64_t expires_unix_ms_ = 0;
  bool writer_lives_ = false;
  std::optional<Fault> fault_;
};

// One process's view of a journal; destroying it without release() is that process's death.
class MemoryStore final : public StateStore {
 public:
  // `unix_ms`: the wall clock for lease expiry.
  MemoryStore(std::shared_ptr<MemoryJournal> journal, std::function<std::int64_t()> unix_ms);
  ~MemoryStore() override;
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

  base::Hash128 journal() const override { return journal_->uuid_; }
  base::Result<model::Epoch> acquire(const std::string& holder, base::Duration lease, std::uint64_t minimum) override;
  base::Status renew(base::Duration lease) override;
  void release() noexcept override;
  base::Status append(const std::vector<std::string>& payloads) override;
  base::Result<std::vector<StoredRecord>> read(std::uint64_t after_sequence) override;
  base::Result<std::uint64_t> watch() override;

 private:
  bool is_ours() const noexcept { return epoch_ && *epoch_ == journal_->epoch_; }
  base::Status check_ours() const;
  base::Status usable() const;

  std::shared_ptr<MemoryJournal> journal_;
  std::function<std::int64_t()> unix_ms_;
  std::optional<std::uint64_t> epoch_;
  bool unknown_ = false;
};

}  // namespace weightbus::store
