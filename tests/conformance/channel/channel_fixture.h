// One source and its sinks over one backend, for the suite that every channel must pass.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/device/copy_cases.h"
#include "weightbus/channel/channel.h"
#include "weightbus/device/host/factory.h"

namespace weightbus::channel {

using base::ErrorCode;
using weightbus::testing::PartBuilder;
using weightbus::testing::SinkMemory;

struct Backend {
  std::string name;
  bool between_processes;
  std::function<std::unique_ptr<Channel>(const std::shared_ptr<device::Device>&)> make;
  friend void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }
};
std::vector<Backend> backends();

inline constexpr base::Duration kPlenty = std::chrono::seconds(60);
inline constexpr char kToken[] = "the token of this update";

// The source's regions in shared memory, filled from a seed.
class SourceRegions {
 public:
  SourceRegions(device::Device& device, const std::vector<std::uint64_t>& bytes) : device_(device) {
    static std::atomic<int> count{0};
    for (const auto size : bytes) {
      names_.push_back("weightbus.test." + std::to_string(::getpid()) + "." + std::to_string(count++));
      auto memory = device_.allocate(names_.back(), size);
      if (!memory) throw std::runtime_error(memory.error().message);
      memory_.push_back(std::move(*memory));
      const auto content = weightbus::testing::random_bytes(size, size + memory_.size());
      if (size > 0) std::memcpy(memory_.back()->data(), content.data(), size);
    }
  }
  SourceRegions(const SourceRegions&) = delete;
  SourceRegions& operator=(const SourceRegions&) = delete;
  ~SourceRegions() {
    for (const auto& name : names_)
      device_.remove(name);
  }
  std::vector<const device::Memory*> memory() const {
    std::vector<const device::Memory*> result;
    for (const auto& one : memory_)
      result.push_back(one.get());
    return result;
  }
  std::vector<const std::byte*> pointers() const {
    std::vector<const std::byte*> result;
    for (const auto& one : memory_)
      result.push_back(one->data());
    return result;
  }
  void unlink() {  // the mappings stay
    for (const auto& name : names_)
      device_.remove(name);
  }

 private:
  device::Device& device_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<device::Memory>> memory_;
};

class ChannelTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    channel_ = GetParam().make(device_);
    ASSERT_TRUE(channel_->viability().usable) << channel_->viability().reason;
  }
  std::unique_ptr<SourceSession> serve(const SourceRegions& regions) {
    auto session = channel_->serve({model::MemberId("source"), regions.memory(), kToken});
    if (!session) throw std::runtime_error(session.error().message);
    return std::move(*session);
  }
  base::Result<std::unique_ptr<PullSession>> try_join(const Offer& offer, const std::string& token = kToken,
                                                      const std::string& sink = "sink") {
    return channel_->join({model::MemberId("source"), model::MemberId(sink), offer, token, kPlenty});
  }
  std::unique_ptr<PullSession> join(const Offer& offer, const std::string& sink = "sink") {
    auto session = try_join(offer, kToken, sink);
    if (!session) throw std::runtime_error(session.error().message);
    return std::move(*session);
  }
  static std::shared_ptr<const plan::SourcePart> part_of(const PartBuilder& builder) {
    auto part = std::make_shared<plan::SourcePart>();
    part->tensors = builder.tensors;
    part->buckets = builder.buckets;
    return part;
  }
  static SinkMemory expected(const PartBuilder& part, const SourceRegions& regions) {
    SinkMemory memory(part.to_bytes);
    for (const auto& bucket : part.buckets) {
      weightbus::testing::reference_copy(bucket, part.tensors, regions.pointers(), memory.pointers());
    }
    return memory;
  }
  static std::uint64_t payload(const PartBuilder& part) {
    std::uint64_t bytes = 0;
    for (const auto& bucket : part.buckets)
      bytes += bucket.bytes;
    return bytes;
  }
  // Serves and pulls the part, and compares every byte of the sink's memory, gaps included.
  void expect_delivered(const PartBuilder& part) {
    const SourceRegions regions(*device_, part.from_bytes);
    const auto source = serve(regions);
    source->set_part(part_of(part));
    const auto session = join(source->offer());
    SinkMemory memory(part.to_bytes);
    device::Control control;
    const auto status = session->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(control.bytes_done, payload(part));
    EXPECT_TRUE(memory == expected(part, regions));
  }
  // A part large enough to be interrupted: `mib` MiB, half of it in long runs, half strided.
  static PartBuilder large_part(std::int64_t mib) {
    PartBuilder part("source", "sink");
    for (std::int64_t i = 0; i < mib / 8; ++i) {
      part.bucket();
      part.dense({2 << 20});
      part.fragment({1024, 2048}, model::DType::kBF16, model::DType::kBF16, model::Cast::kNone, {{0, 1}, 0},
                    {{0, 1}, 1});
    }
    return part;
  }

  const std::shared_ptr<device::Device> device_ = device::make_host_device();
  std::unique_ptr<Channel> channel_;
};

}  // namespace weightbus::channel
