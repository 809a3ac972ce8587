// What every StateStore promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>

#include "weightbus/store/memory/memory_store.h"
#include "weightbus/store/sqlite/sqlite_store.h"

namespace weightbus::store {
namespace {

using base::ErrorCode;
using base::Millis;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// One journal that any number of stores are opened on, and the wall clock that they share.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<StateStore> open() = 0;
  std::int64_t now_ms = 1'800'000'000'000;
};

class MemoryBackend final : public Backend {
 public:
  std::unique_ptr<StateStore> open() override {
    return std::make_unique<MemoryStore>(journal_, [this] { return now_ms; });
  }

 private:
  std::shared_ptr<MemoryJournal> journal_ = std::make_shared<MemoryJournal>(base::Hash128{1, 2});
};

class SqliteBackend final : public Backend {
 public:
  SqliteBackend() {
    auto pattern = (std::filesystem::temp_directory_path() / "weightbus-store-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~SqliteBackend() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<StateStore> open() override {
    SqliteOptions options;
    options.unix_ms = [this] { return now_ms; };
    return SqliteStore::open((folder_ / "journal.db").string(), std::move(options)).value();
  }

 private:
  std::filesystem::path folder_;
};

using MakeBackend = std::function<std::unique_ptr<Backend>()>;

class StoreConformance : public testing::TestWithParam<std::pair<const char*, MakeBackend>> {
 protected:
  void SetUp() override { backend_ = GetParam().second(); }
  std::vector<std::string> payloads(StateStore& store, std::uint64_t after = 0) {
    std::vector<std::string> result;
    std::uint64_t expected = after;
    auto records = store.read(after).value();
    for (auto& record : records) {
      EXPECT_EQ(record.sequence, ++expected);
      result.push_back(std::move(record.payload));
    }
    return result;
  }
  std::unique_ptr<Backend> backend_;
};

TEST_P(StoreConformance, TheJournalKeepsItsUuid) {
  auto first = backend_->open();
  const auto uuid = first->journal();
  EXPECT_NE(uuid, base::Hash128{});
  first.reset();
  EXPECT_EQ(backend_->open()->journal(), uuid);
}

TEST_P(StoreConformance, EpochsGrowByOneOrToTheMinimum) {
  auto store = backend_->open();
  EXPECT_EQ(store->watch().value(), 0U);
  EXPECT_EQ(store->acquire("a", Millis(1000), 0)->number, 1U);
  EXPECT_EQ(store->acquire("a", Millis(1000), 0)->number, 2U);
  const auto epoch = store->acquire("a", Millis(1000), 100);
  ASSERT_TRUE(epoch);
  EXPECT_EQ(epoch->number, 100U);
  EXPECT_EQ(epoch->journal, store->journal());
  EXPECT_EQ(store->acquire("a", Millis(1000), 5)->number, 101U);
  EXPECT_EQ(store->watch().value(), 101U);
  EXPECT_EQ(store->acquire("a", Millis(1000), ~std::uint64_t{0}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(store->watch().value(), 101U);
  EXPECT_TRUE(store->append({"still ours"}));
}

TEST_P(StoreConformance, RecordsAreNumberedWithoutGapsAndOutliveTheStore) {
  const std::string binary("\0\xff'; DROP TABLE records; --", 27);
  auto store = backend_->open();
  ASSERT_TRUE(store->acquire("a", Millis(1000), 0));
  EXPECT_THAT(payloads(*store), IsEmpty());
  ASSERT_TRUE(store->append({"one"}));
  ASSERT_TRUE(store->append({}));
  ASSERT_TRUE(store->append({"", binary, std::string(100000, 'x')}));
  store.reset();
  store = backend_->open();
  EXPECT_THAT(payloads(*store), ElementsAre("one", "", binary, std::string(100000, 'x')));
  EXPECT_THAT(payloads(*store, 2), ElementsAre(binary, std::string(100000, 'x')));
  EXPECT_THAT(payloads(*store, 4), IsEmpty());
  EXPECT_THAT(payloads(*store, ~std::uint64_t{0}), IsEmpty());
  ASSERT_TRUE(store->acquire("a", Millis(1000), 0));
  ASSERT_TRUE(store->append({"five"}));
  EXPECT_THAT(payloads(*store, 4), ElementsAre("five"));
}

TEST_P(StoreConformance, NobodyWritesWithoutAnEpoch) {
  auto store = backend_->open();
  EXPECT_EQ(store->append({"x"}).error().code, ErrorCode::kStale);
  EXPECT_EQ(store->renew(Millis(1000)).error().code, ErrorCode::kStale);
  store->release();
  EXPECT_THAT(payloads(*store), IsEmpty());
}

TEST_P(StoreConformance, ASecondWriterIsToldWhoHoldsTheJournal) {
  auto first = backend_->open();
  auto second = backend_->open();
  ASSERT_TRUE(first->acquire("host-a:17", Millis(1000), 0));
  const auto refused = second->acquire("host-b:18", Millis(1000), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_THAT(refused.error().message, HasSubstr("host-a:17"));
  // The same name is not the same process: two coordinators may share a configuration.
  EXPECT_EQ(second->acquire("host-a:17", Millis(1000), 0).error().code, ErrorCode::kConflict);
  EXPECT_EQ(second->watch().value(), 1U);
  EXPECT_TRUE(first->append({"x"}));
  EXPECT_THAT(payloads(*second), ElementsAre("x"));
}

TEST_P(StoreConformance, AnExpiredLeaseIsTakenOverAndItsHolderFenced) {
  auto first = backend_->open();
  auto second = backend_->open();
  ASSERT_TRUE(first->acquire("a", Millis(1000), 0));
  ASSERT_TRUE(first->append({"by a"}));
  backend_->now_ms += 999;
  EXPECT_EQ(second->acquire("b", Millis(1000), 0).error().code, ErrorCode::kConflict);
  backend_->now_ms += 1;
  EXPECT_EQ(second->acquire("b", Millis(1000), 0)->number, 2U);
  EXPECT_EQ(first->watch().value(), 2U);
  EXPECT_EQ(first->append({"late"}).error().code, ErrorCode::kStale);
  EXPECT_EQ(first->renew(Millis(1000)).error().code, ErrorCode::kStale);
  first->release();  // not its lease any more
  ASSERT_TRUE(second->append({"by b"}));
  EXPECT_THAT(payloads(*first), ElementsAre("by a", "by b"));
  EXPECT_EQ(first->acquire("a", Millis(1000), 0).error().code, ErrorCode::kConflict);
}

TEST_P(StoreConformance, ARenewedLeaseHolds) {
  auto first = backend_->open();
  auto second = backend_->open();
  ASSERT_TRUE(first->acquire("a", Millis(1000), 0));
  for (int i = 0; i < 5; ++i) {
    backend_->now_ms += 900;
    ASSERT_TRUE(first->renew(Millis(1000)));
  }
  EXPECT_EQ(second->acquire("b", Millis(1000), 0).error().code, ErrorCode::kConflict);
  // Late, and nobody took over meanwhile: still ours.
  backend_->now_ms += 5000;
  EXPECT_TRUE(first->renew(Millis(1000)));
  EXPECT_TRUE(first->append({"x"}));
}

TEST_P(StoreConformance, AReleasedLeaseIsFreeAtOnce) {
  auto first = backend_->open();
  auto second = backend_->open();
  ASSERT_TRUE(first->acquire("a", Millis(100000), 0));
  first->release();
  EXPECT_EQ(first->append({"x"}).error().code, ErrorCode::kStale);
  EXPECT_EQ(second->acquire("b", Millis(1000), 0)->number, 2U);
  EXPECT_TRUE(second->append({"y"}));
}

TEST_P(StoreConformance, ALeaseEndsWithItsProcess) {
  auto first = backend_->open();
  ASSERT_TRUE(first->acquire("a", Millis(100000), 0));
  ASSERT_TRUE(first->append({"x"}));
  first.reset();
  auto second = backend_->open();
  EXPECT_EQ(second->acquire("a", Millis(1000), 0)->number, 2U);
  EXPECT_THAT(payloads(*second), ElementsAre("x"));
}

TEST_P(StoreConformance, TheEndOfAFencedWriterFreesNothing) {
  auto first = backend_->open();
  auto second = backend_->open();
  auto third = backend_->open();
  ASSERT_TRUE(first->acquire("a", Millis(1000), 0));
  backend_->now_ms += 2000;
  ASSERT_TRUE(second->acquire("b", Millis(1000), 0));
  first.reset();
  EXPECT_EQ(third->acquire("c", Millis(1000), 0).error().code, ErrorCode::kConflict);
}

TEST_P(StoreConformance, AnEndlessLeaseIsNoOverflow) {
  auto first = backend_->open();
  auto second = backend_->open();
  ASSERT_TRUE(first->acquire("a", base::Duration::max(), 0));
  backend_->now_ms += 1000;
  EXPECT_EQ(second->acquire("b", Millis(1000), 0).error().code, ErrorCode::kConflict);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, StoreConformance,
    testing::Values(std::pair<const char*, MakeBackend>("memory", [] { return std::make_unique<MemoryBackend>(); }),
                    std::pair<const char*, MakeBackend>("sqlite", [] { return std::make_unique<SqliteBackend>(); })),
    [](const auto& param) { return std::string(param.param.first); });

}  // namespace
}  // namespace weightbus::store
