#include "weightbus/channel/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightbus::channel {
namespace {

using ::testing::HasSubstr;
using Names = std::vector<std::string>;
using Own = std::vector<SinkChannel>;

SelectionEnd end(const char* member, const char* host, const char* uuid = "") {
  return {model::MemberId(member), model::HostId(host), uuid};
}
const Own kBoth{{"shm", true, ""}, {"tcp", true, ""}};

TEST(Selection, OneHostUsesSharedMemory) {
  EXPECT_EQ(select_channel(end("s", "a"), end("e", "a"), Names{"tcp", "shm"}, kBoth), "shm");
}

TEST(Selection, TwoHostsUseTcp) {
  EXPECT_EQ(select_channel(end("s", "a"), end("e", "b"), Names{"shm", "tcp"}, kBoth), "tcp");
}

TEST(Selection, SharedMemoryThatIsNotOfferedOrNotUsableGivesWayToTcp) {
  EXPECT_EQ(select_channel(end("s", "a"), end("e", "a"), Names{"tcp"}, kBoth), "tcp");
  const Own broken{{"shm", false, "/dev/shm is read-only"}, {"tcp", true, ""}};
  EXPECT_EQ(select_channel(end("s", "a"), end("e", "a"), Names{"shm", "tcp"}, broken), "tcp");
}

TEST(Selection, TheOrderOfNamesAndTheDirectionChangeNothing) {
  const Own reversed{{"tcp", true, ""}, {"shm", true, ""}};
  for (const char* host : {"a", "b"}) {
    const auto there = select_channel(end("s", "a"), end("e", host), Names{"shm", "tcp"}, kBoth);
    EXPECT_EQ(there, select_channel(end("e", host), end("s", "a"), Names{"tcp", "shm"}, reversed));
  }
}

TEST(Selection, NoneLeftNamesBothMembersAndEveryReason) {
  const Own broken{{"shm", true, ""}, {"tcp", false, "port 7000 is taken"}};
  const auto none = select_channel(end("shard-0", "a"), end("engine-1", "b"), Names{"shm", "tcp"}, broken);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, base::ErrorCode::kUnsupported);
  for (const char* part : {"shard-0", "engine-1", "host a", "host b", "one host", "port 7000 is taken"}) {
    EXPECT_THAT(none.error().message, HasSubstr(part));
  }
  EXPECT_FALSE(select_channel(end("s", "a"), end("e", "a"), {}, {}));
}

TEST(Selection, GpuMemoryIsNotForTheseChannels) {
  EXPECT_FALSE(select_channel(end("s", "a", "GPU-1"), end("e", "a"), Names{"shm", "tcp"}, kBoth));
  EXPECT_FALSE(select_channel(end("s", "a"), end("e", "a", "GPU-1"), Names{"shm", "tcp"}, kBoth));
}

}  // namespace
}  // namespace weightbus::channel
