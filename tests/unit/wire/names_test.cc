// The names of protocol/: here because the samples hold one message of every kind.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/unit/wire/samples.h"
#include "weightbus/protocol/messages.h"

namespace weightbus::protocol {
namespace {

TEST(Names, EveryMessageHasOneOfItsOwn) {
  std::set<std::string> names;
  for (std::size_t kind = 0; kind < wire::testing::body_kinds(); ++kind) {
    const std::string name = body_name(wire::testing::sample_envelope(kind, 1).body);
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos) << name;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_TRUE(names.contains("prepare_sink"));
  EXPECT_STREQ(body_name(Hello{{model::MemberId("a"), model::Role::kAdmin, model::ModelName("m"), model::HostId("h"),
                                "", 0, 1, "", "", ""},
                               model::BootId(1),
                               1,
                               "",
                               {},
                               0,
                               {},
                               {},
                               {},
                               {}}),
               "hello");
}

TEST(Names, OfEnumerants) {
  EXPECT_STREQ(phase_name(Phase::kAnnounced), "announced");
  EXPECT_STREQ(phase_name(static_cast<Phase>(99)), "unknown");
  EXPECT_STREQ(update_kind_name(UpdateKind::kCatchUp), "catch_up");
  EXPECT_STREQ(update_kind_name(static_cast<UpdateKind>(0)), "unknown");
  EXPECT_STREQ(commit_way_name(CommitWay::kRemap), "remap");
  EXPECT_STREQ(commit_way_name(static_cast<CommitWay>(0)), "unknown");
}

}  // namespace
}  // namespace weightbus::protocol
