#include "weightbus/store/memory/memory_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "weightbus/base/assert.h"
#include "weightbus/base/checked_math.h"

namespace weightbus::store {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::Status;

namespace {

std::int64_t expiry(std::int64_t now_ms, base::Duration lease) {
  const auto milliseconds = std::max<std::int64_t>(lease / base::Millis(1), 0);
  return base::checked_add(now_ms, milliseconds).value_or(std::numeric_limits<std::int64_t>::max());
}

}  // namespace

MemoryStore::MemoryStore(std::shared_ptr<MemoryJournal> journal, std::function<std::int64_t()> unix_ms)
    : journal_(std::move(journal)), unix_ms_(std::move(unix_ms)) {}

MemoryStore::~MemoryStore() {
  if (is_ours()) journal_->writer_lives_ = false;
}

Status MemoryStore::usable() const {
  if (!unknown_) return {};
  return fail(ErrorCode::kInternal, "the journal cannot be used before it is read again");
}

Status MemoryStore::check_ours() const {
  if (!epoch_) return fail(ErrorCode::kStale, "this process holds no epoch of the journal");
  if (is_ours()) return {};
  return fail(ErrorCode::kStale, "epoch {} of the journal is over: {} took epoch {}", *epoch_, journal_->holder_,
              journal_->epoch_);
}

Result<model::Epoch> MemoryStore::acquire(const std::string& holder, base::Duration lease, std::uint64_t minimum) {
  WB_ASSERT(!holder.empty(), "an empty holder means that nobody holds the journal");
  WB_TRY(usable());
  auto& journal = *journal_;
  const auto now = unix_ms_();
  if (!is_ours() && !journal.holder_.empty() && journal.writer_lives_ && journal.expires_unix_ms_ > now) {
    return fail(ErrorCode::kConflict, "the journal is held by {} (epoch {}) for another {} ms; stop it first",
                journal.holder_, journal.epoch_, journal.expires_unix_ms_ - now);
  }
  const auto next = std::max(journal.epoch_ + 1, minimum);
  if (next >= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return fail(ErrorCode::kInvalidArgument, "epoch {} is out of range", next);
  }
  journal.epoch_ = next;
  journal.holder_ = holder;
  journal.expires_unix_ms_ = expiry(now, lease);
  journal.writer_lives_ = true;
  epoch_ = next;
  return model::Epoch{journal.uuid_, next};
}

Status MemoryStore::renew(base::Duration lease) {
  WB_TRY(usable());
  WB_TRY(check_ours());
  journal_->expires_unix_ms_ = expiry(unix_ms_(), lease);
  return {};
}

void MemoryStore::release() noexcept {
  if (is_ours()) {
    journal_->holder_.clear();
    journal_->expires_unix_ms_ = 0;
    journal_->writer_lives_ = false;
  }
  epoch_.reset();
}

Status MemoryStore::append(const std::vector<std::string>& payloads) {
  WB_TRY(usable());
  WB_TRY(check_ours());
  const auto fault = std::exchange(journal_->fault_, std::nullopt);
  if (fault == MemoryJournal::Fault::kDiskFull) {
    return fail(ErrorCode::kResourceExhausted, "cannot write the journal: the disk is full");
  }
  if (fault != MemoryJournal::Fault::kUnknownLost) {
    for (const auto& payload : payloads)
      journal_->records_.push_back({journal_->records_.size() + 1, payload});
  }
  if (!fault) return {};
  unknown_ = true;
  return fail(ErrorCode::kInternal, "cannot tell whether the journal was written");
}

Result<std::vector<StoredRecord>> MemoryStore::read(std::uint64_t after_sequence) {
  WB_TRY(usable());
  const auto& records = journal_->records_;
  const auto skip = std::min<std::uint64_t>(after_sequence, records.size());
  return std::vector<StoredRecord>(records.begin() + static_cast<std::ptrdiff_t>(skip), records.end());
}

Result<std::uint64_t> MemoryStore::watch() {
  WB_TRY(usable());
  return journal_->epoch_;
}

}  // namespace weightbus::store
