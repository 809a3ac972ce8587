#include "weightbus/runtime/attach_server.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/unit/client/shm_arena.h"
#include "weightbus/client/frame_socket.h"
#include "weightbus/client/reader.h"

namespace weightbus::runtime {
namespace {

using base::ErrorCode;
using client::Reader;
using testing::ShmArena;
using testing::tag_of;
using namespace std::chrono_literals;

constexpr auto kLong = 20s;  // for what must happen

class AttachServerTest : public ::testing::Test {
 protected:
  std::unique_ptr<AttachServer> listen() {
    auto server = AttachServer::listen({.path = path_});
    EXPECT_TRUE(server) << server.error().message;
    return std::move(*server);
  }
  std::unique_ptr<Reader> attach(client::ReaderHooks hooks = {},
                                 wire::ClientKind kind = wire::ClientKind::kEngineRank) {
    auto reader =
        Reader::connect({.socket_path = path_, .kind = kind, .connect_timeout = kLong, .hooks = std::move(hooks)});
    EXPECT_TRUE(reader) << reader.error().message;
    return reader ? std::move(*reader) : nullptr;
  }
  // Whether a step sees exactly this version, in every byte of every slot.
  void expect_version(Reader& reader, std::uint64_t version) {
    auto step = reader.enter_step(kLong);
    ASSERT_TRUE(step) << step.error().message;
    EXPECT_EQ(step->version(), model::WeightVersion(version));
    const auto& slots = *step->arena().slots;
    ASSERT_EQ(slots.size(), 6U);
    for (std::size_t i = 0; i < slots.size(); ++i)
      for (std::size_t at = 0; at < slots[i].span_bytes; ++at)
        ASSERT_EQ(slots[i].data[at], arena_.expected(version, i, at)) << "slot " << i << " byte " << at;
  }
  template <class Condition>
  static void await(Condition&& condition) {
    while (!condition())
      std::this_thread::yield();
  }

  testing::TempDir dir_;
  const std::string path_ = dir_.file("agent.sock");
  ShmArena arena_;
};

TEST_F(AttachServerTest, ExchangesAtUnchangedAddresses) {
  auto server = listen();
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  auto reader = attach();
  expect_version(*reader, 1);
  const auto* before = reader->peek()->slots->front().data;

  const auto paused = server->pause(kLong);
  ASSERT_TRUE(paused) << paused.error().message;
  EXPECT_EQ(paused->readers, 1U);
  EXPECT_EQ(reader->enter_step(0ms).error().code, ErrorCode::kDeadlineExceeded);
  const auto exchanged = server->exchange(1, tag_of(2), kLong);
  ASSERT_TRUE(exchanged) << exchanged.error().message;
  EXPECT_EQ(exchanged->readers, 1U);
  EXPECT_EQ(reader->enter_step(0ms).error().code, ErrorCode::kDeadlineExceeded);
  server->resume();

  expect_version(*reader, 2);
  EXPECT_EQ(reader->peek()->slots->front().data, before);
  EXPECT_EQ(reader->state().exchanges, 1U);
}

TEST_F(AttachServerTest, TheSocketIsForItsUserOnly) {
  auto server = listen();
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(AttachServer::listen({.path = path_}).error().code, ErrorCode::kConflict);
  server.reset();
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
  EXPECT_NE(::access((path_ + ".lease").c_str(), F_OK), 0);
}

TEST_F(AttachServerTest, APauseWaitsForTheStepInside) {
  auto server = listen();
  arena_.fill(0, 1);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  auto reader = attach();
  std::optional<Reader::Step> step(reader->enter_step().value());
  auto paused = std::async(std::launch::async, [&] { return server->pause(kLong); });
  await([&] { return !reader->state().open; });
  EXPECT_EQ(paused.wait_for(0ms), std::future_status::timeout);
  step.reset();
  EXPECT_TRUE(paused.get());
  server->resume();
  expect_version(*reader, 1);
}

TEST_F(AttachServerTest, AStepPastTheDeadlineFailsThePauseAndNothingIsExchanged) {
  auto server = listen();
  arena_.fill(0, 1);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  auto reader = attach();
  std::optional<Reader::Step> step(reader->enter_step().value());
  const auto paused = server->pause(30ms);
  ASSERT_FALSE(paused);
  EXPECT_EQ(paused.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_NE(paused.error().message.find(std::to_string(::getpid())), std::string::npos) << paused.error().message;
  EXPECT_EQ(server->exchange(1, tag_of(2), kLong).error().code, ErrorCode::kConflict);
  server->resume();
  // The gate opens again although that step never ended.
  expect_version(*reader, 1);
  step.reset();
  EXPECT_TRUE(server->pause(kLong));
  server->resume();
}

TEST_F(AttachServerTest, APauseMayBeRepeatedAndAnExchangeToo) {
  auto server = listen();
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  auto reader = attach();
  ASSERT_TRUE(server->pause(kLong));
  ASSERT_TRUE(server->pause(kLong));
  ASSERT_TRUE(server->exchange(1, tag_of(2), kLong));
  ASSERT_TRUE(server->exchange(1, tag_of(2), kLong));
  server->resume();
  server->resume();
  expect_version(*reader, 2);
  EXPECT_EQ(reader->state().exchanges, 1U);
}

TEST_F(AttachServerTest, AnArenaWithoutAVersionKeepsTheGateClosed) {
  auto server = listen();
  ASSERT_TRUE(server->set_arena(arena_.info(0, 0)));
  auto reader = attach();
  EXPECT_EQ(reader->enter_step(0ms).error().code, ErrorCode::kDeadlineExceeded);
  arena_.fill(1, 1);
  ASSERT_TRUE(server->pause(kLong));
  ASSERT_TRUE(server->exchange(1, tag_of(1), kLong));
  server->resume();
  expect_version(*reader, 1);
}

TEST_F(AttachServerTest, WhoAttachesDuringAPauseWaitsForResume) {
  auto server = listen();
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  ASSERT_TRUE(server->pause(kLong));
  std::atomic<std::uint64_t> began_with{0};
  auto reader = attach({.on_pause = {},
                        .on_resume =
                            [&](const client::Arena& arena) {
                              std::uint64_t nothing = 0;
                              began_with.compare_exchange_strong(nothing, arena.tag.version.value());
                            },
                        .log = {}});
  EXPECT_EQ(reader->enter_step(0ms).error().code, ErrorCode::kDeadlineExceeded);
  const auto exchanged = server->exchange(1, tag_of(2), kLong);
  ASSERT_TRUE(exchanged) << exchanged.error().message;
  EXPECT_EQ(reader->enter_step(0ms).error().code, ErrorCode::kDeadlineExceeded);
  server->resume();
  expect_version(*reader, 2);
  // Its gate was not open for a moment before.
  EXPECT_EQ(began_with, 2U);
}

TEST_F(AttachServerTest, AReaderServesOnWithoutItsAgentAndFollowsTheNextOne) {
  auto server = listen();
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  auto reader = attach();
  const auto* before = reader->peek()->slots->front().data;
  server.reset();
  await([&] { return !reader->state().attached; });
  expect_version(*reader, 1);

  // The next agent knows that the other half is live.
  server = listen();
  ASSERT_TRUE(server->set_arena(arena_.info(1, 2)));
  await([&] { return reader->state().attached && reader->state().tag == tag_of(2); });
  expect_version(*reader, 2);
  EXPECT_EQ(reader->peek()->slots->front().data, before);
  EXPECT_EQ(reader->state().attachments, 2U);
}

TEST_F(AttachServerTest, AReaderThatHasPausedWaitsForTheNextAgent) {
  auto server = listen();
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  auto reader = attach();
  ASSERT_TRUE(server->pause(kLong));
  server.reset();
  await([&] { return !reader->state().attached; });
  // The other ranks of its engine may have gone on to version 2.
  EXPECT_EQ(reader->enter_step(50ms).error().code, ErrorCode::kDeadlineExceeded);
  server = listen();
  ASSERT_TRUE(server->set_arena(arena_.info(1, 2)));
  expect_version(*reader, 2);
}

TEST_F(AttachServerTest, APauseOfARestartedAgentWaitsForClientsThatAreNotBackYet) {
  auto server = listen();
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  auto reader = attach();
  server.reset();
  await([&] { return !reader->state().attached; });
  server = listen();
  // Nobody is attached yet, but somebody computes.
  const auto paused = server->pause(kLong);
  ASSERT_TRUE(paused) << paused.error().message;
  EXPECT_EQ(paused->readers, 1U);
  EXPECT_FALSE(reader->state().open);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  ASSERT_TRUE(server->exchange(1, tag_of(2), kLong));
  server->resume();
  expect_version(*reader, 2);
}

TEST_F(AttachServerTest, AnotherLiveHalfIsNotSetUnderRunningClients) {
  auto server = listen();
  arena_.fill(0, 1);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  auto reader = attach();
  EXPECT_EQ(server->set_arena(arena_.info(1, 2)).error().code, ErrorCode::kConflict);
  expect_version(*reader, 1);
}

TEST_F(AttachServerTest, AReaderMovesToAnotherArena) {
  auto server = listen();
  arena_.fill(0, 1);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  auto reader = attach();
  expect_version(*reader, 1);
  ShmArena larger(20'000, 2);
  larger.fill(0, 7);
  std::optional<Reader::Step> step(reader->enter_step().value());
  ASSERT_TRUE(server->set_arena(larger.info(0, 7)));
  await([&] { return !reader->state().open; });
  // The running step still sees what it began with.
  EXPECT_EQ((*step->arena().slots)[5].data[9'999], arena_.expected(1, 5, 9'999));
  step.reset();
  auto next = reader->enter_step(kLong);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->version(), model::WeightVersion(7));
  ASSERT_EQ(next->arena().slots->size(), 2U);
  EXPECT_EQ((*next->arena().slots)[1].data[19'999], larger.expected(7, 1, 19'999));
}

TEST_F(AttachServerTest, HooksRunAroundEveryExchange) {
  std::atomic<int> paused{0};
  std::atomic<std::uint64_t> resumed_with{0};
  auto server = listen();
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  auto reader = attach({.on_pause = [&] { ++paused; },
                        .on_resume = [&](const client::Arena& arena) { resumed_with = arena.tag.version.value(); },
                        .log = {}});
  expect_version(*reader, 1);
  EXPECT_EQ(paused, 0);
  EXPECT_EQ(resumed_with, 1U);
  ASSERT_TRUE(server->pause(kLong));
  EXPECT_EQ(paused, 1);
  ASSERT_TRUE(server->exchange(1, tag_of(2), kLong));
  EXPECT_EQ(resumed_with, 1U);
  server->resume();
  expect_version(*reader, 2);
  EXPECT_EQ(resumed_with, 2U);
  EXPECT_EQ(paused, 1);
}

TEST_F(AttachServerTest, AnObserverIsNeverWaitedForAndFollows) {
  auto server = listen();
  arena_.fill(0, 1);
  arena_.fill(1, 2);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  auto observer = attach({}, wire::ClientKind::kObserver);
  EXPECT_EQ(server->readers(), 0U);
  std::optional<Reader::Step> step(observer->enter_step().value());
  ASSERT_TRUE(server->pause(kLong));
  ASSERT_TRUE(server->exchange(1, tag_of(2), kLong));
  server->resume();
  step.reset();
  await([&] { return observer->state().tag == tag_of(2); });
  expect_version(*observer, 2);
}

TEST_F(AttachServerTest, EveryRankIsExchangedWhileStepsRun) {
  auto server = listen();
  arena_.fill(0, 1);
  ASSERT_TRUE(server->set_arena(arena_.info(0, 1)));
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 3; ++i)
    readers.push_back(attach());
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> torn{0};
  std::vector<std::thread> engines;
  for (auto& reader : readers) {
    engines.emplace_back([&] {
      while (!stop) {
        auto step = reader->enter_step(kLong);
        if (!step) return;
        const auto version = step->version().value();
        for (std::size_t i = 0; i < 6; ++i)
          if ((*step->arena().slots)[i].data[9'000] != arena_.expected(version, i, 9'000)) ++torn;
      }
    });
  }
  for (std::uint64_t version = 2; version < 60; ++version) {
    const auto shadow = static_cast<std::uint32_t>((version + 1) % 2);
    arena_.fill(shadow, version);
    ASSERT_TRUE(server->pause(kLong));
    const auto exchanged = server->exchange(shadow, tag_of(version), kLong);
    ASSERT_TRUE(exchanged) << exchanged.error().message;
    EXPECT_EQ(exchanged->readers, 3U);
    server->resume();
  }
  stop = true;
  for (auto& thread : engines)
    thread.join();
  EXPECT_EQ(torn, 0U);
  for (auto& reader : readers)
    EXPECT_EQ(reader->state().exchanges, 58U);
}

TEST_F(AttachServerTest, AClientThatTalksNonsenseIsDroppedAlone) {
  std::atomic<int> refused{0};
  auto listened = AttachServer::listen({.path = path_, .on_event = [&](const AttachEvent& e) {
                                          refused += e.kind == AttachEvent::Kind::kRefused ? 1 : 0;
                                        }});
  ASSERT_TRUE(listened);
  auto& server = **listened;
  arena_.fill(0, 1);
  ASSERT_TRUE(server.set_arena(arena_.info(0, 1)));
  auto reader = attach();
  for (const std::string& nonsense : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\x08\0\0\0abcdefgh", 12)}) {
    auto socket = client::FrameSocket::connect(path_).value();
    const int before = refused;
    ASSERT_TRUE(socket.send(nonsense));
    await([&] { return refused > before; });
  }
  auto silent = client::FrameSocket::connect(path_).value();
  ASSERT_TRUE(server.pause(kLong));
  server.resume();
  expect_version(*reader, 1);
}

TEST_F(AttachServerTest, AClientOfAnotherReleaseIsToldWhy) {
  auto server = listen();
  auto socket = client::FrameSocket::connect(path_).value();
  std::string frame = wire::encode_attach(wire::Attach{1, wire::ClientKind::kEngineRank, 5, "old"}).value();
  frame[4 + 16] = 9;
  ASSERT_TRUE(socket.send(std::string_view(frame)));
  std::optional<wire::AttachMessage> answer;
  await([&] {
    (void)socket.fill();
    answer = socket.next().value();
    return answer.has_value();
  });
  const auto* refused = std::get_if<wire::AttachRefused>(&*answer);
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->error.code, ErrorCode::kUnsupported);
}

TEST_F(AttachServerTest, ConnectSaysWhyItFoundNoArena) {
  const auto none = Reader::connect({.socket_path = path_, .connect_timeout = 20ms});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_NE(none.error().message.find("cannot reach the agent"), std::string::npos) << none.error().message;
  auto server = listen();
  auto gone = arena_.info(0, 1);
  gone.halves[0][0].handle = "weightbus.test.gone";
  gone.halves[0][0].kind = gone.halves[1][0].kind = model::RegionKind::kCudaVmm;
  ASSERT_TRUE(server->set_arena(gone));
  const auto unsupported = Reader::connect({.socket_path = path_, .connect_timeout = kLong});
  ASSERT_FALSE(unsupported);
  EXPECT_EQ(unsupported.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace weightbus::runtime
