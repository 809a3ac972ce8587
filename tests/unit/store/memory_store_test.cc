#include "weightbus/store/memory/memory_store.h"

#include <gtest/gtest.h>

namespace weightbus::store {
namespace {

using base::ErrorCode;
using base::Millis;
using Fault = MemoryJournal::Fault;

class MemoryStoreTest : public testing::Test {
 protected:
  std::unique_ptr<MemoryStore> writer() {
    auto store = std::make_unique<MemoryStore>(journal_, [] { return std::int64_t{0}; });
    EXPECT_TRUE(store->acquire("w", Millis(1000), 0));
    return store;
  }
  std::shared_ptr<MemoryJournal> journal_ = std::make_shared<MemoryJournal>(base::Hash128{3, 4});
};

TEST_F(MemoryStoreTest, AFullDiskWritesNothingOnce) {
  auto store = writer();
  journal_->fail_next_append(Fault::kDiskFull);
  EXPECT_EQ(store->append({"x"}).error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(journal_->records().empty());
  EXPECT_TRUE(store->append({"y"}));
  EXPECT_EQ(journal_->records().size(), 1U);
}

TEST_F(MemoryStoreTest, AnUnknownOutcomeMayBeEitherAndEndsTheStore) {
  for (const auto& [fault, written] : {std::pair(Fault::kUnknownLost, 0U), std::pair(Fault::kUnknownWritten, 1U)}) {
    auto store = writer();
    const auto before = journal_->records().size();
    journal_->fail_next_append(fault);
    EXPECT_EQ(store->append({"x"}).error().code, ErrorCode::kInternal);
    EXPECT_EQ(journal_->records().size(), before + written);
    EXPECT_EQ(store->append({"y"}).error().code, ErrorCode::kInternal);
    EXPECT_EQ(store->read(0).error().code, ErrorCode::kInternal);
    EXPECT_EQ(store->renew(Millis(1)).error().code, ErrorCode::kInternal);
    store.reset();
    store = writer();  // the process that reads it again
    EXPECT_EQ(store->read(0)->size(), before + written);
    EXPECT_TRUE(store->append({"z"}));
  }
}

TEST_F(MemoryStoreTest, AFencedAppendDoesNotUseUpAFault) {
  auto stale = std::make_unique<MemoryStore>(journal_, [] { return std::int64_t{0}; });
  auto store = writer();
  journal_->fail_next_append(Fault::kDiskFull);
  EXPECT_EQ(stale->append({"x"}).error().code, ErrorCode::kStale);
  EXPECT_EQ(store->append({"x"}).error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace weightbus::store
