#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/client/shm_arena.h"
#include "weightbus/base/prng.h"
#include "weightbus/wire/attach.h"

namespace weightbus::wire {
namespace {

using testing::tag_of;

ArenaInfo small_arena() {
  ArenaInfo info;
  for (int half = 0; half < 2; ++half)
    info.halves[half].push_back({model::RegionKind::kHostShm, "", "weightbus.x" + std::to_string(half), 4096, 7});
  ArenaSlot slot;
  slot.tensor = "a.weight";
  slot.parameter = "qkv.weight";
  slot.dtype = model::DType::kBF16;
  slot.kind = model::SlotKind::kDerived;
  slot.shape = {8, 16};
  slot.box = {{4, 0}, {4, 16}};
  slot.at = {0, 256, {16, 1}};
  info.slots = {slot};
  info.live = 1;
  info.tag = tag_of(9);
  info.paused = true;
  return info;
}

std::vector<AttachMessage> one_of_each() {
  return {Attach{42, ClientKind::kObserver, 99, "weightbus 0.1.0"},
          AttachRefused{{base::ErrorCode::kPermissionDenied, "no"}},
          small_arena(),
          Pause{3, 500},
          Paused{3},
          Exchange{3, 1, tag_of(4)},
          Exchanged{3, 1, 12345},
          ExchangeFailed{3, {base::ErrorCode::kCorrupted, "size"}},
          Resume{3, 0, std::nullopt},
          Resume{3, 1, tag_of(5)}};
}

TEST(AttachCodec, EveryMessageComesBackEqual) {
  FrameCutter cutter;
  for (const auto& message : one_of_each()) {
    const auto frame = encode_attach(message);
    ASSERT_TRUE(frame);
    // Byte by byte, as a socket may deliver it.
    for (std::size_t i = 0; i + 1 < frame->size(); ++i) {
      cutter.add({frame->data() + i, 1});
      ASSERT_EQ(cutter.next().value(), std::nullopt);
    }
    cutter.add({frame->data() + frame->size() - 1, 1});
    const auto cut = cutter.next();
    ASSERT_TRUE(cut && *cut);
    const auto decoded = decode_attach(**cut);
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(*decoded, message);
  }
}

TEST(AttachCodec, ManyFramesInOneRead) {
  std::string stream;
  for (int i = 0; i < 1000; ++i)
    stream += encode_attach(Paused{static_cast<std::uint64_t>(i)}).value();
  FrameCutter cutter;
  cutter.add(stream);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto frame = cutter.next();
    ASSERT_TRUE(frame && *frame);
    EXPECT_EQ(decode_attach(**frame).value(), AttachMessage{Paused{i}});
  }
  EXPECT_EQ(cutter.next().value(), std::nullopt);
}

TEST(AttachCodec, ALengthThatBreaksTheRulesEndsTheStream) {
  for (const std::uint32_t length : {0U, 7U, 1032U, 0xffffffffU}) {
    FrameCutter cutter(1024);
    std::string bytes;
    for (int i = 0; i < 4; ++i)
      bytes.push_back(static_cast<char>((length >> (8 * i)) & 0xff));
    cutter.add(bytes);
    EXPECT_FALSE(cutter.next()) << length;
  }
}

TEST(AttachCodec, AnotherRevisionIsRefusedByName) {
  std::string frame = encode_attach(Paused{1}).value().substr(4);
  // The revision is the first 32-bit field of the root's data section: after segment table and root pointer.
  frame[16] = 77;
  const auto decoded = decode_attach(frame);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, base::ErrorCode::kUnsupported);
  EXPECT_NE(decoded.error().message.find("revision 77"), std::string::npos) << decoded.error().message;
}

TEST(AttachCodec, DamagedFramesNeverCrashAndNeverGiveAnInvalidArena) {
  std::vector<std::string> frames;
  for (const auto& message : one_of_each())
    frames.push_back(encode_attach(message).value().substr(4));
  std::size_t accepted = 0;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    base::Prng random(seed);
    std::string frame = frames[random.below(frames.size())];
    for (std::uint64_t flips = 1 + random.below(4); flips > 0; --flips)
      frame[random.below(frame.size())] = static_cast<char>(random.next());
    if (random.chance(20)) frame.resize(random.below(frame.size() + 1));
    const auto decoded = decode_attach(frame);
    if (!decoded) continue;
    ++accepted;
    if (const auto* info = std::get_if<ArenaInfo>(&*decoded)) {
      EXPECT_TRUE(validate_arena(*info)) << "seed " << seed;
    }
  }
  // Some flips hit a number that may have any value.
  EXPECT_GT(accepted, 0U);
  EXPECT_LT(accepted, 20'000U);
}

TEST(AttachCodec, AnArenaThatIsNotSoundIsRefused) {
  EXPECT_TRUE(validate_arena(small_arena()));
  const auto refused = [](auto&& change) {
    ArenaInfo info = small_arena();
    change(info);
    return !validate_arena(info) && !decode_attach(encode_attach(info).value().substr(4));
  };
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(refused([](ArenaInfo& i) { i.live = 2; }));
  EXPECT_TRUE(refused([](ArenaInfo& i) { i.halves[1].clear(); }));
  EXPECT_TRUE(refused([](ArenaInfo& i) { i.halves[1][0].bytes = 8192; }));
  EXPECT_TRUE(refused([](ArenaInfo& i) { i.slots[0].at.region = 1; }));
  EXPECT_TRUE(refused([](ArenaInfo& i) { i.slots[0].at.offset = 4096 - 127; }));
  EXPECT_TRUE(refused([](ArenaInfo& i) { i.slots[0].at.offset = std::numeric_limits<std::uint64_t>::max(); }));
  EXPECT_TRUE(refused([](ArenaInfo& i) { i.slots[0].at.strides = {kHuge, 1}; }));
  EXPECT_TRUE(refused([](ArenaInfo& i) { i.slots[0].at.strides = {-16, 1}; }));
  EXPECT_TRUE(refused([](ArenaInfo& i) { i.slots[0].at.strides = {1}; }));
  EXPECT_TRUE(refused([](ArenaInfo& i) { i.slots[0].box.extent = {5, 16}; }));
  EXPECT_TRUE(refused([](ArenaInfo& i) { i.slots[0].box.offset = {4}; }));
}

TEST(AttachCodec, EmptyAndScalarSlotsAreOrdinary) {
  ArenaInfo info = small_arena();
  info.slots[0].shape = {0, 16};
  info.slots[0].box = {{0, 0}, {0, 16}};
  ArenaSlot scalar;
  scalar.tensor = "scale";
  scalar.dtype = model::DType::kF32;
  scalar.at.offset = 4092;
  info.slots.push_back(scalar);
  EXPECT_EQ(decode_attach(encode_attach(info).value().substr(4)).value(), AttachMessage{info});
}

}  // namespace
}  // namespace weightbus::wire
