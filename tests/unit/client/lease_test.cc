#include "weightbus/client/lease.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "tests/unit/client/shm_arena.h"

namespace weightbus::client {
namespace {

TEST(Lease, IsSeenWhileItIsHeld) {
  testing::TempDir dir;
  const auto path = lease_path(dir.file("agent.sock"));
  const auto file = LeaseFile::open(path);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->held()->empty());
  std::optional<Lease> first = Lease::take(path).value();
  std::optional<Lease> second = Lease::take(path).value();
  std::optional<Lease> third = Lease::take(path).value();
  EXPECT_EQ(lease_pid(first->key()), static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(file->held()->size(), 3U);
  const auto key = second->key();
  first.reset();
  third.reset();
  EXPECT_EQ(file->held().value(), std::vector<std::uint64_t>{key});
  second.reset();
  EXPECT_TRUE(file->held()->empty());
}

TEST(Lease, EndsWithItsProcess) {
  testing::TempDir dir;
  const auto path = lease_path(dir.file("agent.sock"));
  const auto file = LeaseFile::open(path).value();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lease = Lease::take(path);
    const char byte = lease ? 'y' : 'n';
    (void)!::write(ready[1], &byte, 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  ASSERT_EQ(file.held()->size(), 1U);
  EXPECT_EQ(lease_pid(file.held()->front()), static_cast<std::uint64_t>(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(file.held()->empty());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(Lease, TheFileStaysWhileSomebodyHoldsOne) {
  testing::TempDir dir;
  const auto path = lease_path(dir.file("agent.sock"));
  auto file = LeaseFile::open(path).value();
  std::optional<Lease> lease = Lease::take(path).value();
  file.remove_if_free();
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  lease.reset();
  file.remove_if_free();
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace weightbus::client
