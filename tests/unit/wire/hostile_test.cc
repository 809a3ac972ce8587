// Frames that no build of ours makes: none may crash, hang, use much memory or be taken for something else.
#include <capnp/any.h>
#include <capnp/message.h>
#include <capnp/schema.h>
#include <capnp/serialize.h>
#include <gtest/gtest.h>

#include <cstring>

#include "admin.capnp.h"
#include "journal.capnp.h"
#include "sync.capnp.h"
#include "tests/unit/wire/samples.h"
#include "weightbus/base/prng.h"
#include "weightbus/wire/codec.h"

namespace weightbus::wire {
namespace {

using base::ErrorCode;
using testing::sample_envelope;
using testing::sample_record;

// A frame under construction whose envelope is valid but for its body.
struct Crafted {
  capnp::MallocMessageBuilder message{1U << 16};  // one segment, so that tests may patch pointers
  proto::Envelope::Builder envelope = message.initRoot<proto::Envelope>();
  Crafted() {
    envelope.setRevision(protocol::kProtocolRevision);
    envelope.initEpoch().initJournal();
  }
  std::string frame() {
    const auto words = capnp::messageToFlatArray(message);
    const auto bytes = words.asBytes();
    return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
  }
};

template <class T>
void expect_refused(const base::Result<T>& result, ErrorCode code, const std::string& part) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

TEST(Hostile, TruncatedFramesAreRefusedAtEveryByte) {
  for (std::size_t kind = 0; kind < testing::body_kinds(); ++kind) {
    const std::string frame = encode(sample_envelope(kind, 3));
    for (std::size_t bytes = 0; bytes < frame.size(); ++bytes) {
      ASSERT_FALSE(decode(std::string_view(frame).substr(0, bytes))) << kind << " at " << bytes;
    }
    ASSERT_FALSE(decode(frame + std::string(8, '\0'))) << kind;
  }
  for (std::size_t kind = 0; kind < testing::record_kinds(); ++kind) {
    const std::string frame = encode_record(sample_record(kind, 3));
    for (std::size_t bytes = 0; bytes < frame.size(); ++bytes) {
      ASSERT_FALSE(decode_record(std::string_view(frame).substr(0, bytes))) << kind << " at " << bytes;
    }
  }
}

TEST(Hostile, FlippedBitsNeverCrashAndWhatDecodesIsConsistent) {
  base::Prng prng(7);
  std::size_t refused = 0;
  for (std::size_t round = 0; round < 40'000; ++round) {
    std::string frame = encode(sample_envelope(round % testing::body_kinds(), round % 97));
    for (auto flips = 1 + prng.below(8); flips > 0; --flips) {
      char& byte = frame[prng.below(frame.size())];
      byte = static_cast<char>(byte ^ (1 << prng.below(8)));
    }
    const auto decoded = decode(frame);
    if (!decoded) {
      ++refused;
      continue;
    }
    const auto again = decode(encode(*decoded));
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_TRUE(testing::same(*again, *decoded));
  }
  EXPECT_GT(refused, 1000U);
}

TEST(Hostile, RandomBytesAreRefused) {
  base::Prng prng(11);
  for (std::size_t round = 0; round < 20'000; ++round) {
    std::string frame(8 * prng.below(40), '\0');
    for (char& byte : frame)
      byte = static_cast<char>(prng.next());
    // Mostly a plausible segment table, so that Cap'n Proto gets to see the rest.
    if (frame.size() >= 8 && prng.chance(90)) {
      const std::uint32_t table[2] = {0, static_cast<std::uint32_t>(frame.size() / 8 - 1)};
      std::memcpy(frame.data(), table, sizeof(table));
    }
    ASSERT_FALSE(decode(frame));
    ASSERT_FALSE(decode_record(frame));
  }
}

TEST(Hostile, UnalignedFramesAreRead) {
  const auto envelope = sample_envelope(0, 5);
  const std::string shifted = "x" + encode(envelope);
  const auto decoded = decode(std::string_view(shifted).substr(1));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_TRUE(testing::same(*decoded, envelope));
}

TEST(Hostile, SizeAndSegmentsAreChecked) {
  const std::string frame = encode(sample_envelope(0, 5));
  EXPECT_TRUE(decode(frame, frame.size()));
  expect_refused(decode(frame, frame.size() - 8), ErrorCode::kCorrupted, "at most");
  expect_refused(decode(""), ErrorCode::kCorrupted, "0 bytes");
  std::string many(8 * 64, '\0');
  many[0] = 16;  // 17 segments
  expect_refused(decode(many), ErrorCode::kCorrupted, "17 segments");
  std::memset(many.data(), 0xff, 4);
  expect_refused(decode(many), ErrorCode::kCorrupted, "4294967296 segments");
}

TEST(Hostile, UnknownRevisionIsNamed) {
  Crafted crafted;
  crafted.envelope.setRevision(77);
  crafted.envelope.getBody().initRelease();
  expect_refused(decode(crafted.frame()), ErrorCode::kUnsupported, "revision 77");

  capnp::MallocMessageBuilder record;
  record.initRoot<proto::JournalRecord>().setRevision(2);
  const auto words = capnp::messageToFlatArray(record);
  const auto bytes = words.asBytes();
  expect_refused(decode_record({reinterpret_cast<const char*>(bytes.begin()), bytes.size()}), ErrorCode::kUnsupported,
                 "revision 2");
}

TEST(Hostile, UnknownMessageKindIsNamed) {
  Crafted crafted;
  crafted.envelope.getBody().initRelease();
  const auto offset = capnp::Schema::from<proto::Envelope::Body>().getProto().getStruct().getDiscriminantOffset();
  auto data = capnp::toAny(crafted.envelope).getDataSection();
  data[2 * offset] = 0xe7;
  data[2 * offset + 1] = 0x03;
  expect_refused(decode(crafted.frame()), ErrorCode::kUnsupported, "kind 999");

  Crafted unset;
  expect_refused(decode(unset.frame()), ErrorCode::kUnsupported, "kind 0");
}

TEST(Hostile, UnknownEnumerantIsNamed) {
  for (const unsigned value : {0U, 99U, 257U, 65535U}) {
    Crafted crafted;
    auto failed = crafted.envelope.getBody().initFailed();
    failed.setRole(static_cast<proto::SessionRole>(value));
    failed.initError().setCode(proto::ErrorCode::STALE);
    expect_refused(decode(crafted.frame()), ErrorCode::kUnsupported,
                   "Failed.role has the value " + std::to_string(value));
  }
}

TEST(Hostile, MissingRequiredStructIsNamed) {
  Crafted crafted;
  crafted.envelope.getBody().initStaged();
  expect_refused(decode(crafted.frame()), ErrorCode::kCorrupted, "Tag");
}

TEST(Hostile, ListsOfNothingDoNotMultiply) {
  Crafted crafted;
  auto hello = crafted.envelope.getBody().initHello();
  hello.initMember().setRole(proto::Role::ADMIN);
  hello.initKnownEpoch().initJournal();
  hello.initHalves(1);
  // Elements of no size: half a billion of them fit into one word.
  auto pointers = capnp::toAny(hello).getPointerSection();
  for (unsigned i = 0; i < pointers.size(); ++i) {
    if (pointers[i].isList()) pointers[i].initAsListOfAnyStruct(0, 0, 1U << 28);
  }
  const std::string frame = crafted.frame();
  EXPECT_LT(frame.size(), 1000U);
  expect_refused(decode(frame), ErrorCode::kCorrupted, "");
}

TEST(Hostile, PointersThatShareContentDoNotMultiply) {
  Crafted crafted;
  auto channels = crafted.envelope.getBody().initDiffReply().initChanged(10'000);
  channels.set(0, std::string(4000, 'a').c_str());
  std::string frame = crafted.frame();
  // A pointer to a list of 4001 bytes, wherever it stands; the next 9,999 words are the null pointers of the others.
  const std::uint32_t upper = 2 | 4001U << 3;
  std::size_t found = 0;
  for (std::size_t at = 8; at + 8 <= frame.size(); at += 8) {
    std::uint32_t halves[2];
    std::memcpy(halves, frame.data() + at, sizeof(halves));
    if (halves[1] != upper) continue;
    ASSERT_LE(at + 8 * 10'000, frame.size());
    for (std::uint32_t i = 1; i < 10'000; ++i) {
      const std::uint32_t shared[2] = {halves[0] - i * 4, upper};
      std::memcpy(frame.data() + at + 8 * i, shared, sizeof(shared));
    }
    ++found;
    break;
  }
  ASSERT_EQ(found, 1U);
  expect_refused(decode(frame), ErrorCode::kCorrupted, "malformed");
}

// What a table may get wrong, as (count, words).
TEST(Hostile, TablesAreChecked) {
  const auto refused = [](std::uint32_t count, std::initializer_list<std::uint64_t> words, const char* part) {
    Crafted crafted;
    auto manifest = crafted.envelope.getBody().initSourceOpened().initManifest();
    manifest.initShards().setCount(count);
    auto list = manifest.getShards().initWords(static_cast<unsigned>(words.size()));
    unsigned i = 0;
    for (auto word : words)
      list.set(i++, word);
    expect_refused(decode(crafted.frame()), ErrorCode::kCorrupted, part);
  };
  const std::uint64_t rank1 = 0x010101ULL << 32;
  refused(0xffffffffU, {0, 0, 0}, "claims 4294967295 records");
  refused(1, {rank1, 0, 0, 1, 2}, "ends inside a record");
  refused(1, {0, 0, 0, 7}, "1 words after its last record");
  refused(1, {0, 1ULL << 40, 0}, "bits that have no meaning");
  refused(1, {0x090909ULL << 32, 0, 0}, "more than 8");
  refused(1, {0x010201ULL << 32, 0, 0, 1, 1, 1, 1}, "differ in their number");
  refused(1, {0x01010101ULL << 32, 0, 0, 1, 1, 1, 1}, "differ in their number");
}

TEST(Hostile, ShapesHoldEightDimensionsAtMost) {
  Crafted crafted;
  auto tensors = crafted.envelope.getBody().initOpenSink().initTensors(1);
  tensors[0].setDtype(proto::DType::BF16);
  tensors[0].initShape(9);
  expect_refused(decode(crafted.frame()), ErrorCode::kCorrupted, "9 dimensions");
}

TEST(Hostile, DigestsComeInPairs) {
  Crafted crafted;
  crafted.envelope.getBody().initSourceStaged().initUnits(3);
  expect_refused(decode(crafted.frame()), ErrorCode::kCorrupted, "half a digest");
}

TEST(Schema, NumbersItsEnumerantsAsTheValuesDo) {
  const auto count = [](capnp::EnumSchema schema) { return schema.getEnumerants().size(); };
  const auto last = [](auto value) { return static_cast<std::size_t>(value) + 1; };
  EXPECT_EQ(count(capnp::Schema::from<proto::ErrorCode>()), last(ErrorCode::kInternal));
  EXPECT_EQ(count(capnp::Schema::from<proto::Role>()), last(model::Role::kCoordinator));
  EXPECT_EQ(count(capnp::Schema::from<proto::DType>()), last(model::DType::kF64));
  EXPECT_EQ(count(capnp::Schema::from<proto::Cast>()), last(model::Cast::kF16ToBF16));
  EXPECT_EQ(count(capnp::Schema::from<proto::SlotKind>()), last(model::SlotKind::kConstant));
  EXPECT_EQ(count(capnp::Schema::from<proto::SessionRole>()), last(protocol::SessionRole::kSink));
  EXPECT_EQ(count(capnp::Schema::from<proto::CommitWay>()), last(protocol::CommitWay::kDirect));
  EXPECT_EQ(count(capnp::Schema::from<proto::UpdateKind>()), last(protocol::UpdateKind::kCatchUp));
  EXPECT_EQ(count(capnp::Schema::from<proto::Phase>()), last(protocol::Phase::kAborted));

  const auto name = [](capnp::EnumSchema schema, std::size_t number) {
    return std::string(schema.getEnumerants()[static_cast<unsigned>(number)].getProto().getName().cStr());
  };
  for (std::size_t i = 1; i < last(protocol::Phase::kAborted); ++i) {
    EXPECT_EQ(name(capnp::Schema::from<proto::Phase>(), i), protocol::phase_name(static_cast<protocol::Phase>(i)));
  }
  for (std::size_t i = 1; i < last(protocol::CommitWay::kDirect); ++i) {
    EXPECT_EQ(name(capnp::Schema::from<proto::CommitWay>(), i),
              protocol::commit_way_name(static_cast<protocol::CommitWay>(i)));
  }
}

}  // namespace
}  // namespace weightbus::wire
