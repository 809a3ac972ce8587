// What only sockets can promise: keys, strangers, and peers that speak something else.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "weightbus/base/prng.h"
#include "weightbus/transport/endpoint.h"
#include "weightbus/transport/zmq/zmq_transport.h"

namespace weightbus::transport {
namespace {

using base::ErrorCode;
using testing::HasSubstr;

constexpr auto kLong = std::chrono::seconds(20);
constexpr auto kStep = base::Millis(20);

AllowList allow(std::initializer_list<AllowEntry> entries) {
  std::string text;
  for (const auto& entry : entries)
    text += allow_line(entry) + "\n";
  return AllowList::parse(text, "test").value();
}

AllowEntry entry(const KeyPair& keys, const char* member, model::Role role = model::Role::kEngineAgent) {
  return {keys.public_key, role, model::MemberId(member), ""};
}

std::unique_ptr<ZmqTransport> with_keys(const KeyPair& keys, AllowList list = {}) {
  ZmqOptions options;
  options.keys = keys;
  options.allow = std::move(list);
  options.recover_after = base::Millis(50);
  return ZmqTransport::create(std::move(options)).value();
}

// Repeats `frame` from the client until the listener has it; nullopt after `rounds` without.
std::optional<Received> exchange(Transport& client, Transport& listener, const std::string& frame, int rounds = 1000) {
  for (int i = 0; i < rounds; ++i) {
    static_cast<void>(client.send("c", frame));
    static_cast<void>(client.receive(base::Duration::zero()));
    if (auto received = listener.receive(kStep)) return received;
  }
  return std::nullopt;
}

// A plain TCP socket, blocking.
class RawSocket {
 public:
  RawSocket() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  explicit RawSocket(int fd) : fd_(fd) {}
  ~RawSocket() { ::close(fd_); }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  static sockaddr_in address(std::uint16_t port) {
    sockaddr_in result{};
    result.sin_family = AF_INET;
    result.sin_port = htons(port);
    result.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return result;
  }
  bool connect(std::uint16_t port) {
    const auto to = address(port);
    return ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  std::uint16_t listen() {
    auto at = address(0);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    return ntohs(at.sin_port);
  }
  int fd() const { return fd_; }
  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto wrote = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (wrote <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(wrote));
    }
  }
  // Until the other side closes.
  void drain() {
    char buffer[4096];
    while (::recv(fd_, buffer, sizeof buffer, 0) > 0) {
    }
  }

 private:
  int fd_;
};

TEST(ZmqSecurity, PlainSocketsAreRefusedOffLoopback) {
  auto plain = ZmqTransport::create({}).value();
  for (const char* open : {"tcp://*:*", "tcp://0.0.0.0:*", "tcp://[::]:0"}) {
    const auto bound = plain->bind(open);
    ASSERT_FALSE(bound) << open;
    EXPECT_EQ(bound.error().code, ErrorCode::kPermissionDenied);
    EXPECT_THAT(bound.error().message, HasSubstr("keys"));
  }
  EXPECT_EQ(plain->connect("c", "tcp://192.0.2.1:7000", "").error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(plain->connect("c", "tcp://trainer.example:7000", "").error().code, ErrorCode::kPermissionDenied);
  EXPECT_TRUE(plain->bind("tcp://localhost:*"));
}

TEST(ZmqSecurity, KeyedSocketsListenEverywhere) {
  const auto keys = generate_keys().value();
  const auto member = generate_keys().value();
  auto listener = with_keys(keys, allow({entry(member, "e0")}));
  auto client = with_keys(member);
  const auto bound = listener->bind("tcp://*:*");
  ASSERT_TRUE(bound) << bound.error().message;
  const auto port = parse_endpoint(*bound).value().port;
  ASSERT_NE(port, 0);
  ASSERT_TRUE(client->connect("c", fmt::format("tcp://127.0.0.1:{}", port), keys.public_key));
  EXPECT_TRUE(exchange(*client, *listener, "over IPv4"));
}

TEST(ZmqSecurity, Ipv6NamesAndIpcWork) {
  auto listener = ZmqTransport::create({}).value();
  const auto ipc = fmt::format("ipc://@weightbus-transport-test-{}", ::getpid());
  for (const auto& endpoint : {std::string("tcp://[::1]:*"), std::string("tcp://localhost:0"), ipc}) {
    const auto bound = listener->bind(endpoint);
    ASSERT_TRUE(bound) << bound.error().message;
    ASSERT_TRUE(parse_endpoint(*bound)) << *bound;
    auto client = ZmqTransport::create({}).value();
    ASSERT_TRUE(client->connect("c", *bound, ""));
    auto received = exchange(*client, *listener, endpoint);
    // What the client before repeated may still come.
    while (received && received->frame != endpoint)
      received = exchange(*client, *listener, endpoint);
    ASSERT_TRUE(received) << endpoint;
  }
  auto by_name = ZmqTransport::create({}).value();
  const auto bound = listener->bind("tcp://127.0.0.1:*").value();
  ASSERT_TRUE(by_name->connect("c", fmt::format("tcp://localhost:{}", parse_endpoint(bound)->port), ""));
  EXPECT_TRUE(exchange(*by_name, *listener, "by name"));
}

TEST(ZmqSecurity, FramesCarryTheIdentityOfTheKey) {
  const auto keys = generate_keys().value();
  const auto engine = generate_keys().value();
  const auto admin = generate_keys().value();
  auto listener = with_keys(keys, allow({entry(engine, "e0"), entry(admin, "*", model::Role::kAdmin)}));
  const auto endpoint = listener->bind("tcp://127.0.0.1:*").value();
  auto client = with_keys(engine);
  ASSERT_TRUE(client->connect("c", endpoint, keys.public_key));
  auto received = exchange(*client, *listener, "x");
  ASSERT_TRUE(received && received->identity);
  EXPECT_EQ(received->identity->key, engine.public_key);
  EXPECT_EQ(received->identity->member.value(), "e0");
  EXPECT_EQ(received->identity->role, model::Role::kEngineAgent);
  auto other = with_keys(admin);
  ASSERT_TRUE(other->connect("c", endpoint, keys.public_key));
  for (int i = 0; i < 1000; ++i) {
    received = exchange(*other, *listener, "y");
    ASSERT_TRUE(received && received->identity);
    if (received->frame == "y") break;
  }
  EXPECT_EQ(received->identity->member.value(), "*");
  EXPECT_EQ(received->identity->role, model::Role::kAdmin);
}

TEST(ZmqSecurity, AKeyThatIsNotListedGetsInOnceItIs) {
  const auto keys = generate_keys().value();
  const auto member = generate_keys().value();
  auto listener = with_keys(keys);
  const auto endpoint = listener->bind("tcp://127.0.0.1:*").value();
  auto client = with_keys(member);
  ASSERT_TRUE(client->connect("c", endpoint, keys.public_key));
  while (listener->drops().authentication == 0)
    EXPECT_FALSE(exchange(*client, *listener, "let me in", 1));
  listener->set_allow_list(allow({entry(member, "e0")}));
  EXPECT_TRUE(exchange(*client, *listener, "let me in"));
}

TEST(ZmqSecurity, ARemovedKeyIsCutOff) {
  const auto keys = generate_keys().value();
  const auto member = generate_keys().value();
  auto listener = with_keys(keys, allow({entry(member, "e0")}));
  auto client = with_keys(member);
  ASSERT_TRUE(client->connect("c", listener->bind("tcp://127.0.0.1:*").value(), keys.public_key));
  const auto received = exchange(*client, *listener, "before");
  ASSERT_TRUE(received);
  ASSERT_TRUE(listener->send(received->connection, "reply"));
  listener->set_allow_list({});
  EXPECT_EQ(listener->send(received->connection, "secret").error().code, ErrorCode::kUnavailable);
  while (listener->drops().authentication == 0)
    EXPECT_FALSE(exchange(*client, *listener, "after", 1));
}

TEST(ZmqSecurity, NoKeyAndTheWrongListenerKeyAreRefusedAndCounted) {
  const auto keys = generate_keys().value();
  const auto member = generate_keys().value();
  auto listener = with_keys(keys, allow({entry(member, "e0")}));
  const auto endpoint = listener->bind("tcp://127.0.0.1:*").value();
  auto keyless = ZmqTransport::create({}).value();
  ASSERT_TRUE(keyless->connect("c", endpoint, ""));
  while (listener->drops().authentication == 0)
    EXPECT_FALSE(exchange(*keyless, *listener, "no key", 1));
  keyless.reset();

  const auto counted = listener->drops().authentication;
  auto misled = with_keys(member);
  ASSERT_TRUE(misled->connect("c", endpoint, generate_keys()->public_key));
  while (listener->drops().authentication == counted)
    EXPECT_FALSE(exchange(*misled, *listener, "wrong key", 1));
  misled.reset();

  auto client = with_keys(member);
  ASSERT_TRUE(client->connect("c", endpoint, keys.public_key));
  const auto received = exchange(*client, *listener, "right key");
  ASSERT_TRUE(received);
  EXPECT_EQ(received->frame, "right key");  // and nothing of the others
}

TEST(ZmqSecurity, ClientsNeedKeysOfTheirOwn) {
  auto keyless = ZmqTransport::create({}).value();
  const auto peer = generate_keys()->public_key;
  EXPECT_EQ(keyless->connect("c", "tcp://127.0.0.1:7000", peer).error().code, ErrorCode::kInvalidArgument);
  auto keyed = with_keys(generate_keys().value());
  EXPECT_EQ(keyed->connect("c", "tcp://127.0.0.1:7000", "short").error().code, ErrorCode::kInvalidArgument);
  ZmqOptions bad;
  bad.keys = KeyPair{"a", "b"};
  EXPECT_EQ(ZmqTransport::create(std::move(bad)).error().code, ErrorCode::kInvalidArgument);
}

// Random bytes, with and without the beginning of a ZeroMQ greeting, on a port that others use.
void garbage_disturbs_nobody(ZmqTransport& listener, ZmqTransport& client, const std::string& peer_key) {
  const auto endpoint = listener.bind("tcp://127.0.0.1:*").value();
  const auto port = parse_endpoint(endpoint)->port;
  ASSERT_TRUE(client.connect("c", endpoint, peer_key));
  ASSERT_TRUE(exchange(client, listener, "start"));
  base::Prng prng(7);
  constexpr std::string_view kSignature{"\xff\0\0\0\0\0\0\0\1\x7f", 10};
  for (int round = 0; round < 40; ++round) {
    RawSocket stranger;
    ASSERT_TRUE(stranger.connect(port));
    std::string bytes(round % 2 == 0 ? kSignature : std::string_view("\x01\x00", 2));
    if (round % 4 == 0) bytes += std::string_view("\x03\x00NULL", 6);
    const auto extra = prng.below(5000);
    for (std::uint64_t i = 0; i < extra; ++i)
      bytes += static_cast<char>(prng.next());
    stranger.write(bytes);
    ::shutdown(stranger.fd(), SHUT_WR);
    const auto received = exchange(client, listener, "go on");
    ASSERT_TRUE(received) << round;
    EXPECT_THAT(received->frame, testing::AnyOf("go on", "start")) << round;
  }
}

TEST(ZmqSecurity, GarbageDisturbsNobodyOnAPlainPort) {
  auto listener = ZmqTransport::create({}).value();
  auto client = ZmqTransport::create({}).value();
  garbage_disturbs_nobody(*listener, *client, "");
}

TEST(ZmqSecurity, GarbageDisturbsNobodyOnAKeyedPort) {
  const auto keys = generate_keys().value();
  const auto member = generate_keys().value();
  auto listener = with_keys(keys, allow({entry(member, "e0")}));
  auto client = with_keys(member);
  garbage_disturbs_nobody(*listener, *client, keys.public_key);
}

TEST(ZmqSecurity, AStrangerOnThePortIsSurvived) {
  const auto keys = generate_keys().value();
  const auto member = generate_keys().value();
  auto client = with_keys(member);
  std::uint16_t port = 0;
  {
    RawSocket stranger;
    port = stranger.listen();
    ASSERT_TRUE(client->connect("c", fmt::format("tcp://127.0.0.1:{}", port), keys.public_key));
    for (int i = 0; i < 3; ++i) {
      RawSocket peer(::accept(stranger.fd(), nullptr, nullptr));
      peer.write("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
      peer.write(std::string(200, '!'));
      std::atomic<bool> closed{false};
      std::thread reader([&] {
        peer.drain();
        closed = true;
      });
      while (!closed)
        static_cast<void>(client->receive(kStep));
      reader.join();
      // Made anew by receive(), which is what the next accept() waits for.
      if (i < 2) static_cast<void>(client->receive(base::Millis(100)));
    }
  }
  auto listener = with_keys(keys, allow({entry(member, "e0")}));
  ASSERT_TRUE(listener->bind(fmt::format("tcp://127.0.0.1:{}", port)));
  EXPECT_TRUE(exchange(*client, *listener, "at last"));
}

}  // namespace
}  // namespace weightbus::transport
