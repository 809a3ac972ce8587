#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/device/copy_cases.h"
#include "weightbus/channel/tcp/factory.h"
#include "weightbus/channel/tcp/frames.h"
#include "weightbus/channel/tcp/socket.h"
#include "weightbus/channel/tcp/tcp_pull.h"
#include "weightbus/device/host/factory.h"

namespace weightbus::channel {
namespace {

using base::ErrorCode;
using weightbus::testing::PartBuilder;
using weightbus::testing::SinkMemory;

constexpr base::Duration kPlenty = std::chrono::seconds(60);

// A source of one bucket, and raw connections to its port.
class TcpTest : public ::testing::Test {
 protected:
  void start(TcpOptions options) {
    options.counters = counters_;
    channel_ = make_tcp_channel(options);
    ASSERT_TRUE(channel_->viability().usable) << channel_->viability().reason;
    part_.bucket();
    part_.dense({1000});
    const std::string name = "weightbus.test." + std::to_string(::getpid()) + ".tcp";
    auto memory = device_->allocate(name, part_.from_bytes[0]);
    ASSERT_TRUE(memory) << memory.error().message;
    device_->remove(name);
    memory_ = std::move(*memory);
    auto session = channel_->serve({model::MemberId("source"), {memory_.get()}, "token"});
    ASSERT_TRUE(session);
    source_ = std::move(*session);
    auto part = std::make_shared<plan::SourcePart>();
    part->tensors = part_.tensors;
    part->buckets = part_.buckets;
    source_->set_part(std::move(part));
    descriptor_ = *TcpDescriptor::decode(source_->offer().descriptor);
  }
  Fd connect() {
    auto fd = connect_to(descriptor_.address, limits_, sink_limits_);
    EXPECT_TRUE(fd) << fd.error().message;
    return fd ? std::move(*fd) : Fd();
  }
  void send(const Fd& fd, const std::string& bytes) {
    EXPECT_TRUE(send_all(fd.get(), bytes.data(), bytes.size(), false, sink_limits_));
  }
  std::string receive(const Fd& fd, std::size_t size) {
    std::string bytes(size, '\0');
    const auto status = receive_all(fd.get(), bytes.data(), size, sink_limits_);
    return status ? bytes : "";
  }
  // Whether the source has ended the connection: whatever it still had to say comes first.
  bool ends(const Fd& fd) {
    char byte = 0;
    while (true) {
      const auto status = receive_all(fd.get(), &byte, 1, sink_limits_);
      if (!status) return status.error().code == ErrorCode::kUnavailable;
    }
  }
  Fd authenticated() {
    Fd fd = connect();
    const auto hello = ServerHello::decode(receive(fd, ServerHello::kSize));
    EXPECT_TRUE(hello);
    const Secret nonce = random_secret();
    const auto proof = make_proof(hash_token("token"), "sink", hello->nonce, nonce, descriptor_.session, "sink");
    send(fd, ClientHello{1, descriptor_.session, 4, nonce, proof}.encode() + "sink");
    EXPECT_EQ(ServerWelcome::decode(receive(fd, ServerWelcome::kSize))->refusal, 0);
    return fd;
  }
  void expect_serving() {
    auto session =
        channel_->join({model::MemberId("source"), model::MemberId("sink"), source_->offer(), "token", kPlenty});
    ASSERT_TRUE(session) << session.error().message;
    SinkMemory memory(part_.to_bytes);
    device::Control control;
    const auto status = (*session)->pull(part_.buckets, part_.tensors, memory.pointers(), kPlenty, control);
    EXPECT_TRUE(status) << status.error().message;
  }

  const std::shared_ptr<TcpCounters> counters_ = std::make_shared<TcpCounters>();
  const std::shared_ptr<device::Device> device_ = device::make_host_device();
  std::unique_ptr<device::Memory> memory_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<SourceSession> source_;
  PartBuilder part_{"source", "sink"};
  TcpDescriptor descriptor_;
  const model::MemberId self_{"test"};
  const PullLimits limits_{self_, kPlenty, nullptr};
  SinkLimits sink_limits_{limits_};
};

// Field case F18: a bad message ends its own connection, is counted, and nothing else happens.
TEST_F(TcpTest, GarbageEndsOnlyItsConnection) {
  start({});
  base::Prng prng(5);
  for (int i = 0; i < 20; ++i) {
    const Fd fd = connect();
    std::string bytes;
    for (int j = 0; j < 200; ++j)
      bytes.push_back(static_cast<char>(prng.next()));
    send(fd, bytes);
    EXPECT_TRUE(ends(fd));
  }
  EXPECT_EQ(counters_->malformed, 20U);
  EXPECT_EQ(counters_->accepted, 0U);
  expect_serving();
}

TEST_F(TcpTest, FramesOutOfTurnEndTheConnection) {
  start({});
  const std::vector<Request> wrong{{RequestKind::kCredit},
                                   {RequestKind::kPull, 0, 0, 2},
                                   {RequestKind::kPull, 0, 1, 0},
                                   {static_cast<RequestKind>(77), 0, 1, 1}};
  std::uint64_t count = 0;
  for (const auto& request : wrong) {
    const Fd fd = authenticated();
    send(fd, request.encode());
    EXPECT_TRUE(ends(fd));
    ++count;
  }
  source_.reset();  // waits for its connections, so that they have been counted
  channel_.reset();
  EXPECT_EQ(counters_->malformed, count);
}

TEST_F(TcpTest, ASinkThatAsksForBucketsOfAnotherPlanIsTold) {
  start({});
  for (const auto& request :
       {Request{RequestKind::kPull, 0, 2, 2}, Request{RequestKind::kPull, 0xffffffff, 0xffffffff, 2}}) {
    const Fd fd = authenticated();
    send(fd, request.encode());
    const auto header = BucketHeader::decode(receive(fd, BucketHeader::kSize));
    ASSERT_TRUE(header);
    EXPECT_EQ(header->kind, HeaderKind::kFailed);
    EXPECT_EQ(header->number, static_cast<std::uint32_t>(ErrorCode::kInvalidArgument));
    EXPECT_THAT(receive(fd, header->bytes), ::testing::HasSubstr("source has 1 buckets for sink"));
    EXPECT_TRUE(ends(fd));
  }
  expect_serving();
}

TEST_F(TcpTest, ARecordedProofIsOfNoUseLater) {
  start({});
  Fd fd = connect();
  auto hello = ServerHello::decode(receive(fd, ServerHello::kSize));
  ASSERT_TRUE(hello);
  const Secret nonce = random_secret();
  const auto proof = make_proof(hash_token("token"), "sink", hello->nonce, nonce, descriptor_.session, "sink");
  const auto recorded = ClientHello{1, descriptor_.session, 4, nonce, proof}.encode() + "sink";
  fd = connect();
  receive(fd, ServerHello::kSize);
  send(fd, recorded);
  const auto welcome = ServerWelcome::decode(receive(fd, ServerWelcome::kSize));
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->refusal, static_cast<std::uint16_t>(ErrorCode::kPermissionDenied));
  EXPECT_TRUE(ends(fd));
  EXPECT_EQ(counters_->refused_token, 1U);
}

TEST_F(TcpTest, AnotherRevisionIsRefused) {
  start({});
  const Fd fd = connect();
  receive(fd, ServerHello::kSize);
  send(fd, ClientHello{2, descriptor_.session, 0, Secret{}, Secret{}}.encode());
  const auto welcome = ServerWelcome::decode(receive(fd, ServerWelcome::kSize));
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->refusal, static_cast<std::uint16_t>(ErrorCode::kUnsupported));
}

TEST_F(TcpTest, ASilentConnectionIsDroppedAtTheHandshakesDeadline) {
  start({.handshake = std::chrono::milliseconds(30)});
  const Fd fd = connect();
  receive(fd, ServerHello::kSize);
  EXPECT_TRUE(ends(fd));
  EXPECT_EQ(counters_->malformed, 1U);
}

TEST_F(TcpTest, ASinkThatTakesNothingIsDropped) {
  start({.stall = std::chrono::milliseconds(30)});
  const Fd fd = authenticated();
  const auto half = Request{RequestKind::kPull, 0, 1, 2}.encode().substr(0, 8);
  send(fd, half);
  EXPECT_TRUE(ends(fd));
}

TEST_F(TcpTest, ConnectionsAreBounded) {
  start({.connections_max = 2});
  const Fd first = connect();
  const Fd second = connect();
  EXPECT_FALSE(receive(first, 1).empty());
  EXPECT_FALSE(receive(second, 1).empty());
  const Fd third = connect();
  EXPECT_TRUE(ends(third));
  EXPECT_EQ(counters_->over_limit, 1U);
}

// Field case F07.
TEST_F(TcpTest, ATakenPortIsTheReasonWhyTheChannelIsNotViable) {
  start({});
  const auto address = format_host_port(descriptor_.address);
  const auto second = make_tcp_channel({.listen = address});
  EXPECT_FALSE(second->viability().usable);
  EXPECT_THAT(second->viability().reason, ::testing::HasSubstr(address));
  const auto session = second->serve({model::MemberId("source"), {memory_.get()}, "token"});
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(make_tcp_channel({.listen = "nonsense"})->viability().usable);
}

TEST_F(TcpTest, AnyAddressAndAdvertisedNamesWork) {
  start({.listen = "*:0", .advertise = "localhost"});
  EXPECT_EQ(descriptor_.address.host, "localhost");
  expect_serving();
}

TEST_F(TcpTest, AnOfferOfAPortWithoutAListenerIsUnavailable) {
  start({});
  // A socket that is bound and does not listen keeps the port from anyone else.
  const auto held = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(held);
  auto descriptor = descriptor_;
  descriptor.address = *bound_address(held->get());
  ASSERT_EQ(::shutdown(held->get(), SHUT_RDWR), 0);
  const auto session = channel_->join(
      {model::MemberId("source"), model::MemberId("sink"), {"tcp", descriptor.encode()}, "token", kPlenty});
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, ErrorCode::kUnavailable) << session.error().message;
}

}  // namespace
}  // namespace weightbus::channel
