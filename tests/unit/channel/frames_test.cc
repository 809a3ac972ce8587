#include "weightbus/channel/tcp/frames.h"

#include <gtest/gtest.h>

#include "weightbus/channel/encoding.h"
#include "weightbus/channel/tcp/socket.h"

namespace weightbus::channel {
namespace {

TEST(Encoding, EndsAtItsEnd) {
  Encoder encoder;
  encoder.number(std::uint16_t{0x1234});
  encoder.string("abc");
  const auto bytes = encoder.take();
  EXPECT_EQ(bytes, std::string("\x34\x12\x03\0\0\0abc", 9));
  Decoder decoder(bytes);
  EXPECT_EQ(decoder.number<std::uint16_t>(), 0x1234);
  EXPECT_EQ(decoder.string(3), "abc");
  EXPECT_TRUE(decoder.done());
  EXPECT_EQ(decoder.number<std::uint8_t>(), std::nullopt);
  Decoder bounded(std::string_view(bytes).substr(2));
  EXPECT_EQ(bounded.string(2), std::nullopt) << "longer than allowed";
  Decoder cut(std::string_view(bytes).substr(2, 5));
  EXPECT_EQ(cut.string(100), std::nullopt) << "longer than what is there";
}

template <class Frame>
void expect_whole_only(const Frame& frame) {
  const auto bytes = frame.encode();
  ASSERT_EQ(bytes.size(), Frame::kSize);
  ASSERT_TRUE(Frame::decode(bytes));
  EXPECT_EQ(Frame::decode(bytes)->encode(), bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(Frame::decode(std::string_view(bytes).substr(0, size))) << size;
  }
}

TEST(Frames, RoundTripAndNeverFromPart) {
  expect_whole_only(ServerHello{1, random_secret()});
  expect_whole_only(ClientHello{1, 99, 5, random_secret(), random_secret()});
  expect_whole_only(ServerWelcome{7, random_secret()});
  expect_whole_only(Request{RequestKind::kPull, 1, 2, 3});
  expect_whole_only(BucketHeader{HeaderKind::kData, 3, 1ULL << 40});
}

TEST(Frames, UnknownKindsAndLongNamesAreRefused) {
  Request request{RequestKind::kPull, 1, 2, 3};
  request.kind = static_cast<RequestKind>(3);
  EXPECT_FALSE(Request::decode(request.encode()));
  EXPECT_FALSE(BucketHeader::decode(BucketHeader{static_cast<HeaderKind>(0), 0, 0}.encode()));
  EXPECT_FALSE(ClientHello::decode(ClientHello{1, 1, 256, Secret{}, Secret{}}.encode()));
}

TEST(Frames, AProofDependsOnEverythingThatWasSaid) {
  const auto key = hash_token("token");
  const Secret one{1};
  const Secret two{2};
  const auto proof = make_proof(key, "sink", one, two, 1, "name");
  EXPECT_TRUE(equal_secrets(proof, make_proof(key, "sink", one, two, 1, "name")));
  EXPECT_FALSE(equal_secrets(proof, make_proof(hash_token("tokeN"), "sink", one, two, 1, "name")));
  EXPECT_FALSE(equal_secrets(proof, make_proof(key, "source", one, two, 1, "name")));
  EXPECT_FALSE(equal_secrets(proof, make_proof(key, "sink", two, one, 1, "name")));
  EXPECT_FALSE(equal_secrets(proof, make_proof(key, "sink", one, two, 2, "name")));
  EXPECT_FALSE(equal_secrets(proof, make_proof(key, "sink", one, two, 1, "other")));
}

TEST(HostPortText, NamesNumbersAndBracketsWorkEverywhere) {
  for (const char* text : {"127.0.0.1:80", "[::1]:0", "host.example:65535", "*:1"}) {
    const auto address = parse_host_port(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(format_host_port(*address), text);
  }
  for (const char* text :
       {"", "host", ":80", "host:", "host:65536", "host:-1", "host:8x", "::1:80", "[::1]", "[::1:80"}) {
    EXPECT_FALSE(parse_host_port(text)) << text;
  }
}

}  // namespace
}  // namespace weightbus::channel
