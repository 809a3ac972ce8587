#include "weightbus/wire/chunks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "weightbus/base/prng.h"

namespace weightbus::wire {
namespace {

using base::ErrorCode;
using Whole = std::optional<std::string>;

std::string message_of(std::size_t bytes, std::uint64_t seed) {
  base::Prng prng(seed);
  std::string message(bytes, '\0');
  for (std::size_t i = 0; i < bytes; i += 64)
    message[i] = static_cast<char>(prng.next());
  return message;
}

// Adds a frame that completes nothing.
void add_part(Reassembler& reassembler, const std::string& frame) {
  const auto added = reassembler.add(frame);
  ASSERT_TRUE(added) << added.error().message;
  ASSERT_EQ(*added, std::nullopt);
}

void expect_refused(Reassembler& reassembler, const std::string& frame, ErrorCode code) {
  const auto added = reassembler.add(frame);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, code) << added.error().message;
}

void expect_whole(Reassembler& reassembler, const std::vector<std::string>& frames, const std::string& message) {
  for (std::size_t i = 0; i + 1 < frames.size(); ++i)
    add_part(reassembler, frames[i]);
  const auto added = reassembler.add(frames.back());
  ASSERT_TRUE(added) << added.error().message;
  ASSERT_TRUE(added->has_value());
  ASSERT_TRUE(**added == message);
  EXPECT_EQ(reassembler.pending_bytes(), 0U);
}

TEST(Chunks, MessagesOfEverySizeArrive) {
  Reassembler reassembler;
  std::uint64_t stream = 0;
  for (const std::size_t bytes : {std::size_t{8}, kMaxFrameBytes, kMaxFrameBytes + 8, 2 * kChunkPayloadBytes,
                                  2 * kChunkPayloadBytes + 1, 3 * kMaxFrameBytes}) {
    const std::string message = message_of(bytes, bytes);
    const auto frames = to_frames(message, ++stream);
    EXPECT_EQ(frames.size(), bytes <= kMaxFrameBytes ? 1 : (bytes + kChunkPayloadBytes - 1) / kChunkPayloadBytes);
    for (const auto& frame : frames)
      EXPECT_LE(frame.size(), kMaxFrameBytes);
    expect_whole(reassembler, frames, message);
  }
}

class ThreeChunks : public ::testing::Test {
 protected:
  const std::string message_ = message_of(2 * kChunkPayloadBytes + 1000, 1);
  const std::vector<std::string> frames_ = to_frames(message_, 1);
  const std::string other_ = message_of(2 * kChunkPayloadBytes + 1000, 2);
  const std::vector<std::string> other_frames_ = to_frames(other_, 2);
  Reassembler reassembler_;

  // Whatever happened before, the next message arrives.
  void TearDown() override { expect_whole(reassembler_, to_frames(message_, 99), message_); }
};

TEST_F(ThreeChunks, SmallMessagesPassBetweenThem) {
  add_part(reassembler_, frames_[0]);
  EXPECT_EQ(reassembler_.add("small 8.").value(), Whole("small 8."));
  add_part(reassembler_, frames_[1]);
  EXPECT_TRUE(reassembler_.add(frames_[2]).value() == Whole(message_));
}

TEST_F(ThreeChunks, AMissingOneDropsTheMessage) {
  add_part(reassembler_, frames_[0]);
  expect_refused(reassembler_, frames_[2], ErrorCode::kCorrupted);
  EXPECT_EQ(reassembler_.pending_bytes(), 0U);
  expect_refused(reassembler_, frames_[1], ErrorCode::kStale);
}

TEST_F(ThreeChunks, ARepeatedOneDropsTheMessage) {
  for (const std::size_t repeated : {0U, 1U}) {
    add_part(reassembler_, frames_[0]);
    add_part(reassembler_, frames_[1]);
    expect_refused(reassembler_, frames_[repeated], ErrorCode::kCorrupted);
    expect_refused(reassembler_, frames_[2], ErrorCode::kStale);
  }
}

TEST_F(ThreeChunks, ReorderedOnesNeverMakeAMessage) {
  std::vector<std::size_t> order{0, 1, 2};
  while (std::next_permutation(order.begin(), order.end())) {
    Reassembler reassembler;
    for (const std::size_t i : order) {
      const auto added = reassembler.add(frames_[i]);
      EXPECT_FALSE(added && added->has_value());
    }
  }
}

TEST_F(ThreeChunks, AnotherStreamEndsAnIncompleteOne) {
  add_part(reassembler_, frames_[0]);
  add_part(reassembler_, frames_[1]);
  add_part(reassembler_, other_frames_[0]);
  EXPECT_EQ(reassembler_.pending_bytes(), kChunkPayloadBytes);
  expect_refused(reassembler_, frames_[2], ErrorCode::kStale);
  add_part(reassembler_, other_frames_[1]);
  EXPECT_TRUE(reassembler_.add(other_frames_[2]).value() == Whole(other_));
}

TEST_F(ThreeChunks, TwoMessagesOfOneStreamAreNotMixed) {
  add_part(reassembler_, frames_[0]);
  expect_refused(reassembler_, to_frames(other_, 1)[1], ErrorCode::kCorrupted);
}

TEST_F(ThreeChunks, DamageIsFoundInEveryPartOfTheHeaderAndInTheContent) {
  for (std::size_t at = 8; at < kChunkHeaderBytes + 64; at += 3) {
    std::string damaged = frames_[0];
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    expect_refused(reassembler_, damaged, ErrorCode::kCorrupted);
  }
  expect_refused(reassembler_, frames_[0].substr(0, frames_[0].size() - 8), ErrorCode::kCorrupted);
  expect_refused(reassembler_, frames_[0].substr(0, kChunkHeaderBytes), ErrorCode::kCorrupted);
  expect_refused(reassembler_, frames_[0].substr(0, 8), ErrorCode::kCorrupted);
}

TEST_F(ThreeChunks, WhatIsTooLargeIsRefusedAtItsFirstChunk) {
  Reassembler small(message_.size() - 1);
  expect_refused(small, frames_[0], ErrorCode::kResourceExhausted);
  EXPECT_EQ(small.pending_bytes(), 0U);
  expect_refused(small, std::string(kMaxFrameBytes + 1, 'x'), ErrorCode::kCorrupted);
  Reassembler large(message_.size());
  expect_whole(large, frames_, message_);
}

}  // namespace
}  // namespace weightbus::wire
