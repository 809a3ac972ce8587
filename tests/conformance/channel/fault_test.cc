// How a pull ends when something goes wrong.
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "channel_fixture.h"

namespace weightbus::channel {
namespace {

class ChannelFaultTest : public ChannelTest {};
INSTANTIATE_TEST_SUITE_P(Channels, ChannelFaultTest, ::testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

// A pull in a thread of its own, and the moment when its first bytes have arrived.
class RunningPull {
 public:
  RunningPull(PullSession& session, const PartBuilder& part, SinkMemory& memory, base::Duration deadline = kPlenty)
      : thread_([this, &session, &part, pointers = memory.pointers(), deadline] {
          status_ = session.pull(part.buckets, part.tensors, pointers, deadline, control);
          ended_ = true;
        }) {}
  ~RunningPull() {
    if (thread_.joinable()) thread_.join();
  }
  void wait_for_bytes() {
    while (control.bytes_done == 0 && !ended_)
      std::this_thread::yield();
  }
  base::Status join() {
    thread_.join();
    return status_;
  }
  device::Control control;

 private:
  std::atomic<bool> ended_{false};
  base::Status status_;
  std::thread thread_;
};

TEST_P(ChannelFaultTest, AWrongTokenIsRefusedAndOthersGoOn) {
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({16});
  const SourceRegions regions(*device_, part.from_bytes);
  const auto source = serve(regions);
  source->set_part(part_of(part));
  for (const std::string token : {"", "another token", "the token of this updatE"}) {
    const auto refused = try_join(source->offer(), token);
    ASSERT_FALSE(refused) << token;
    EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied) << token;
  }
  const auto session = join(source->offer());
  SinkMemory memory(part.to_bytes);
  device::Control control;
  EXPECT_TRUE(session->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control));
}

TEST_P(ChannelFaultTest, AnOfferThatCannotBeReadIsAnError) {
  PartBuilder part("source", "sink");
  const SourceRegions regions(*device_, {4096});
  const auto source = serve(regions);
  const auto good = source->offer();
  for (const auto& bytes : {std::string(), std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8), std::string(5000, 'A'),
                            good.descriptor + "x", good.descriptor.substr(0, good.descriptor.size() - 1)}) {
    const auto refused = try_join({good.channel, bytes});
    ASSERT_FALSE(refused) << bytes.size();
    // A shorter number may still be a number: of a session that does not exist.
    EXPECT_TRUE(refused.error().code == ErrorCode::kInvalidArgument || refused.error().code == ErrorCode::kUnavailable)
        << refused.error().message;
  }
  EXPECT_FALSE(try_join({"another", good.descriptor}));
}

// A source that never learns what to serve: the sink's own deadline ends the pull.
TEST_P(ChannelFaultTest, AStalledSourceEndsAtTheDeadline) {
  const auto part = large_part(8);
  const SourceRegions regions(*device_, part.from_bytes);
  const auto source = serve(regions);
  const auto session = join(source->offer());
  SinkMemory memory(part.to_bytes);
  device::Control control;
  const auto status =
      session->pull(part.buckets, part.tensors, memory.pointers(), std::chrono::milliseconds(50), control);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kDeadlineExceeded) << status.error().message;
  EXPECT_TRUE(memory == SinkMemory(part.to_bytes));
  // The session is as good as new.
  source->set_part(part_of(part));
  const auto second = session->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(memory == expected(part, regions));
}

TEST_P(ChannelFaultTest, CancellingAWaitEndsIt) {
  const auto part = large_part(8);
  const SourceRegions regions(*device_, part.from_bytes);
  const auto source = serve(regions);
  const auto session = join(source->offer());
  SinkMemory memory(part.to_bytes);
  RunningPull pull(*session, part, memory);
  pull.control.cancelled = true;
  const auto status = pull.join();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kAborted);
}

TEST_P(ChannelFaultTest, AfterACancelledPullNothingIsWritten) {
  const auto part = large_part(64);
  const SourceRegions regions(*device_, part.from_bytes);
  const auto source = serve(regions);
  source->set_part(part_of(part));
  const auto session = join(source->offer());
  SinkMemory memory(part.to_bytes);
  base::Status status;
  // Should the machine have been so busy that the pull was complete before it was cancelled, it is done again.
  for (int attempt = 0; attempt < 20 && status; ++attempt) {
    RunningPull pull(*session, part, memory);
    pull.wait_for_bytes();
    pull.control.cancelled = true;
    status = pull.join();
    if (!status) {
      EXPECT_LT(pull.control.bytes_done, payload(part));
    }
  }
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kAborted) << status.error().message;
  memory.fill(0x77);
  // Another pull, of the first bucket into other memory, gives late writes of the first one time to show.
  SinkMemory other(part.to_bytes);
  device::Control control;
  const auto again = session->pull(std::span(part.buckets).first(1), part.tensors, other.pointers(), kPlenty, control);
  EXPECT_TRUE(again) << again.error().message;
  EXPECT_TRUE(memory == SinkMemory(part.to_bytes, 0x77));
}

TEST_P(ChannelFaultTest, ASourceThatEndsMidPullIsReported) {
  const auto part = large_part(64);
  const SourceRegions regions(*device_, part.from_bytes);
  base::Status status;
  for (int attempt = 0; attempt < 20 && status; ++attempt) {
    auto source = serve(regions);
    source->set_part(part_of(part));
    const auto session = join(source->offer());
    SinkMemory memory(part.to_bytes);
    RunningPull pull(*session, part, memory);
    pull.wait_for_bytes();
    source.reset();
    status = pull.join();
    device::Control control;
    const auto later = session->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control);
    ASSERT_FALSE(later);
    EXPECT_EQ(later.error().code, ErrorCode::kUnavailable) << later.error().message;
  }
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable) << status.error().message;
}

// Nothing reads the regions once the session's destructor has returned, so their memory can go.
TEST_P(ChannelFaultTest, RegionsMayGoOnceTheSessionHasEnded) {
  const auto part = large_part(32);
  for (int i = 0; i < 5; ++i) {
    auto regions = std::make_unique<SourceRegions>(*device_, part.from_bytes);
    auto source = serve(*regions);
    source->set_part(part_of(part));
    const auto session = join(source->offer());
    SinkMemory memory(part.to_bytes);
    RunningPull pull(*session, part, memory);
    pull.wait_for_bytes();
    source.reset();
    regions.reset();
    const auto status = pull.join();
    if (!status) {
      EXPECT_EQ(status.error().code, ErrorCode::kUnavailable) << status.error().message;
    }
  }
}

TEST_P(ChannelFaultTest, JoiningASourceThatHasEndedFails) {
  const SourceRegions regions(*device_, {4096});
  auto source = serve(regions);
  const auto offer = source->offer();
  source.reset();
  const auto session = try_join(offer);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, ErrorCode::kUnavailable) << session.error().message;
}

std::size_t count_entries(const std::string& directory) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory))
    ++count;
  return count;
}
std::size_t count_shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("weightbus.") != std::string::npos ? 1 : 0;
  return count;
}

// Field case F12.
TEST_P(ChannelFaultTest, MappingsAndDescriptorsStayFlatOverAThousandPulls) {
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({100});
  const SourceRegions regions(*device_, part.from_bytes);
  const auto source = serve(regions);
  source->set_part(part_of(part));
  const auto session = join(source->offer());
  SinkMemory memory(part.to_bytes);
  std::size_t descriptors = 0;
  std::size_t mappings = 0;
  for (int i = 0; i < 1000; ++i) {
    device::Control control;
    const auto status = session->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control);
    ASSERT_TRUE(status) << status.error().message;
    if (i == 0) {
      descriptors = count_entries("/proc/self/fd");
      mappings = count_shared_mappings();
    }
  }
  EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(count_shared_mappings(), mappings);
}

TEST_P(ChannelFaultTest, SessionsThatEndLeaveNothingBehind) {
  PartBuilder part("source", "sink");
  part.bucket();
  part.dense({100});
  const SourceRegions regions(*device_, part.from_bytes);
  const auto update = [&] {
    const auto source = serve(regions);
    source->set_part(part_of(part));
    const auto session = join(source->offer());
    SinkMemory memory(part.to_bytes);
    device::Control control;
    ASSERT_TRUE(session->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control));
  };
  update();
  const auto mappings = count_shared_mappings();
  for (int i = 0; i < 50; ++i)
    update();
  EXPECT_EQ(count_shared_mappings(), mappings);
}

// A process that serves until it is killed. It tells its offer over a pipe, as four bytes of length and the bytes.
class SourceProcess {
 public:
  explicit SourceProcess(const std::function<Offer()>& serve) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    child_ = ::fork();
    if (child_ == 0) {
      const auto offer = serve();
      const auto size = static_cast<std::uint32_t>(offer.descriptor.size());
      if (::write(ends[1], &size, sizeof size) < 0 || ::write(ends[1], offer.descriptor.data(), size) < 0) ::_exit(1);
      while (true)
        ::pause();
    }
    ::close(ends[1]);
    std::uint32_t size = 0;
    if (::read(ends[0], &size, sizeof size) != sizeof size) throw std::runtime_error("the source process failed");
    descriptor.resize(size);
    if (::read(ends[0], descriptor.data(), size) != static_cast<ssize_t>(size)) throw std::runtime_error("no offer");
    ::close(ends[0]);
  }
  SourceProcess(const SourceProcess&) = delete;
  SourceProcess& operator=(const SourceProcess&) = delete;
  ~SourceProcess() { kill(); }
  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  void stop() { ::kill(child_, SIGSTOP); }
  std::string descriptor;

 private:
  pid_t child_ = 0;
};

class ChannelProcessTest : public ChannelFaultTest {
 protected:
  // The child makes its own channel, since threads do not survive a fork.
  Offer serve_for_ever(const SourceRegions& regions, const PartBuilder* part) {
    auto* channel = GetParam().make(device_).release();
    auto session = channel->serve({model::MemberId("source"), regions.memory(), kToken});
    if (!session) ::_exit(2);
    auto* kept = session->release();
    if (part) kept->set_part(part_of(*part));
    return kept->offer();
  }
};
std::vector<Backend> between_processes() {
  std::vector<Backend> result;
  for (const auto& backend : backends()) {
    if (backend.between_processes) result.push_back(backend);
  }
  return result;
}
INSTANTIATE_TEST_SUITE_P(Channels, ChannelProcessTest, ::testing::ValuesIn(between_processes()),
                         [](const auto& test) { return test.param.name; });

TEST_P(ChannelProcessTest, AKilledSourceIsReportedMidPull) {
  const auto part = large_part(64);
  const SourceRegions regions(*device_, part.from_bytes);
  base::Status status;
  for (int attempt = 0; attempt < 20 && status; ++attempt) {
    SourceProcess source([&] { return serve_for_ever(regions, &part); });
    const auto session = join({std::string(channel_->name()), source.descriptor});
    SinkMemory memory(part.to_bytes);
    RunningPull pull(*session, part, memory);
    pull.wait_for_bytes();
    source.kill();
    status = pull.join();
  }
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable) << status.error().message;
}

TEST_P(ChannelProcessTest, ASourceKilledBeforeItServesIsReportedBeforeTheDeadline) {
  const auto part = large_part(8);
  const SourceRegions regions(*device_, part.from_bytes);
  SourceProcess source([&] { return serve_for_ever(regions, nullptr); });
  const auto session = join({std::string(channel_->name()), source.descriptor});
  SinkMemory memory(part.to_bytes);
  RunningPull pull(*session, part, memory);
  source.kill();
  const auto status = pull.join();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable) << status.error().message;
  // Its sink removes what a killed source could not: the control page that the descriptor names.
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const auto name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with("weightbus.ctl.") && source.descriptor.find(name) != std::string::npos) << name;
  }
}

TEST_P(ChannelProcessTest, AStoppedSourceEndsAtTheDeadline) {
  const auto part = large_part(8);
  const SourceRegions regions(*device_, part.from_bytes);
  SourceProcess source([&] { return serve_for_ever(regions, nullptr); });
  const auto session = join({std::string(channel_->name()), source.descriptor});
  source.stop();
  SinkMemory memory(part.to_bytes);
  device::Control control;
  const auto status =
      session->pull(part.buckets, part.tensors, memory.pointers(), std::chrono::milliseconds(50), control);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kDeadlineExceeded) << status.error().message;
}

// A sink that dies while it reads must not keep its source from ending.
TEST_P(ChannelProcessTest, AKilledSinkDoesNotHoldItsSource) {
  const auto part = large_part(32);
  const SourceRegions regions(*device_, part.from_bytes);
  auto source = serve(regions);
  source->set_part(part_of(part));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto offer = source->offer();
  const pid_t child = ::fork();
  if (child == 0) {
    auto session = try_join(offer);
    SinkMemory memory(part.to_bytes);
    device::Control control;
    if (session && ::write(ends[1], "x", 1) != 1) ::_exit(1);
    while (session) {
      control.bytes_done = 0;
      static_cast<void>((*session)->pull(part.buckets, part.tensors, memory.pointers(), kPlenty, control));
    }
    ::_exit(1);
  }
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  ::close(ends[0]);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  source.reset();  // returns
  const auto again = try_join(offer);
  EXPECT_FALSE(again);
}

}  // namespace
}  // namespace weightbus::channel
