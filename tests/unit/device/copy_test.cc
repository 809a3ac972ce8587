#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "tests/unit/device/copy_cases.h"
#include "weightbus/device/host/copy_plan.h"
#include "weightbus/device/host/factory.h"

namespace weightbus::device {
namespace {

using base::ErrorCode;
using ::testing::HasSubstr;
using weightbus::testing::PartBuilder;
using weightbus::testing::random_bytes;
using weightbus::testing::reference_copy;
using weightbus::testing::SinkMemory;

struct Source {
  explicit Source(const PartBuilder& part) {
    for (const auto size : part.from_bytes)
      regions.push_back(random_bytes(size, size + 1));
    for (const auto& region : regions)
      pointers.push_back(region.data());
  }
  std::vector<std::vector<std::byte>> regions;
  std::vector<const std::byte*> pointers;
};

PartBuilder random_part(std::uint64_t seed, int fragments, std::int64_t extent_max) {
  base::Prng prng(seed);
  PartBuilder part("source", "sink");
  part.bucket();
  for (int i = 0; i < fragments; ++i)
    part.random(prng, extent_max);
  return part;
}

TEST(HostCopy, EqualsTheReferenceOnRandomLayouts) {
  const auto device = make_host_device();
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto part = random_part(seed, 8, 7);
    const Source source(part);
    SinkMemory expected(part.to_bytes);
    SinkMemory copied(part.to_bytes);
    SinkMemory unpacked(part.to_bytes);
    reference_copy(part.buckets[0], part.tensors, source.pointers, expected.pointers());
    Control control;
    ASSERT_TRUE(device->copy(part.buckets[0], part.tensors, source.pointers, copied.pointers(), control));
    EXPECT_EQ(control.bytes_done, part.buckets[0].bytes);
    ASSERT_TRUE(copied == expected) << "seed " << seed;

    std::vector<std::byte> packed(part.buckets[0].bytes + 1, std::byte{0x55});
    ASSERT_TRUE(device->pack(part.buckets[0], part.tensors, source.pointers, packed.data()));
    EXPECT_EQ(packed.back(), std::byte{0x55}) << "wrote past the bucket";
    ASSERT_TRUE(device->unpack(part.buckets[0], part.tensors, packed.data(), unpacked.pointers()));
    ASSERT_TRUE(unpacked == expected) << "seed " << seed;
  }
}

TEST(HostCopy, PiecesCutAnywhereAddUpToTheWhole) {
  for (std::uint64_t seed = 1000; seed < 1060; ++seed) {
    const auto part = random_part(seed, 5, 5);
    const Source source(part);
    SinkMemory expected(part.to_bytes);
    SinkMemory copied(part.to_bytes);
    reference_copy(part.buckets[0], part.tensors, source.pointers, expected.pointers());
    const auto ops = make_copy_ops(part.buckets[0], part.tensors, CopyKind::kDirect);
    ASSERT_TRUE(ops);
    base::Prng prng(seed);
    const auto to = copied.pointers();
    for (std::uint64_t at = 0; at < part.buckets[0].bytes;) {
      const auto end = at + 1 + prng.below(40);
      copy_piece(*ops, {source.pointers}, {to}, at, end);
      at = end;
    }
    ASSERT_TRUE(copied == expected) << "seed " << seed;
  }
}

TEST(HostCopy, ThreadsShareOneCopy) {
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({3, 1 << 20});
  part.fragment({1 << 10, 1 << 10}, model::DType::kF32, model::DType::kBF16, model::Cast::kF32ToBF16, {{0, 1}, 0},
                {{1, 0}, 0});
  part.dense({1 << 20}, model::DType::kF64);
  const Source source(part);
  SinkMemory expected(part.to_bytes);
  SinkMemory copied(part.to_bytes);
  reference_copy(part.buckets[0], part.tensors, source.pointers, expected.pointers());
  Control control;
  ASSERT_TRUE(make_host_device({.threads = 3})
                  ->copy(part.buckets[0], part.tensors, source.pointers, copied.pointers(), control));
  EXPECT_EQ(control.bytes_done, part.buckets[0].bytes);
  EXPECT_TRUE(copied == expected);
}

TEST(HostCopy, ContiguousDimensionsBecomeOneRun) {
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({4, 1, 8, 16});
  part.dense({});
  part.fragment({6, 8}, model::DType::kU8, model::DType::kU8, model::Cast::kNone, {{0, 1}, 0}, {{1, 0}, 0});
  const auto ops = make_copy_ops(part.buckets[0], part.tensors, CopyKind::kDirect);
  ASSERT_TRUE(ops);
  ASSERT_EQ(ops->size(), 3U);
  EXPECT_TRUE((*ops)[0].is_run());
  EXPECT_EQ((*ops)[0].from_span, 1024U);
  EXPECT_TRUE((*ops)[1].is_run());
  EXPECT_FALSE((*ops)[2].is_run());
  EXPECT_EQ(find_op(*ops, 1023), 0U);
  EXPECT_EQ(find_op(*ops, 1024), 1U);
  EXPECT_EQ(find_op(*ops, 1026 + 48), 3U);
}

TEST(HostCopy, CancellingStopsAtTheNextPieceAndNothingIsWrittenAfter) {
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({64 << 20}, model::DType::kU8);
  const auto ops = make_copy_ops(part.buckets[0], part.tensors, CopyKind::kDirect);
  ASSERT_TRUE(ops);
  const Source source(part);
  SinkMemory copied(part.to_bytes);
  const auto to = copied.pointers();
  std::atomic<int> pieces{0};
  EXPECT_FALSE(copy_all(*ops, {source.pointers}, {to}, 2, [&](std::uint64_t) { return ++pieces < 3; }));
  EXPECT_LE(pieces, 4);  // two threads, one piece each when it stopped
  Control control;
  control.cancelled = true;
  const auto status = make_host_device()->copy(part.buckets[0], part.tensors, source.pointers, to, control);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kAborted);
  EXPECT_EQ(control.bytes_done, 0U);
}

// Everything that a bucket from outside could get wrong is refused before a byte moves.
TEST(HostCopy, InconsistentBucketsAreRefused) {
  const auto device = make_host_device();
  const auto refused = [&](const char* what, auto change) {
    PartBuilder part("source", "sink");
    part.bucket();
    part.dense({4, 8});
    const Source source(part);
    SinkMemory memory(part.to_bytes);
    const SinkMemory untouched = memory;
    change(part.buckets[0], part.tensors);
    Control control;
    const auto status = device->copy(part.buckets[0], part.tensors, source.pointers, memory.pointers(), control);
    ASSERT_FALSE(status) << what;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << what;
    EXPECT_TRUE(memory == untouched) << what;
  };
  using Tensors = std::vector<plan::PlannedTensor>;
  constexpr auto huge = std::numeric_limits<std::int64_t>::max();
  refused("bytes", [](plan::Bucket& b, Tensors&) { b.bytes += 1; });
  refused("tensor index", [](plan::Bucket& b, Tensors&) { b.fragments[0].tensor = 1; });
  refused("region index", [](plan::Bucket& b, Tensors&) { b.fragments[0].from.region = 2; });
  refused("negative stride", [](plan::Bucket& b, Tensors&) { b.fragments[0].to.strides[0] = -8; });
  refused("rank of strides", [](plan::Bucket& b, Tensors&) { b.fragments[0].to.strides.push_back(1); });
  refused("stride that overflows", [](plan::Bucket& b, Tensors&) { b.fragments[0].from.strides[0] = huge; });
  refused("offset that overflows", [](plan::Bucket& b, Tensors&) { b.fragments[0].from.offset = ~std::uint64_t{0}; });
  refused("negative extent", [](plan::Bucket& b, Tensors&) { b.fragments[0].box.extent[0] = -4; });
  refused("volume that overflows", [](plan::Bucket& b, Tensors&) { b.fragments[0].box.extent = {huge, huge}; });
  refused("cast", [](plan::Bucket&, Tensors& t) { t[0].cast = model::Cast::kF32ToF16; });
  refused("dtype without cast", [](plan::Bucket&, Tensors& t) { t[0].source_dtype = model::DType::kF32; });
}

TEST(HostCopy, ReadsPastARegionAreFound) {
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({4, 8});
  const auto ops = make_copy_ops(part.buckets[0], part.tensors, CopyKind::kPack);
  ASSERT_TRUE(ops);
  EXPECT_TRUE(check_sources(*ops, std::vector<std::uint64_t>{64}));
  const auto status = check_sources(*ops, std::vector<std::uint64_t>{63});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("64"));
  EXPECT_FALSE(check_sources(*ops, {}));
}

}  // namespace
}  // namespace weightbus::device
