// Measures the CPU channels against what carries the same bytes with nothing around it, in one process and in turns:
// shm against memcpy, tcp against a plain socket loop. Prints {"rows": [{name, median, worst, unit, samples}]}.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "weightbus/channel/shm/factory.h"
#include "weightbus/channel/tcp/factory.h"
#include "weightbus/channel/tcp/socket.h"
#include "weightbus/device/host/factory.h"

namespace weightbus {
namespace {

constexpr std::uint64_t kBucketBytes = 64ULL << 20;
constexpr std::uint32_t kBuckets = 4;
constexpr std::uint64_t kBytes = kBuckets * kBucketBytes;
constexpr int kSamples = 11;
constexpr base::Duration kDeadline = std::chrono::seconds(60);

[[noreturn]] void give_up(const std::string& why) {
  fmt::print(stderr, "bench channels: {}\n", why);
  std::exit(1);
}

template <class T>
T must(base::Result<T> result) {
  if (!result) give_up(result.error().message);
  return std::move(*result);
}
void must(const base::Status& status) {
  if (!status) give_up(status.error().message);
}

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Matrices of `rows` x `columns`, bf16; `stride` of the destination's rows. Equal to `columns`: one run.
plan::SourcePart make_part(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  plan::SourcePart part;
  for (std::uint32_t i = 0; i < kBuckets; ++i) {
    const model::Dims shape{rows, columns};
    part.tensors.push_back(
        {fmt::format("tensor{}", i), model::DType::kBF16, model::DType::kBF16, model::Cast::kNone, shape, 16});
    const auto bytes = static_cast<std::uint64_t>(rows * columns) * 2;
    const plan::Fragment fragment{
        i,
        model::Box::whole(shape),
        {0, i * bytes, {columns, 1}},
        {0, i * bytes / static_cast<std::uint64_t>(columns) * static_cast<std::uint64_t>(stride), {stride, 1}},
        i};
    part.buckets.push_back({i, model::MemberId("source"), model::MemberId("sink"), bytes, {fragment}});
  }
  return part;
}

struct Memory {
  std::shared_ptr<device::Device> device = device::make_host_device();
  std::unique_ptr<device::Memory> source;
  std::unique_ptr<device::Memory> sink;

  Memory() {
    source = allocate("source", kBytes);
    sink = allocate("sink", kBytes * 2);
    std::memset(source->data(), 0x5a, kBytes);
    std::memset(sink->data(), 0, kBytes * 2);
  }
  std::unique_ptr<device::Memory> allocate(const char* what, std::uint64_t bytes) {
    const auto name = fmt::format("weightbus.bench.{}.{}", ::getpid(), what);
    auto memory = must(device->allocate(name, bytes));
    device->remove(name);  // the mapping stays; nothing is left behind, however this ends
    return memory;
  }
};

struct Pair {
  std::unique_ptr<device::Memory> memory;
  std::unique_ptr<channel::SourceSession> source;
  std::unique_ptr<channel::PullSession> sink;
};
Pair connect(channel::Channel& channel, device::Device& device, const plan::SourcePart& part) {
  const auto name = fmt::format("weightbus.bench.{}.{}", ::getpid(), channel.name());
  Pair pair;
  pair.memory = must(device.allocate(name, kBytes));
  std::memset(pair.memory->data(), 0x5a, kBytes);
  pair.source = must(channel.serve({model::MemberId("source"), {pair.memory.get()}, "token"}));
  pair.source->set_part(std::make_shared<plan::SourcePart>(part));
  auto sink =
      channel.join({model::MemberId("source"), model::MemberId("sink"), pair.source->offer(), "token", kDeadline});
  device.remove(name);
  pair.sink = must(std::move(sink));
  return pair;
}

void pull(Pair& pair, const plan::SourcePart& part, device::Memory& to) {
  device::Control control;
  std::byte* const pointer = to.data();
  must(pair.sink->pull(part.buckets, part.tensors, {&pointer, 1}, kDeadline, control));
}

// The bare loop: one thread sends the buckets, this one receives them in place, in the same slices.
void plain_socket(int from, int to, device::Memory& source, device::Memory& sink) {
  std::thread sender([&] {
    for (std::uint64_t at = 0; at < kBytes;) {
      const ssize_t sent =
          ::send(from, source.data() + at, std::min<std::uint64_t>(kBytes - at, 1 << 20), MSG_NOSIGNAL);
      if (sent <= 0) give_up("plain send failed");
      at += static_cast<std::uint64_t>(sent);
    }
  });
  for (std::uint64_t at = 0; at < kBytes;) {
    const ssize_t received = ::recv(to, sink.data() + at, std::min<std::uint64_t>(kBytes - at, 1 << 20), 0);
    if (received <= 0) give_up("plain receive failed");
    at += static_cast<std::uint64_t>(received);
  }
  sender.join();
}

// Both ends of a blocking loopback connection.
std::pair<channel::Fd, channel::Fd> socket_pair() {
  const model::MemberId self("bench");
  const channel::PullLimits limits(self, kDeadline, nullptr);
  channel::SinkLimits sink_limits(limits);
  const auto listening = must(channel::listen_on({"127.0.0.1", 0}));
  auto client = must(channel::connect_to(must(channel::bound_address(listening.get())), limits, sink_limits));
  must(sink_limits.wait(listening.get(), POLLIN));
  channel::Fd server(::accept(listening.get(), nullptr, nullptr));
  if (!server.valid()) give_up("accept failed");
  const int flags = ::fcntl(client.get(), F_GETFL);
  ::fcntl(client.get(), F_SETFL, flags & ~O_NONBLOCK);
  channel::tune(server.get());
  return {std::move(client), std::move(server)};
}

class Table {
 public:
  // Of a rate or ratio: the worst is the lowest.
  void add(const std::string& name, const std::string& unit, std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    rows_.push_back({{"name", name},
                     {"median", samples[samples.size() / 2]},
                     {"worst", samples.front()},
                     {"unit", unit},
                     {"samples", samples.size()}});
  }
  void print() const { fmt::print("{}\n", nlohmann::json{{"rows", rows_}}.dump(2)); }

 private:
  nlohmann::json rows_ = nlohmann::json::array();
};

// Runs both in turns; the first round warms caches, page tables and socket buffers up and is dropped.
void compare(Table& table, const std::string& name, const std::string& baseline, const std::function<void()>& ours,
             const std::function<void()>& plain) {
  std::vector<double> ratio;
  std::vector<double> our_rate;
  std::vector<double> plain_rate;
  for (int i = 0; i <= kSamples; ++i) {
    const double ours_s = seconds(ours);
    const double plain_s = seconds(plain);
    if (i == 0) continue;
    ratio.push_back(plain_s / ours_s);
    our_rate.push_back(static_cast<double>(kBytes) / ours_s / 1e9);
    plain_rate.push_back(static_cast<double>(kBytes) / plain_s / 1e9);
  }
  table.add(fmt::format("{}_vs_{}", name, baseline), "ratio", ratio);
  table.add(name + "_gb_s", "GB/s", our_rate);
  table.add(fmt::format("{}_of_{}_gb_s", baseline, name), "GB/s", plain_rate);
}

int run() {
  Memory memory;
  Table table;
  const auto dense = make_part(4096, 8192, 8192);
  const auto strided = make_part(16384, 2048, 4096);  // half the columns of every row, as TP by columns needs
  const auto copy = [&] { std::memcpy(memory.sink->data(), memory.source->data(), kBytes); };

  const auto shm = channel::make_shm_channel(memory.device);
  auto shm_pair = connect(*shm, *memory.device, dense);
  compare(
      table, "shm", "memcpy", [&] { pull(shm_pair, dense, *memory.sink); }, copy);
  compare(
      table, "shm_strided", "memcpy", [&] { pull(shm_pair, strided, *memory.sink); }, copy);

  const auto tcp = channel::make_tcp_channel();
  auto tcp_pair = connect(*tcp, *memory.device, dense);
  auto tcp_strided = connect(*tcp, *memory.device, strided);
  const auto [client, server] = socket_pair();
  const auto plain = [&, from = client.get(), to = server.get()] {
    plain_socket(from, to, *memory.source, *memory.sink);
  };
  compare(
      table, "tcp", "socket", [&] { pull(tcp_pair, dense, *memory.sink); }, plain);
  compare(
      table, "tcp_strided", "socket", [&] { pull(tcp_strided, strided, *memory.sink); }, plain);
  table.print();
  return 0;
}

}  // namespace
}  // namespace weightbus

int main() { return weightbus::run(); }
