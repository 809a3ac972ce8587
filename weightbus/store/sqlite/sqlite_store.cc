#include "weightbus/store/sqlite/sqlite_store.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>

#include "weightbus/base/assert.h"
#include "weightbus/store/sqlite/database.h"
#include "weightbus/store/sqlite/writer_lock.h"

namespace weightbus::store {

using base::Error;
using base::ErrorCode;
using base::fail;
using base::Result;
using base::Status;

namespace {

constexpr std::int64_t kApplicationId = 0x57427573;  // "WBus"
constexpr std::uint64_t kEpochMax = std::numeric_limits<std::int64_t>::max() - 1;

constexpr const char* kSchema =
    "CREATE TABLE journal (uuid TEXT NOT NULL);"
    "CREATE TABLE lease (epoch INTEGER NOT NULL, holder TEXT NOT NULL, expires_unix_ms INTEGER NOT NULL);"
    "INSERT INTO lease VALUES (0, '', 0);"
    // `hash` is the payload's, so that a damaged page is found however plausible it reads.
    "CREATE TABLE records (sequence INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, payload BLOB NOT NULL,"
    " hash TEXT NOT NULL);";

std::int64_t system_unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Result<base::Hash128> random_uuid() {
  base::Hash128 uuid;
  static_assert(sizeof uuid == 16);
  if (::getrandom(&uuid, sizeof uuid, 0) != sizeof uuid) {
    return fail(ErrorCode::kInternal, "cannot make a journal UUID: {}", std::strerror(errno));
  }
  return uuid;
}

std::int64_t expiry(std::int64_t now_ms, base::Duration lease) {
  const auto milliseconds = std::max<std::int64_t>(lease / base::Millis(1), 0);
  return now_ms > std::numeric_limits<std::int64_t>::max() - milliseconds ? std::numeric_limits<std::int64_t>::max()
                                                                          : now_ms + milliseconds;
}

// A new file's name is durable only once its folder is.
Status sync_folder(const std::string& path) {
  auto folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int rc = fd < 0 ? -1 : ::fsync(fd);
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (rc == 0) return {};
  return fail(ErrorCode::kInternal, "cannot make the journal {} durable: {}", path, std::strerror(error));
}

struct Lease {
  std::uint64_t epoch = 0;
  std::string holder;
  std::int64_t expires_unix_ms = 0;
};

}  // namespace

struct SqliteStore::Impl {
  Status open(const std::string& given_path);
  Status check_revision();
  Status create();
  Result<bool> make_tables();
  Status load();
  Result<Lease> lease();
  // Runs `body` in one write transaction. `body` fails before it has changed anything, or by a SQLite error.
  template <class Body>
  Status transaction(Body body);
  Status check_ours();
  Status usable() const;
  Status set_lease(std::uint64_t number, const std::string& holder, std::int64_t expires_unix_ms);

  SqliteOptions options;
  Database database;
  WriterLock lock;
  base::Hash128 uuid;
  std::optional<std::uint64_t> epoch;  // ours
  std::optional<Error> unknown;        // why this store cannot be used any more
};

Status SqliteStore::Impl::open(const std::string& given_path) {
  // Through every link, so that all who open this journal share one lock file.
  std::error_code error;
  auto path = std::filesystem::weakly_canonical(given_path, error).string();
  if (error) path = given_path;
  WB_TRY(database.open(path, options.vfs, options.busy_timeout));
  // Until the revision is known, closing must not move the WAL's pages into the file.
  sqlite3_db_config(database.handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  WB_TRY(check_revision());
  WB_ASSIGN(lock, WriterLock::open(path + ".lock"));
  WB_TRY(database.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA trusted_schema=OFF"));
  WB_TRY(create());
  sqlite3_db_config(database.handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  return load();
}

Status SqliteStore::Impl::check_revision() {
  WB_ASSIGN(const auto revision, database.integer("PRAGMA user_version"));
  WB_ASSIGN(const auto application, database.integer("PRAGMA application_id"));
  WB_ASSIGN(const auto tables, database.integer("SELECT count(*) FROM sqlite_schema"));
  if (application != kApplicationId && (application != 0 || revision != 0 || tables != 0)) {
    return fail(ErrorCode::kInvalidArgument, "{} is another program's database, no Weightbus journal", database.path());
  }
  if (revision > kStoreRevision) {
    return fail(ErrorCode::kUnsupported,
                "the journal {} has revision {}, and this software knows up to {}: start the newer Weightbus that "
                "wrote it; nothing was changed",
                database.path(), revision, kStoreRevision);
  }
  return {};
}

Result<bool> SqliteStore::Impl::make_tables() {
  // Again, now under the write lock: another process may have made the journal in between.
  WB_TRY(check_revision());
  WB_ASSIGN(const auto tables, database.integer("SELECT count(*) FROM sqlite_schema"));
  if (tables != 0) return false;
  WB_ASSIGN(const auto fresh, random_uuid());
  WB_TRY(database.execute(kSchema));
  const auto pragmas = fmt::format("PRAGMA application_id={}; PRAGMA user_version={};", kApplicationId, kStoreRevision);
  WB_TRY(database.execute(pragmas.c_str()));
  Statement insert(database, "INSERT INTO journal VALUES (?)");
  const auto text = fresh.to_string();
  insert.bind_text(1, text);
  WB_TRY(insert.step());
  return true;
}

Status SqliteStore::Impl::create() {
  bool made = false;
  auto status = transaction([&]() -> Status {
    WB_ASSIGN(made, make_tables());
    return {};
  });
  if (!status || !made) return status;
  return sync_folder(database.path());
}

Status SqliteStore::Impl::load() {
  Statement select(database, "SELECT uuid FROM journal");
  WB_ASSIGN(const bool row, select.step());
  const auto parsed = row ? base::Hash128::parse(select.bytes(0)) : std::nullopt;
  if (!parsed) return fail(ErrorCode::kCorrupted, "the journal {} has no UUID", database.path());
  uuid = *parsed;
  WB_TRY(lease());
  WB_ASSIGN(const auto gaps, database.integer("SELECT coalesce(max(sequence), 0) - count(*) FROM records"));
  if (gaps != 0) {
    return fail(ErrorCode::kCorrupted, "the journal {} misses records: its numbers have gaps", database.path());
  }
  return {};
}

Result<Lease> SqliteStore::Impl::lease() {
  Statement select(database, "SELECT epoch, holder, expires_unix_ms FROM lease");
  WB_ASSIGN(const bool row, select.step());
  if (!row || select.integer(0) < 0) {
    return fail(ErrorCode::kCorrupted, "the journal {} has no valid lease row", database.path());
  }
  return Lease{static_cast<std::uint64_t>(select.integer(0)), select.bytes(1), select.integer(2)};
}

Status SqliteStore::Impl::usable() const {
  if (!unknown) return {};
  return fail(ErrorCode::kInternal, "the journal {} cannot be used before it is read again, after: {}", database.path(),
              unknown->message);
}

template <class Body>
Status SqliteStore::Impl::transaction(Body body) {
  WB_TRY(usable());
  WB_TRY(database.execute("BEGIN IMMEDIATE"));
  auto status = body();
  if (status) {
    status = database.execute("COMMIT");
    if (status) return status;
    // A full disk is told before the last page is written. After anything else, the pages may be on disk or not.
    const bool known = status.error().code == ErrorCode::kResourceExhausted ||
                       (status.error().code == ErrorCode::kUnavailable && database.in_transaction());
    if (!known) {
      status.error().code = ErrorCode::kInternal;
      unknown = status.error();
    }
  }
  if (status.error().code == ErrorCode::kInternal && !unknown) unknown = status.error();
  // Nothing of a transaction without its COMMIT counts, whether or not this succeeds.
  if (database.in_transaction() && !database.execute("ROLLBACK") && !unknown) unknown = status.error();
  return status;
}

Status SqliteStore::Impl::check_ours() {
  if (!epoch) return fail(ErrorCode::kStale, "this process holds no epoch of the journal {}", database.path());
  WB_ASSIGN(const auto current, lease());
  if (current.epoch == *epoch) return {};
  return fail(ErrorCode::kStale, "epoch {} of the journal {} is over: {} took epoch {}", *epoch, database.path(),
              current.holder.empty() ? "another coordinator" : current.holder, current.epoch);
}

Status SqliteStore::Impl::set_lease(std::uint64_t number, const std::string& holder, std::int64_t expires_unix_ms) {
  Statement update(database, "UPDATE lease SET epoch = ?, holder = ?, expires_unix_ms = ?");
  update.bind(1, static_cast<std::int64_t>(number));
  update.bind_text(2, holder);
  update.bind(3, expires_unix_ms);
  WB_TRY(update.step());
  return {};
}

SqliteStore::SqliteStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SqliteStore::~SqliteStore() = default;

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(const std::string& path, SqliteOptions options) {
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  if (!impl->options.unix_ms) impl->options.unix_ms = &system_unix_ms;
  WB_TRY(impl->open(path));
  return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(impl)));
}

base::Hash128 SqliteStore::journal() const { return impl_->uuid; }

Result<model::Epoch> SqliteStore::acquire(const std::string& holder, base::Duration lease, std::uint64_t minimum) {
  WB_ASSERT(!holder.empty(), "an empty holder means that nobody holds the journal");
  auto& impl = *impl_;
  std::uint64_t next = 0;
  auto status = impl.transaction([&]() -> Status {
    WB_ASSIGN(const auto current, impl.lease());
    const auto now = impl.options.unix_ms();
    const bool ours = impl.epoch == current.epoch;
    if (!ours && !current.holder.empty() && current.expires_unix_ms > now &&
        impl.lock.is_held_elsewhere(current.epoch)) {
      return fail(ErrorCode::kConflict, "the journal {} is held by {} (epoch {}) for another {} ms; stop it first",
                  impl.database.path(), current.holder, current.epoch, current.expires_unix_ms - now);
    }
    next = std::max(current.epoch + 1, minimum);
    if (next > kEpochMax) return fail(ErrorCode::kInvalidArgument, "epoch {} is out of range", next);
    // Before the commit: from the moment that others can see the epoch, its writer is seen to live.
    WB_TRY(impl.lock.hold(next));
    return impl.set_lease(next, holder, expiry(now, lease));
  });
  if (!status) {
    if (next != 0 && next <= kEpochMax && !impl.unknown) impl.lock.drop(next);
    return fail(status.error());
  }
  if (impl.epoch) impl.lock.drop(*impl.epoch);
  impl.epoch = next;
  return model::Epoch{impl.uuid, next};
}

Status SqliteStore::renew(base::Duration lease) {
  auto& impl = *impl_;
  WB_TRY(impl.usable());
  // A renewal need not outlive a power cut, and the loop that renews should not wait for the disk.
  WB_TRY(impl.database.execute("PRAGMA synchronous=NORMAL"));
  auto status = impl.transaction([&]() -> Status {
    WB_TRY(impl.check_ours());
    WB_ASSIGN(const auto current, impl.lease());
    return impl.set_lease(current.epoch, current.holder, expiry(impl.options.unix_ms(), lease));
  });
  if (const auto full = impl.database.execute("PRAGMA synchronous=FULL"); !full) {
    impl.unknown = full.error();  // or the next append would not wait for the disk
    return full;
  }
  return status;
}

void SqliteStore::release() noexcept {
  auto& impl = *impl_;
  if (!impl.epoch) return;
  // If this fails, the lease runs out, and the lock below already tells others that its writer is gone.
  [[maybe_unused]] const auto status = impl.transaction([&]() -> Status {
    WB_TRY(impl.check_ours());
    return impl.set_lease(*impl.epoch, "", 0);
  });
  impl.lock.drop(*impl.epoch);
  impl.epoch.reset();
}

Status SqliteStore::append(const std::vector<std::string>& payloads) {
  auto& impl = *impl_;
  return impl.transaction([&]() -> Status {
    WB_TRY(impl.check_ours());
    WB_ASSIGN(auto sequence, impl.database.integer("SELECT coalesce(max(sequence), 0) FROM records"));
    Statement insert(impl.database, "INSERT INTO records VALUES (?, ?, ?, ?)");
    for (const auto& payload : payloads) {
      const auto hash = base::hash128(payload.data(), payload.size()).to_string();
      insert.reset();
      insert.bind(1, ++sequence);
      insert.bind(2, static_cast<std::int64_t>(*impl.epoch));
      insert.bind_blob(3, payload);
      insert.bind_text(4, hash);
      WB_TRY(insert.step());
    }
    return {};
  });
}

Result<std::vector<StoredRecord>> SqliteStore::read(std::uint64_t after_sequence) {
  auto& impl = *impl_;
  WB_TRY(impl.usable());
  std::vector<StoredRecord> records;
  if (after_sequence > kEpochMax) return records;
  Statement select(impl.database, "SELECT sequence, payload, hash FROM records WHERE sequence > ? ORDER BY sequence");
  select.bind(1, static_cast<std::int64_t>(after_sequence));
  while (true) {
    WB_ASSIGN(const bool row, select.step());
    if (!row) return records;
    StoredRecord record{static_cast<std::uint64_t>(select.integer(0)), select.bytes(1)};
    if (base::hash128(record.payload.data(), record.payload.size()).to_string() != select.bytes(2)) {
      return fail(ErrorCode::kCorrupted, "record {} of the journal {} does not match its hash", record.sequence,
                  impl.database.path());
    }
    records.push_back(std::move(record));
  }
}

Result<std::uint64_t> SqliteStore::watch() {
  WB_TRY(impl_->usable());
  WB_ASSIGN(const auto current, impl_->lease());
  return current.epoch;
}

}  // namespace weightbus::store
