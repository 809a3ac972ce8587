#include "weightbus/wire/codec.h"

#include <gtest/gtest.h>

#include "tests/unit/wire/samples.h"
#include "weightbus/wire/reading.h"

namespace weightbus::wire {
namespace {

using protocol::Envelope;
using testing::same;
using testing::sample_envelope;
using testing::sample_record;

constexpr std::uint64_t kSeeds = 40;

// Each field of each message is found by the compiler and made random, so that a forgotten one shows here.
TEST(Codec, EveryMessageRoundTrips) {
  for (std::size_t kind = 0; kind < testing::body_kinds(); ++kind) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Envelope envelope = sample_envelope(kind, seed);
      const std::string frame = encode(envelope);
      const auto decoded = decode(frame);
      ASSERT_TRUE(decoded) << body_name(envelope.body) << ", seed " << seed << ": " << decoded.error().message;
      ASSERT_TRUE(same(*decoded, envelope)) << body_name(envelope.body) << ", seed " << seed;
      ASSERT_EQ(encode(*decoded), frame) << body_name(envelope.body) << ", seed " << seed;
    }
  }
}

TEST(Codec, EveryJournalRecordRoundTrips) {
  for (std::size_t kind = 0; kind < testing::record_kinds(); ++kind) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const auto record = sample_record(kind, seed);
      const auto decoded = decode_record(encode_record(record));
      ASSERT_TRUE(decoded) << "record " << kind << ", seed " << seed << ": " << decoded.error().message;
      ASSERT_TRUE(same(*decoded, record)) << "record " << kind << ", seed " << seed;
    }
  }
}

TEST(Codec, AHundredThousandFragmentsRoundTrip) {
  Envelope envelope = sample_envelope(0, 1);
  envelope.body = protocol::SinkPartMessage{testing::large_sink_part(100'000)};
  const std::string frame = encode(envelope);
  // Thirteen words a fragment, and little beside them.
  EXPECT_GT(frame.size(), 100'000 * 13 * 8);
  EXPECT_LT(frame.size(), 100'000 * 13 * 8 * 101 / 100);
  const auto decoded = decode(frame);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_TRUE(same(*decoded, envelope));
}

TEST(Codec, ThousandsOfTensorsOfAnyKindFitIntoTheExpansionLimit) {
  protocol::LiveDigests digests;
  for (int i = 0; i < 20'000; ++i)
    digests.slots.push_back({{"", model::DType::kU8, {}}, {{}, {}}, {}});
  protocol::ModelStatus status{model::ModelName(""), {}, false, {}, {}, {}, {}, {}, {}};
  status.events.resize(5000);
  for (int i = 0; i < 5000; ++i) {
    status.recent.push_back({model::UpdateId(1),
                             protocol::UpdateKind::kPush,
                             protocol::Phase::kStaged,
                             {},
                             model::WeightVersion(1),
                             0,
                             0,
                             {},
                             {},
                             0,
                             0,
                             0,
                             false,
                             {},
                             {},
                             {}});
    status.versions.push_back({model::WeightVersion(1), false, false, false, 0, 0, 0, {}, {}, {}});
    status.members.push_back(
        {{model::MemberId(""), model::Role::kAdmin, model::ModelName(""), model::HostId(""), {}, 0, 1, {}, {}, {}},
         false,
         false,
         0,
         0,
         {},
         {},
         {}});
  }
  protocol::SourceOpened opened;
  opened.manifest.tensors.resize(20'000, {"", model::DType::kU8, {}});
  opened.manifest.shards.resize(20'000);
  opened.manifest.ignored.resize(20'000);
  opened.manifest.aliases.resize(20'000);
  opened.offers.resize(20'000);
  protocol::SinkOpened sink;
  sink.manifest.slots.resize(20'000);
  sink.halves.resize(20'000);
  for (const protocol::Body& body :
       {protocol::Body(digests), protocol::Body(status), protocol::Body(opened), protocol::Body(sink)}) {
    Envelope envelope = sample_envelope(0, 1);
    envelope.body = body;
    const auto decoded = decode(encode(envelope));
    ASSERT_TRUE(decoded) << body_name(body) << ": " << decoded.error().message;
    EXPECT_TRUE(same(*decoded, envelope)) << body_name(body);
  }
}

// An error that quotes a file name in another encoding, or a whole log, still arrives.
TEST(Codec, TextForPeopleIsRepairedAndShortened) {
  Envelope envelope = sample_envelope(0, 1);
  envelope.body = protocol::ErrorReply{{base::ErrorCode::kNotFound, std::string("no \xff\xc3(") + '\0' + "ä"}};
  auto decoded = decode(encode(envelope));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(std::get<protocol::ErrorReply>(decoded->body).error.message,
            "no ?"
            "?(?ä");

  std::string log;
  while (log.size() <= kMaxTextBytes)
    log += "重";
  envelope.body = protocol::ErrorReply{{base::ErrorCode::kNotFound, log}};
  decoded = decode(encode(envelope));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(std::get<protocol::ErrorReply>(decoded->body).error.message, log.substr(0, kMaxTextBytes / 3 * 3));
}

TEST(Codec, NamesAreTakenAsTheyAreAndBadOnesRefused) {
  for (const std::string& name : {std::string("\xff"), std::string("a\0b", 3), std::string(kMaxNameBytes + 1, 'a')}) {
    Envelope envelope = sample_envelope(0, 1);
    envelope.body = protocol::EvictRequest{model::MemberId(name)};
    const auto decoded = decode(encode(envelope));
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().code, base::ErrorCode::kCorrupted);
    EXPECT_NE(decoded.error().message.find("EvictRequest.member"), std::string::npos) << decoded.error().message;
  }
}

TEST(Text, KnowsUtf8) {
  for (const char* good : {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_valid_text(good)) << good;
  }
  for (const char* bad : {"\x80", "\xc1\xbf", "\xc2", "\xc2(", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\x80"}) {
    EXPECT_FALSE(is_valid_text(bad)) << bad;
    EXPECT_TRUE(is_valid_text(repaired_text(bad, 100))) << bad;
  }
  EXPECT_FALSE(is_valid_text(std::string_view("\0", 1)));
}

}  // namespace
}  // namespace weightbus::wire
