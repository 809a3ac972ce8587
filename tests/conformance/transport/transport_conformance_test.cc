// What every Transport promises, on ZeroMQ with and without keys and in memory.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "weightbus/transport/local/local_transport.h"
#include "weightbus/transport/zmq/zmq_transport.h"

namespace weightbus::transport {
namespace {

using base::ErrorCode;

constexpr auto kLong = std::chrono::seconds(20);  // never waited for in full by a test that passes
constexpr auto kStep = base::Millis(20);

// Makes the parties of a test: one listener and any number of clients.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Transport> listener() = 0;
  virtual std::unique_ptr<Transport> client() = 0;
  virtual std::string listener_key() const { return {}; }
  virtual bool has_identity() const { return false; }
};

class LocalBackend final : public Backend {
 public:
  std::unique_ptr<Transport> listener() override { return hub_.make(); }
  std::unique_ptr<Transport> client() override { return hub_.make(); }

 private:
  LocalHub hub_;
};

class PlainBackend final : public Backend {
 public:
  std::unique_ptr<Transport> listener() override { return client(); }
  std::unique_ptr<Transport> client() override { return ZmqTransport::create({}).value(); }
};

class CurveBackend final : public Backend {
 public:
  std::unique_ptr<Transport> listener() override {
    ZmqOptions options;
    options.keys = listener_keys_;
    const auto line = allow_line({client_keys_.public_key, model::Role::kEngineAgent, model::MemberId("e0"), ""});
    options.allow = AllowList::parse(line, "test").value();
    return ZmqTransport::create(std::move(options)).value();
  }
  std::unique_ptr<Transport> client() override {
    ZmqOptions options;
    options.keys = client_keys_;
    return ZmqTransport::create(std::move(options)).value();
  }
  std::string listener_key() const override { return listener_keys_.public_key; }
  bool has_identity() const override { return true; }

 private:
  const KeyPair listener_keys_ = generate_keys().value();
  const KeyPair client_keys_ = generate_keys().value();
};

using MakeBackend = std::function<std::unique_ptr<Backend>()>;

class TransportConformance : public testing::TestWithParam<std::pair<const char*, MakeBackend>> {
 protected:
  void SetUp() override {
    backend_ = GetParam().second();
    listener_ = backend_->listener();
    endpoint_ = listener_->bind("tcp://127.0.0.1:*").value();
  }

  std::unique_ptr<Transport> connected_client() {
    auto client = backend_->client();
    EXPECT_TRUE(client->connect("coordinator", endpoint_, backend_->listener_key()));
    return client;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Transport> listener_;
  std::string endpoint_;
};

std::string numbered(std::size_t number, std::size_t size) {
  auto frame = std::to_string(number) + ":";
  frame.resize(std::max(size, frame.size()), static_cast<char>('a' + number % 26));
  return frame;
}

// Sends until the queue takes it: a full queue is an answer, not an error.
void send_patiently(Transport& transport, const std::string& connection, const std::string& frame) {
  while (true) {
    const auto sent = transport.send(connection, frame);
    if (sent) return;
    ASSERT_EQ(sent.error().code, ErrorCode::kUnavailable) << sent.error().message;
    std::this_thread::yield();
  }
}

TEST_P(TransportConformance, FramesArriveWholeAndInOrder) {
  auto client = connected_client();
  constexpr std::size_t kFrames = 300;
  const auto size = [](std::size_t i) { return i * i * 7 % 50000; };
  std::thread sender([&] {
    for (std::size_t i = 0; i < kFrames; ++i)
      send_patiently(*client, "coordinator", numbered(i, size(i)));
  });
  for (std::size_t i = 0; i < kFrames; ++i) {
    const auto received = listener_->receive(kLong);
    ASSERT_TRUE(received) << i;
    ASSERT_EQ(received->frame, numbered(i, size(i)));
  }
  sender.join();
}

TEST_P(TransportConformance, EmptyAndLargestFramesArrive) {
  auto client = connected_client();
  const std::string largest(kMaxFrameBytes, '\0');
  ASSERT_TRUE(client->send("coordinator", ""));
  ASSERT_TRUE(client->send("coordinator", largest));
  auto first = listener_->receive(kLong);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->frame, "");
  auto second = listener_->receive(kLong);
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->frame == largest);
}

TEST_P(TransportConformance, RepliesReachTheConnectionTheyAnswer) {
  auto first = connected_client();
  auto second = connected_client();
  ASSERT_TRUE(first->send("coordinator", "from first"));
  ASSERT_TRUE(second->send("coordinator", "from second"));
  std::set<std::string> connections;
  for (int i = 0; i < 2; ++i) {
    const auto received = listener_->receive(kLong);
    ASSERT_TRUE(received);
    connections.insert(received->connection);
    EXPECT_EQ(received->identity.has_value(), backend_->has_identity());
    ASSERT_TRUE(listener_->send(received->connection, "to " + received->frame));
  }
  EXPECT_EQ(connections.size(), 2U);
  const auto to_first = first->receive(kLong);
  ASSERT_TRUE(to_first);
  EXPECT_EQ(to_first->connection, "coordinator");
  EXPECT_EQ(to_first->frame, "to from first");
  const auto to_second = second->receive(kLong);
  ASSERT_TRUE(to_second);
  EXPECT_EQ(to_second->frame, "to from second");
}

TEST_P(TransportConformance, OversizedFramesAreRefusedAndCounted) {
  auto client = connected_client();
  const auto sent = client->send("coordinator", std::string(kMaxFrameBytes + 1, 'x'));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(client->drops().oversized, 1U);
  ASSERT_TRUE(client->send("coordinator", "small"));
  const auto received = listener_->receive(kLong);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->frame, "small");
}

TEST_P(TransportConformance, UnknownConnectionsAreUnavailable) {
  auto client = backend_->client();
  for (const char* name : {"nobody", "#0011223344", "#", "#zz", ""}) {
    const auto sent = client->send(name, "x");
    ASSERT_FALSE(sent) << name;
    EXPECT_EQ(sent.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(listener_->send(name, "x").error().code, ErrorCode::kUnavailable);
  }
}

TEST_P(TransportConformance, ADisconnectedConnectionIsUnavailableOnBothSides) {
  auto client = connected_client();
  ASSERT_TRUE(client->send("coordinator", "hello"));
  const auto received = listener_->receive(kLong);
  ASSERT_TRUE(received);
  client->disconnect("coordinator");
  client->disconnect("coordinator");
  EXPECT_EQ(client->send("coordinator", "x").error().code, ErrorCode::kUnavailable);
  auto sent = listener_->send(received->connection, "x");
  for (int i = 0; sent && i < 1000; ++i) {
    EXPECT_FALSE(listener_->receive(kStep));
    sent = listener_->send(received->connection, "x");
  }
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kUnavailable);
}

TEST_P(TransportConformance, AFullQueueIsUnavailableAndNothingBlocks) {
  auto client = connected_client();
  listener_.reset();
  base::Status sent;
  for (int i = 0; sent && i < 100000; ++i)
    sent = client->send("coordinator", "nobody reads this");
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kUnavailable);
}

TEST_P(TransportConformance, ReceiveEndsAtItsTimeout) {
  EXPECT_FALSE(listener_->receive(base::Duration::zero()));
  EXPECT_FALSE(listener_->receive(base::Millis(1)));
  EXPECT_FALSE(listener_->receive(base::Millis(-5)));
}

TEST_P(TransportConformance, WakeEndsReceiveNowOrNextTime) {
  listener_->wake();
  listener_->wake();
  EXPECT_FALSE(listener_->receive(kLong));
  std::thread waker([&] { listener_->wake(); });
  EXPECT_FALSE(listener_->receive(std::chrono::hours(1000000)));
  waker.join();
}

TEST_P(TransportConformance, AnEndpointInUseIsAConflict) {
  auto other = backend_->listener();
  const auto bound = other->bind(endpoint_);
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().code, ErrorCode::kConflict);
}

TEST_P(TransportConformance, BadEndpointsAndNamesAreRefused) {
  for (const char* bad :
       {"", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:70000", "http://x:1", "ipc://", "tcp://::1:5"}) {
    EXPECT_EQ(listener_->bind(bad).error().code, ErrorCode::kInvalidArgument) << bad;
    EXPECT_EQ(listener_->connect("c", bad, "").error().code, ErrorCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(listener_->connect("c", "tcp://127.0.0.1:*", "").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(listener_->connect("#00", endpoint_, "").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(listener_->connect("", endpoint_, "").error().code, ErrorCode::kInvalidArgument);
}

TEST_P(TransportConformance, ConnectionsComeBackWhenTheListenerDoes) {
  auto client = connected_client();
  ASSERT_TRUE(client->send("coordinator", "first"));
  const auto before = listener_->receive(kLong);
  ASSERT_TRUE(before);
  listener_.reset();
  listener_ = backend_->listener();
  auto bound = listener_->bind(endpoint_);
  ASSERT_TRUE(bound) << bound.error().message;
  // Frames may be lost while nobody listens, so this repeats as the protocol does.
  std::optional<Received> after;
  for (int i = 0; !after && i < 1000; ++i) {
    static_cast<void>(client->send("coordinator", "again"));
    static_cast<void>(client->receive(base::Duration::zero()));
    after = listener_->receive(kStep);
  }
  ASSERT_TRUE(after);
  EXPECT_EQ(after->frame, "again");
  ASSERT_TRUE(listener_->send(after->connection, "welcome"));
  const auto reply = client->receive(kLong);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->frame, "welcome");
}

TEST_P(TransportConformance, ConnectingElsewhereReplacesTheConnection) {
  auto client = connected_client();
  auto other = backend_->listener();
  const auto elsewhere = other->bind("tcp://127.0.0.1:0");
  ASSERT_TRUE(elsewhere);
  ASSERT_NE(*elsewhere, endpoint_);
  ASSERT_TRUE(client->connect("coordinator", *elsewhere, backend_->listener_key()));
  ASSERT_TRUE(client->send("coordinator", "moved"));
  const auto received = other->receive(kLong);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->frame, "moved");
  // The same again keeps the connection: the listener still knows it by its name.
  ASSERT_TRUE(client->connect("coordinator", *elsewhere, backend_->listener_key()));
  ASSERT_TRUE(client->send("coordinator", "kept"));
  const auto kept = other->receive(kLong);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->connection, received->connection);
}

TEST_P(TransportConformance, ManyThreadsSendWhileOneReceives) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kFrames = 200;
  auto client = connected_client();
  std::vector<std::thread> senders;
  for (std::size_t t = 0; t < kThreads; ++t) {
    senders.emplace_back([&, t] {
      for (std::size_t i = 0; i < kFrames; ++i) {
        send_patiently(*client, "coordinator", std::to_string(t) + "/" + std::to_string(i));
      }
    });
  }
  // The listener answers each frame from this thread; the client reads answers in another.
  std::atomic<std::size_t> answers{0};
  std::thread reader([&] {
    while (answers < kThreads * kFrames && client->receive(kLong))
      ++answers;
  });
  std::map<std::string, std::size_t> next;
  for (std::size_t i = 0; i < kThreads * kFrames; ++i) {
    const auto received = listener_->receive(kLong);
    ASSERT_TRUE(received);
    const auto slash = received->frame.find('/');
    const auto thread = received->frame.substr(0, slash);
    // Frames of one thread keep their order.
    EXPECT_EQ(received->frame.substr(slash + 1), std::to_string(next[thread]++));
    send_patiently(*listener_, received->connection, received->frame);
  }
  for (auto& sender : senders)
    sender.join();
  reader.join();
  EXPECT_EQ(answers, kThreads * kFrames);
}

template <class T>
std::pair<const char*, MakeBackend> backend(const char* name) {
  return {name, [] { return std::make_unique<T>(); }};
}

INSTANTIATE_TEST_SUITE_P(Backends, TransportConformance,
                         testing::Values(backend<LocalBackend>("local"), backend<PlainBackend>("zmq_plain"),
                                         backend<CurveBackend>("zmq_curve")),
                         [](const auto& param) { return std::string(param.param.first); });

}  // namespace
}  // namespace weightbus::transport
