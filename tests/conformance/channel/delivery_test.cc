// What arrives, and where.
#include "channel_fixture.h"

namespace weightbus::channel {
namespace {

INSTANTIATE_TEST_SUITE_P(Channels, ChannelTest, ::testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

TEST_P(ChannelTest, DeliversEveryBucketWhole) {
  PartBuilder part("source", "sink");
  for (int i = 0; i < 5; ++i) {
    part.bucket();
    part.dense({300, 1000});
    part.dense({17});
  }
  expect_delivered(part);
}

// Transposed, sliced, fused and converted, on either side (field case F09).
TEST_P(ChannelTest, DeliversStridedTransposedAndCastFragments) {
  base::Prng prng(11);
  PartBuilder part("source", "sink");
  for (int bucket = 0; bucket < 20; ++bucket) {
    part.bucket();
    for (int i = 0; i < 12; ++i)
      part.random(prng, 9);
  }
  part.bucket();
  part.fragment({700, 900}, model::DType::kBF16, model::DType::kBF16, model::Cast::kNone, {{1, 0}, 0}, {{0, 1}, 0});
  part.fragment({333, 777}, model::DType::kF32, model::DType::kBF16, model::Cast::kF32ToBF16, {{0, 1}, 0}, {{0, 1}, 0});
  part.dense({200000});
  part.fragment({999}, model::DType::kF16, model::DType::kF32, model::Cast::kF16ToF32, {{0}, 1}, {{0}, 2});
  expect_delivered(part);
}

// Field case F22.
TEST_P(ChannelTest, EmptyAndScalarFragmentsAndEmptyBucketsAreOrdinary) {
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({0, 8});
  part.dense({});
  part.dense({4, 0});
  part.bucket();
  part.bucket();
  part.dense({0});
  expect_delivered(part);
  expect_delivered(PartBuilder("source", "sink"));
}

TEST_P(ChannelTest, DeliversManySmallBuckets) {
  PartBuilder part("source", "sink");
  for (int i = 0; i < 3000; ++i) {
    part.bucket();
    part.dense({1 + i % 7});
  }
  expect_delivered(part);
}

// Larger than the window, the staging buffer and every socket buffer.
TEST_P(ChannelTest, DeliversABucketLargerThanWhatIsOnTheWay) {
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({7 << 20});
  part.fragment({2048, 2048}, model::DType::kBF16, model::DType::kBF16, model::Cast::kNone, {{0, 1}, 1}, {{0, 1}, 0});
  expect_delivered(part);
}

TEST_P(ChannelTest, APullOfSomeBucketsTouchesNoOther) {
  PartBuilder part("source", "sink");
  for (int i = 0; i < 6; ++i) {
    part.bucket();
    part.dense({1000});
  }
  const SourceRegions regions(*device_, part.from_bytes);
  const auto source = serve(regions);
  source->set_part(part_of(part));
  const auto session = join(source->offer());
  SinkMemory memory(part.to_bytes);
  device::Control control;
  const auto middle = std::span(part.buckets).subspan(2, 3);
  ASSERT_TRUE(session->pull(middle, part.tensors, memory.pointers(), kPlenty, control));
  SinkMemory only_middle(part.to_bytes);
  for (const auto& bucket : middle) {
    weightbus::testing::reference_copy(bucket, part.tensors, regions.pointers(), only_middle.pointers());
  }
  EXPECT_TRUE(memory == only_middle);
}

TEST_P(ChannelTest, TwoSinksPullFromOneSourceAtOnce) {
  PartBuilder first("source", "sink");
  PartBuilder second("source", "other");
  base::Prng prng(3);
  for (int i = 0; i < 30; ++i) {
    for (auto* part : {&first, &second}) {
      part->bucket();
      part->dense({50000});
      part->random(prng, 6);
    }
  }
  const std::vector<std::uint64_t> bytes{std::max(first.from_bytes[0], second.from_bytes[0]),
                                         std::max(first.from_bytes[1], second.from_bytes[1])};
  const SourceRegions regions(*device_, bytes);
  const auto source = serve(regions);
  auto part = std::make_shared<plan::SourcePart>();
  part->tensors = first.tensors;
  part->buckets = first.buckets;
  for (auto bucket : second.buckets) {
    for (auto& fragment : bucket.fragments)
      fragment.tensor += static_cast<std::uint32_t>(first.tensors.size());
    part->buckets.push_back(bucket);
  }
  part->tensors.insert(part->tensors.end(), second.tensors.begin(), second.tensors.end());
  source->set_part(part);

  SinkMemory memories[2] = {SinkMemory(first.to_bytes), SinkMemory(second.to_bytes)};
  base::Status statuses[2];
  std::vector<std::thread> sinks;
  for (int i = 0; i < 2; ++i) {
    sinks.emplace_back([&, i] {
      const auto& own = i == 0 ? first : second;
      const auto session = join(source->offer(), i == 0 ? "sink" : "other");
      device::Control control;
      statuses[i] = session->pull(own.buckets, own.tensors, memories[i].pointers(), kPlenty, control);
    });
  }
  for (auto& sink : sinks)
    sink.join();
  ASSERT_TRUE(statuses[0]) << statuses[0].error().message;
  ASSERT_TRUE(statuses[1]) << statuses[1].error().message;
  EXPECT_TRUE(memories[0] == expected(first, regions));
  EXPECT_TRUE(memories[1] == expected(second, regions));
}

// The source may be told what to serve after its sinks have asked.
TEST_P(ChannelTest, APullWaitsForThePart) {
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({4096});
  const SourceRegions regions(*device_, part.from_bytes);
  const auto source = serve(regions);
  const auto session = join(source->offer());
  SinkMemory memory(part.to_bytes);
  device::Control control;
  base::Status status;
  std::thread sink([&] { status = session->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control); });
  source->set_part(part_of(part));
  sink.join();
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_TRUE(memory == expected(part, regions));
}

TEST_P(ChannelTest, BucketsOfAnotherPairAreRefused) {
  PartBuilder part("source", "another sink");
  part.bucket();
  part.dense({16});
  const SourceRegions regions(*device_, part.from_bytes);
  const auto source = serve(regions);
  source->set_part(part_of(part));
  const auto session = join(source->offer());
  SinkMemory memory(part.to_bytes);
  device::Control control;
  const auto status = session->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(memory == SinkMemory(part.to_bytes));
}

// A plan that reads past what the source holds must not read other memory.
TEST_P(ChannelTest, FragmentsOutsideTheSourcesRegionsAreRefused) {
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({4096});
  const SourceRegions regions(*device_, part.from_bytes);
  part.buckets[0].fragments[0].from.offset = part.from_bytes[0] - 4096;
  const auto source = serve(regions);
  source->set_part(part_of(part));
  const auto session = join(source->offer());
  SinkMemory memory(part.to_bytes);
  device::Control control;
  const auto status = session->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << status.error().message;
  EXPECT_TRUE(memory == SinkMemory(part.to_bytes));
}

}  // namespace
}  // namespace weightbus::channel
