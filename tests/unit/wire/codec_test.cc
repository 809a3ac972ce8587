#include "weightbus/wire/codec.h"

#include <gtest/gtest.h>

#include "tests/unit/wire/random_values.h"

namespace weightbus::wire {
namespace {

using protocol::Body;
using protocol::Envelope;
using protocol::JournalRecord;
using testing::equal;
using testing::Random;

constexpr std::uint64_t kSeeds = 40;

TEST(Reflection, SeesEveryField) {
  EXPECT_EQ(testing::field_count<protocol::Release>(), 0U);
  EXPECT_EQ(testing::field_count<protocol::Tag>(), 3U);
  EXPECT_EQ(testing::field_count<protocol::UpdateStatus>(), 16U);
  EXPECT_EQ(testing::field_count<Envelope>(), 7U);
  protocol::Retain a{{model::WeightVersion(1)}, std::nullopt};
  protocol::Retain b = a;
  EXPECT_TRUE(equal(a, b));
  b.capture = model::WeightVersion(1);
  EXPECT_FALSE(equal(a, b));
}

TEST(Codec, EveryMessageRoundTrips) {
  for (std::size_t kind = 0; kind < std::variant_size_v<Body>; ++kind) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      Random random(seed * 1000 + kind);
      Envelope envelope = random.make<Envelope>();
      envelope.body = random.alternative<Body>(kind);
      const std::string frame = encode(envelope);
      const auto decoded = decode(frame);
      ASSERT_TRUE(decoded) << body_name(envelope.body) << ", seed " << seed << ": " << decoded.error().message;
      ASSERT_TRUE(equal(*decoded, envelope)) << body_name(envelope.body) << ", seed " << seed;
      ASSERT_EQ(encode(*decoded), frame) << body_name(envelope.body) << ", seed " << seed;
    }
  }
}

TEST(Codec, EveryJournalRecordRoundTrips) {
  for (std::size_t kind = 0; kind < std::variant_size_v<JournalRecord>; ++kind) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      Random random(seed * 1000 + kind);
      const auto record = random.alternative<JournalRecord>(kind);
      const auto decoded = decode_record(encode_record(record));
      ASSERT_TRUE(decoded) << "record " << kind << ", seed " << seed << ": " << decoded.error().message;
      ASSERT_TRUE(equal(*decoded, record)) << "record " << kind << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace weightbus::wire
