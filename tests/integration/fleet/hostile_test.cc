// Bytes that nobody of ours sent, on every port and socket, while versions are pushed.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "tests/integration/fleet/readers.h"

namespace weightbus::testing {
namespace {

using protocol::Phase;

std::string random_bytes(std::mt19937& random, std::size_t size) {
  std::string bytes(size, '\0');
  for (auto& byte : bytes)
    byte = static_cast<char>(random());
  return bytes;
}

// What a stranger may send: noise, nothing at all, or beginnings that look right and are followed by noise or by
// lengths that no frame has.
std::string strange_stream(std::mt19937& random) {
  static const std::string kGreeting("\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL", 16);
  std::string bytes;
  switch (random() % 5) {
    case 0: bytes = random_bytes(random, random() % 4096); break;
    case 1: bytes = kGreeting + std::string(48, '\0') + random_bytes(random, 300); break;
    case 2: bytes = kGreeting.substr(0, random() % kGreeting.size()); break;
    case 3: bytes = std::string(8, '\xff') + random_bytes(random, 64); break;  // a huge length
    default: bytes = std::string("\x10\0\0\0", 4) + random_bytes(random, 16); break;
  }
  return bytes;
}

template <class Address>
void send_stranger(const Address& address, std::mt19937& random) {
  const int fd = ::socket(reinterpret_cast<const sockaddr*>(&address)->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{0, 50'000};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const std::string bytes = strange_stream(random);
    if (::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0 && random() % 4 == 0) {
      char answer[256];
      static_cast<void>(::recv(fd, answer, sizeof answer, 0));
    }
  }
  ::close(fd);
}

sockaddr_in tcp_address(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

// Speaks ZeroMQ as it should, and sends frames that are no messages.
void send_strange_frames(const std::string& endpoint, std::mt19937& random) {
  void* context = ::zmq_ctx_new();
  void* socket = ::zmq_socket(context, ZMQ_DEALER);
  const int linger = 20;
  const int on = 1;
  ::zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
  ::zmq_setsockopt(socket, ZMQ_IPV6, &on, sizeof on);
  if (::zmq_connect(socket, endpoint.c_str()) == 0) {
    for (unsigned i = 0; i < 8; ++i) {
      const std::size_t size = i == 7 ? (5U << 20) : 8 * (random() % 64) + (random() % 4 == 0 ? 3 : 0);
      std::string frame = random_bytes(random, std::min<std::size_t>(size, 512));
      frame.resize(size);
      if (size >= 8 && random() % 2 == 0) std::memcpy(frame.data(), "\0\0\0\0\4\0\0\0", 8);  // one small segment
      const int flags = ZMQ_DONTWAIT | (random() % 3 == 0 ? ZMQ_SNDMORE : 0);
      static_cast<void>(::zmq_send(socket, frame.data(), frame.size(), flags));
    }
  }
  ::zmq_close(socket);
  ::zmq_ctx_term(context);
}

// Repeats in a thread until it is destroyed.
class Stranger {
 public:
  explicit Stranger(std::function<void(std::mt19937&)> act)
      : thread_([this, act = std::move(act)] {
          std::mt19937 random(7);
          while (!stop_) {
            act(random);
            ++rounds_;
          }
        }) {}
  ~Stranger() {
    stop_ = true;
    thread_.join();
    EXPECT_GT(rounds_, 0U);
  }
  bool wait_rounds(unsigned count) {
    const unsigned goal = rounds_ + count;
    return eventually([&] { return rounds_ >= goal; });
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> rounds_{0};
  std::thread thread_;
};

void push_all_the_same(Fleet& fleet, Stranger& stranger) {
  Readers readers(fleet, {0});
  for (unsigned push = 0; push < 4; ++push) {
    ASSERT_TRUE(stranger.wait_rounds(5));
    const auto update = fleet.push_to_end(fleet.checkpoint(push % 3));
    ASSERT_EQ(update.phase, Phase::kCommitted) << describe(update);
    readers.saw(update.target.value());
  }
  readers.finish();
  for (const auto& name : {"coordinator", "trainer-0", "engine-0-tp0"})
    EXPECT_EQ(fleet.process(name).all_logged("service.start", "version").size(), 1U) << name << " was restarted";
}

TEST(Hostile, NoiseOnTheCoordinatorsPort) {
  Fleet fleet({.engines = {2}});
  const auto& endpoint = fleet.endpoint();
  const auto port = static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
  const auto address = tcp_address(fleet.address(), port);
  Stranger stranger([&](std::mt19937& random) { send_stranger(address, random); });
  push_all_the_same(fleet, stranger);
}

TEST(Hostile, StrangeFramesToTheCoordinator) {
  Fleet fleet({.engines = {2}});
  Stranger stranger([&](std::mt19937& random) { send_strange_frames(fleet.endpoint(), random); });
  push_all_the_same(fleet, stranger);
}

TEST(Hostile, NoiseOnAnAttachSocket) {
  Fleet fleet({.engines = {2}});
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, fleet.socket(0, 0).c_str(), sizeof address.sun_path - 1);
  Stranger stranger([&](std::mt19937& random) { send_stranger(address, random); });
  push_all_the_same(fleet, stranger);
}

TEST(Hostile, NoiseOnABulkPort) {
  constexpr std::uint16_t kPort = 41'000;
  FleetOptions options{
      .trainers = 1, .engines = {2}, .trainer = {{"host", "a"}}, .engine = {{"host", "b"}}, .start = false};
  Fleet fleet(std::move(options));
  fleet.trainer(0).settings()["bulk_listen"] = fleet.address() + ":" + std::to_string(kPort);
  fleet.start_all();
  const auto address = tcp_address(fleet.address(), kPort);
  Stranger stranger([&](std::mt19937& random) { send_stranger(address, random); });
  push_all_the_same(fleet, stranger);
}

}  // namespace
}  // namespace weightbus::testing
