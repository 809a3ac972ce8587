// What only a file can suffer: full and failing disks, other programs, newer software, and kill -9 at any moment.
#include "weightbus/store/sqlite/sqlite_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "faulty_vfs.h"
#include "weightbus/base/prng.h"

namespace weightbus::store {
namespace {

using base::ErrorCode;
using base::Millis;
using testing::HasSubstr;

class SqliteStoreTest : public testing::Test {
 protected:
  SqliteStoreTest() {
    auto pattern = (std::filesystem::temp_directory_path() / "weightbus-sqlite-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = (folder_ / "journal.db").string();
  }
  ~SqliteStoreTest() override { std::filesystem::remove_all(folder_); }

  static SqliteOptions faulty() {
    SqliteOptions options;
    options.vfs = FaultyVfs::kName;
    return options;
  }
  // Runs SQL on the file as another program would.
  void run_sql(const std::string& sql) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  std::string file_bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t record_count() const { return SqliteStore::open(path_).value()->read(0)->size(); }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(SqliteStoreTest, EveryAppendIsSyncedBeforeItReturns) {
  FaultyVfs vfs;
  auto store = SqliteStore::open(path_, faulty()).value();
  ASSERT_TRUE(store->acquire("a", Millis(1000), 0));
  for (int i = 0; i < 5; ++i) {
    const auto before = vfs.syncs;
    ASSERT_TRUE(store->append({"x"}));
    EXPECT_GT(vfs.syncs, before);
  }
  const auto before = vfs.syncs;
  ASSERT_TRUE(store->renew(Millis(1000)));
  EXPECT_EQ(vfs.syncs, before);  // only decisions wait for the disk
  ASSERT_TRUE(store->append({"x"}));
  EXPECT_GT(vfs.syncs, before);
}

TEST_F(SqliteStoreTest, AFailedSyncIsUnknownAndEndsTheStore) {
  FaultyVfs vfs;
  auto store = SqliteStore::open(path_, faulty()).value();
  ASSERT_TRUE(store->acquire("a", Millis(1000), 0));
  ASSERT_TRUE(store->append({"sure"}));
  vfs.syncs_left = 0;
  const auto appended = store->append({"perhaps"});
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().code, ErrorCode::kInternal);
  // Even if the disk recovers: what this process believes of the file may be wrong.
  vfs.syncs_left = FaultyVfs::kNever;
  EXPECT_EQ(store->append({"more"}).error().code, ErrorCode::kInternal);
  EXPECT_EQ(store->renew(Millis(1000)).error().code, ErrorCode::kInternal);
  EXPECT_EQ(store->acquire("a", Millis(1000), 0).error().code, ErrorCode::kInternal);
  EXPECT_EQ(store->read(0).error().code, ErrorCode::kInternal);
  EXPECT_EQ(store->watch().error().code, ErrorCode::kInternal);
  store.reset();

  auto again = SqliteStore::open(path_).value();
  const auto records = again->read(0).value();
  ASSERT_GE(records.size(), 1U);
  ASSERT_LE(records.size(), 2U);
  EXPECT_EQ(records[0].payload, "sure");
  ASSERT_TRUE(again->acquire("b", Millis(1000), 0));
  EXPECT_TRUE(again->append({"goes on"}));
}

TEST_F(SqliteStoreTest, AFailedWriteIsUnknownAndNeverHalf) {
  for (std::int64_t at = 0; at < 8; ++at) {
    FaultyVfs vfs;
    const auto before = std::filesystem::exists(path_) ? record_count() : 0;
    auto store = SqliteStore::open(path_, faulty()).value();
    ASSERT_TRUE(store->acquire("a", Millis(1000), 0));
    vfs.writes_left = at;
    const auto appended = store->append({std::string(10000, 'x'), std::string(10000, 'y')});
    if (!appended) {
      EXPECT_EQ(appended.error().code, ErrorCode::kInternal) << at;
    }
    store.reset();
    vfs.writes_left = FaultyVfs::kNever;
    const auto after = record_count();
    if (appended) {
      EXPECT_EQ(after, before + 2);
    } else {
      EXPECT_THAT(after, testing::AnyOf(before, before + 2)) << at;
    }
  }
}

TEST_F(SqliteStoreTest, AFullDiskWritesNothingAndLaterAppendsWork) {
  FaultyVfs vfs;
  auto store = SqliteStore::open(path_, faulty()).value();
  ASSERT_TRUE(store->acquire("a", Millis(1000), 0));
  ASSERT_TRUE(store->append({"kept"}));
  int refused = 0;
  for (std::int64_t at = 0; at < 12; ++at) {
    const auto before = store->read(0)->size();
    vfs.disk_full_after = at;
    const auto appended = store->append({std::string(10000, 'x'), std::string(10000, 'y')});
    vfs.disk_full_after = FaultyVfs::kNever;
    if (appended) {
      EXPECT_EQ(store->read(0)->size(), before + 2);
      continue;
    }
    ++refused;
    EXPECT_EQ(appended.error().code, ErrorCode::kResourceExhausted) << at << ": " << appended.error().message;
    EXPECT_THAT(appended.error().message, HasSubstr(path_));
    EXPECT_EQ(store->read(0)->size(), before);
    ASSERT_TRUE(store->append({"after"})) << at;
    EXPECT_EQ(store->read(0)->size(), before + 1);
  }
  EXPECT_GE(refused, 5);
  const auto records = store->read(0)->size();
  store.reset();
  EXPECT_EQ(record_count(), records);
}

TEST_F(SqliteStoreTest, AFullDiskAtTheFirstStartLeavesNoHalfJournal) {
  {
    FaultyVfs vfs;
    vfs.disk_full_after = 1;
    const auto store = SqliteStore::open(path_, faulty());
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, ErrorCode::kResourceExhausted) << store.error().message;
  }
  auto store = SqliteStore::open(path_);
  ASSERT_TRUE(store) << store.error().message;
  ASSERT_TRUE((*store)->acquire("a", Millis(1000), 0));
  EXPECT_TRUE((*store)->append({"x"}));
}

TEST_F(SqliteStoreTest, ANewerJournalIsRefusedAndNotTouched) {
  {
    auto store = SqliteStore::open(path_).value();
    ASSERT_TRUE(store->acquire("a", Millis(1000), 0));
    ASSERT_TRUE(store->append({"x"}));
    store->release();
  }
  run_sql("PRAGMA user_version=" + std::to_string(kStoreRevision + 1));
  const auto before = file_bytes();
  const auto store = SqliteStore::open(path_);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(store.error().message, HasSubstr("newer"));
  EXPECT_EQ(file_bytes(), before);
}

TEST_F(SqliteStoreTest, OtherFilesAreRefusedAndNotTouched) {
  run_sql("CREATE TABLE mine (x)");
  auto before = file_bytes();
  EXPECT_EQ(SqliteStore::open(path_).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(file_bytes(), before);

  std::ofstream(path_, std::ios::trunc) << std::string(5000, 'z');
  before = file_bytes();
  EXPECT_EQ(SqliteStore::open(path_).error().code, ErrorCode::kCorrupted);
  EXPECT_EQ(file_bytes(), before);
  EXPECT_EQ(SqliteStore::open((folder_ / "no" / "such" / "folder").string()).error().code, ErrorCode::kNotFound);
}

TEST_F(SqliteStoreTest, DamageIsFound) {
  {
    auto store = SqliteStore::open(path_).value();
    ASSERT_TRUE(store->acquire("a", Millis(1000), 0));
    ASSERT_TRUE(store->append({"one", "two", "three"}));
  }
  run_sql("UPDATE records SET payload = 'twO' WHERE sequence = 2");
  {
    const auto records = SqliteStore::open(path_).value()->read(0);
    ASSERT_FALSE(records);
    EXPECT_EQ(records.error().code, ErrorCode::kCorrupted);
    EXPECT_THAT(records.error().message, HasSubstr("record 2"));
  }
  run_sql("DELETE FROM records WHERE sequence = 2");
  EXPECT_EQ(SqliteStore::open(path_).error().code, ErrorCode::kCorrupted);
}

TEST_F(SqliteStoreTest, AFileThatAnotherProcessHoldsIsUnavailable) {
  SqliteOptions options;
  options.busy_timeout = base::Duration::zero();
  auto store = SqliteStore::open(path_, options).value();
  ASSERT_TRUE(store->acquire("a", Millis(1000), 0));
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  const auto appended = store->append({"x"});
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(appended.error().message, HasSubstr("another process"));
  ASSERT_EQ(sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(other);
  ASSERT_TRUE(store->append({"x"}));
  EXPECT_EQ(store->read(0)->size(), 1U);
}

TEST_F(SqliteStoreTest, LinksLeadToTheSameLease) {
  auto first = SqliteStore::open(path_).value();
  ASSERT_TRUE(first->acquire("a", Millis(100000), 0));
  const auto link = folder_ / "link.db";
  std::filesystem::create_symlink(path_, link);
  auto second = SqliteStore::open(link.string()).value();
  EXPECT_EQ(second->journal(), first->journal());
  EXPECT_EQ(second->acquire("b", Millis(1000), 0).error().code, ErrorCode::kConflict);
}

std::string payload_of(std::uint64_t index) {
  return std::to_string(index) + ":" + std::string(index * 37 % 9000, static_cast<char>('a' + index % 26));
}

// The child's work: append groups of three records, and say on the pipe how many are durable.
[[noreturn]] void append_for_ever(const std::string& path, int pipe) {
  auto store = SqliteStore::open(path);
  if (!store || !(*store)->acquire("writer", std::chrono::hours(1), 0)) _exit(3);
  std::uint64_t count = (*store)->read(0)->size();
  while (true) {
    std::vector<std::string> group;
    for (int i = 0; i < 3; ++i)
      group.push_back(payload_of(++count));
    if (!(*store)->append(group)) _exit(4);
    if (::write(pipe, &count, sizeof count) != sizeof count) _exit(5);
  }
}

TEST_F(SqliteStoreTest, KillAtAnyWriteLosesNothingThatWasAcknowledged) {
  base::Prng prng(20260101);
  std::uint64_t previous_epoch = 0;
  std::uint64_t acknowledged = 0;
  for (int round = 0; round < 40; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) append_for_ever(path_, ends[1]);
    ::close(ends[1]);
    // Kill after some acknowledgements and then a little more work, so that the moment falls anywhere in an append.
    // In every fourth round without waiting for any: while the journal is opened or made.
    const auto wanted = round % 4 == 0 ? 0 : 1 + prng.below(4);
    std::uint64_t count = 0;
    for (std::uint64_t i = 0; i < wanted; ++i) {
      ASSERT_EQ(::read(ends[0], &count, sizeof count), static_cast<ssize_t>(sizeof count));
      acknowledged = count;
    }
    volatile std::uint64_t spin = prng.below(round % 4 == 0 ? 20'000'000 : 400'000);
    while (spin > 0)
      spin = spin - 1;
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself: " << WEXITSTATUS(status);
    while (::read(ends[0], &count, sizeof count) == static_cast<ssize_t>(sizeof count))
      acknowledged = count;
    ::close(ends[0]);

    auto store = SqliteStore::open(path_);
    ASSERT_TRUE(store) << store.error().message;
    const auto records = (*store)->read(0).value();
    // Everything acknowledged, at most one group more, no half group, no gap, no damage.
    ASSERT_GE(records.size(), acknowledged);
    ASSERT_LE(records.size(), acknowledged + 3);
    ASSERT_EQ(records.size() % 3, 0U);
    for (std::size_t i = 0; i < records.size(); ++i) {
      ASSERT_EQ(records[i].sequence, i + 1);
      ASSERT_EQ(records[i].payload, payload_of(i + 1));
    }
    acknowledged = records.size();
    // The dead writer's lease of an hour does not keep its successor out.
    const auto epoch = (*store)->acquire("checker", Millis(1000), 0);
    ASSERT_TRUE(epoch) << epoch.error().message;
    ASSERT_GT(epoch->number, previous_epoch);
    previous_epoch = epoch->number;
    (*store)->release();
  }
  EXPECT_GT(acknowledged, 60U);
}

}  // namespace
}  // namespace weightbus::store
