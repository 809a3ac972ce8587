// Field cases of the control plane: what arrives on a port, and what it may do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/field/fleet.h"
#include "weightbus/base/prng.h"
#include "weightbus/runtime/control_link.h"
#include "weightbus/transport/endpoint.h"
#include "weightbus/transport/local/local_transport.h"
#include "weightbus/transport/zmq/zmq_transport.h"
#include "weightbus/wire/chunks.h"
#include "weightbus/wire/codec.h"

namespace weightbus::field {
namespace {

using base::ErrorCode;
using ::testing::HasSubstr;

constexpr auto kLong = std::chrono::seconds(20);

// A port was chosen by bind-then-close and taken before it was used; IPv6 hosts failed to parse.
TEST(Field, F07_EveryWayToWriteAnAddressIsReadAndWrittenBack) {
  for (const char* text : {"tcp://127.0.0.1:7000", "tcp://[::1]:7000", "tcp://[2001:db8::5]:7000",
                           "tcp://trainer-0.example:7000", "tcp://localhost:7000", "ipc:///run/weightbus.sock"}) {
    const auto endpoint = transport::parse_endpoint(text);
    ASSERT_TRUE(endpoint) << endpoint.error().message;
    EXPECT_EQ(endpoint->to_string(), text);
  }
  EXPECT_EQ(transport::parse_endpoint("tcp://[::1]:7000")->host, "::1");
  EXPECT_TRUE(transport::parse_endpoint("tcp://[::1]:7000")->is_loopback());
}

TEST(Field, F07_AControlPortIsOursFromTheMomentItIsChosen) {
  for (const char* any : {"tcp://127.0.0.1:0", "tcp://[::1]:0", "tcp://localhost:0"}) {
    auto listener = transport::ZmqTransport::create({}).value();
    const auto bound = listener->bind(any);
    ASSERT_TRUE(bound) << bound.error().message;
    auto second = transport::ZmqTransport::create({}).value();
    const auto taken = second->bind(*bound);
    ASSERT_FALSE(taken) << *bound;
    EXPECT_EQ(taken.error().code, ErrorCode::kConflict) << taken.error().message;
    // The endpoint as bound is what others connect to.
    ASSERT_TRUE(second->connect("c", *bound, ""));
    ASSERT_TRUE(second->send("c", "hello"));
    const auto received = listener->receive(kLong);
    ASSERT_TRUE(received) << *bound;
    EXPECT_EQ(received->frame, "hello");
  }
}

// A malformed or hostile message on the update port ran code. A bad one is counted and dropped, and the next good one
// of the same connection is read.
TEST(Field, F18_MalformedFramesAreCountedAndDropped) {
  Fleet fleet;
  fleet.push(1);
  transport::LocalHub hub;
  const auto listener = hub.make();
  const auto client = hub.make();
  const auto endpoint = listener->bind("tcp://127.0.0.1:0").value();
  ASSERT_TRUE(client->connect("c", endpoint, ""));
  runtime::ControlLink link(*listener);
  base::Prng prng(18);
  std::uint64_t bad = 0;
  const auto drop = [&](const std::string& frame) {
    ASSERT_TRUE(client->send("c", frame));
    EXPECT_FALSE(link.receive(kLong));
    EXPECT_EQ(link.counters().malformed + link.counters().unsupported, ++bad);
  };
  for (std::size_t i = 0; i < fleet.sent().size(); i += 3) {
    const auto good = wire::encode(fleet.sent()[i]);
    drop(good.substr(0, prng.below(good.size())));
    drop(good + std::string(8, '\0'));
    auto header = good;
    header[prng.below(4)] = static_cast<char>(0x7f);  // a number of segments beyond all reason
    drop(header);
    std::string noise(8 * (1 + prng.below(64)), '\0');
    for (auto& c : noise)
      c = static_cast<char>(prng.next() & 0xff);
    drop(noise);
    ASSERT_TRUE(client->send("c", good));
    const auto received = link.receive(kLong);
    ASSERT_TRUE(received) << link.counters().last_error;
    EXPECT_EQ(received->envelope.body.index(), fleet.sent()[i].body.index());
  }
  EXPECT_GT(bad, 40U);
  EXPECT_EQ(client->send("c", std::string(transport::kMaxFrameBytes + 1, 'x')).error().code,
            ErrorCode::kInvalidArgument);
}

// The start of an endless message binds no memory beyond what has arrived.
TEST(Field, F18_AnAnnouncedSizeReservesNothing) {
  auto chunks = wire::to_frames(std::string(3 * wire::kChunkPayloadBytes, 'x'), 1);
  ASSERT_GT(chunks.size(), 2U);
  wire::Reassembler small(2 * wire::kChunkPayloadBytes);
  const auto refused = small.add(chunks[0]);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(small.pending_bytes(), 0U);
}

// Well-formed messages of strangers, of older epochs and of other updates change nothing.
TEST(Field, F18_WhoIsNotInAnUpdateCannotSteerIt) {
  Fleet fleet;
  fleet.push(1);
  fleet.fate = [](const Agent& agent, const protocol::AgentAction& action) {
    return std::holds_alternative<protocol::DoPull>(action) && agent.self.id.value() == "engine-1/1" ? Fate::kNever
                                                                                                     : Fate::kDone;
  };
  fleet.push(2);
  ASSERT_TRUE(fleet.status().running);
  const auto update = fleet.status().running->update;
  const auto epoch = fleet.status().epoch;
  const model::ModelName model{"toy"};
  const auto half = fleet.agent("engine-1/1").engine->halves();
  const auto dropped = fleet.dropped();
  const protocol::Tag tag{model::WeightVersion(2), {}, update};
  const auto from = [&](const char* member, std::optional<model::UpdateId> of, protocol::Body body, const char* to,
                        model::Epoch e) {
    fleet.inject({e, model, of, model::MemberId(member), model::MemberId(to), 0, std::move(body)});
  };
  from("stranger", update, protocol::Staged{tag, {}, {}}, "coordinator", epoch);
  from("shard-0", update, protocol::Staged{tag, {}, {}}, "coordinator", epoch);
  from("engine-1/1", model::UpdateId(1), protocol::Staged{tag, {}, {}}, "coordinator", epoch);
  from("engine-1/1", update, protocol::Committed{model::WeightVersion(2)}, "coordinator", epoch);
  const model::Epoch older{epoch.journal, epoch.number - 1};
  from("coordinator", update, protocol::Commit{model::WeightVersion(2), {{model::MemberId("engine-0/0"), tag}}, 100},
       "engine-0/0", older);
  from("coordinator", update, protocol::Abort{{ErrorCode::kAborted, "stop"}}, "engine-0/0", older);
  from("engine-0/0", std::nullopt, protocol::RankPause{99, 100}, "engine-1/0", epoch);
  EXPECT_GE(fleet.dropped(), dropped + 4);
  ASSERT_TRUE(fleet.status().running);
  EXPECT_EQ(fleet.status().committed, model::WeightVersion(1));
  EXPECT_EQ(fleet.agent("engine-1/1").engine->halves(), half);
  EXPECT_TRUE(fleet.all_serve(1));
  EXPECT_TRUE(fleet.ready("engine-1/0"));
}

// Everything that two updates sent, once more: a repeated message changes nothing twice, and nothing goes back.
TEST(Field, F18_ARecordedConversationIsOfNoUse) {
  Fleet fleet;
  fleet.push(1);
  fleet.push(2);
  ASSERT_TRUE(fleet.all_serve(2));
  std::map<model::MemberId, std::pair<std::uint64_t, std::uint64_t>> before;
  for (const auto& [id, agent] : fleet.agents())
    before[id] = {agent.exchanges, agent.pulls};
  const auto recorded = fleet.sent();
  for (const auto& envelope : recorded)
    if (envelope.update || envelope.request != 0) fleet.inject(envelope);
  fleet.pass(base::Millis(3'000));
  EXPECT_FALSE(fleet.status().running);
  EXPECT_EQ(fleet.status().committed, model::WeightVersion(2));
  EXPECT_TRUE(fleet.all_serve(2));
  for (const auto& [id, agent] : fleet.agents())
    EXPECT_EQ(std::pair(agent.exchanges, agent.pulls), before[id]) << id.value();
  EXPECT_TRUE(fleet.ready("engine-0/0") && fleet.ready("engine-1/1"));
}

}  // namespace
}  // namespace weightbus::field
