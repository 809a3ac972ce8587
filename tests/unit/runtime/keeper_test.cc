#include "weightbus/runtime/keeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

extern char** environ;

namespace weightbus::runtime {
namespace {

// A keeper process with its worker, and the lines that both print.
class Member {
 public:
  explicit Member(std::vector<std::string> arguments) {
    int fds[2];
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    arguments.insert(arguments.begin(), WEIGHTBUS_KEEPER_MEMBER);
    std::vector<char*> argv;
    for (auto& argument : arguments)
      argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    EXPECT_EQ(::posix_spawn(&pid_, WEIGHTBUS_KEEPER_MEMBER, &actions, nullptr, argv.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(fds[1]);
    out_ = fds[0];
  }
  ~Member() {
    if (!waited_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(out_);
  }
  void signal(int number) const { ::kill(pid_, number); }

  // The next line that begins so; nullopt: the output ended, which it does when keeper and worker are both gone.
  std::optional<std::string> line(const std::string& begin) {
    for (;;) {
      for (auto end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n')) {
        const std::string found = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        if (found.starts_with(begin)) return found;
      }
      pollfd fd{out_, POLLIN, 0};
      char bytes[1024];
      if (::poll(&fd, 1, 30'000) != 1) return std::nullopt;
      const auto count = ::read(out_, bytes, sizeof bytes);
      if (count <= 0) return std::nullopt;
      buffer_.append(bytes, static_cast<std::size_t>(count));
    }
  }
  pid_t worker() {
    const auto text = line("worker ");
    return text ? static_cast<pid_t>(std::stoi(text->substr(7))) : -1;
  }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    waited_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  bool waited_ = false;
  std::string buffer_;
};

TEST(Keeper, StartsAKilledWorkerAgain) {
  Member member({"serve"});
  const pid_t first = member.worker();
  ASSERT_GT(first, 0);
  ::kill(first, SIGKILL);
  const pid_t second = member.worker();
  ASSERT_GT(second, 0);
  EXPECT_NE(first, second);
  member.signal(SIGTERM);
  EXPECT_EQ(member.wait(), 0);
}

TEST(Keeper, GivesUpAWorkerThatOnlyFails) {
  Member member({"crash"});
  int starts = 0;
  while (member.worker() > 0)
    ++starts;
  EXPECT_EQ(starts, 5);
  EXPECT_EQ(member.wait(), 128 + SIGKILL);
}

TEST(Keeper, SaysWhyItGaveUp) {
  Member member({"crash"});
  const auto reason = member.line("keeper: giving up");
  ASSERT_TRUE(reason);
  EXPECT_NE(reason->find("5 failures"), std::string::npos) << *reason;
  EXPECT_NE(reason->find("signal 9"), std::string::npos) << *reason;
}

TEST(Keeper, AWorkerThatIsDoneEndsIt) {
  Member member({"done"});
  EXPECT_EQ(member.wait(), 0);
}

TEST(Keeper, AWorkerThatWasRefusedIsNotStartedAgain) {
  Member member({"refused"});
  EXPECT_EQ(member.wait(), 64);
  EXPECT_GT(member.worker(), 0);
  EXPECT_EQ(member.worker(), -1);
}

TEST(Keeper, KillsAWorkerThatDoesNotStopInItsGrace) {
  Member member({"stubborn"});
  ASSERT_TRUE(member.line("deaf"));
  member.signal(SIGTERM);
  EXPECT_TRUE(member.line("keeper: the worker did not end within"));
  EXPECT_EQ(member.wait(), 128 + SIGKILL);
}

TEST(Keeper, NoWorkerOutlivesAKilledKeeper) {
  Member member({"serve"});
  ASSERT_GT(member.worker(), 0);
  member.signal(SIGKILL);
  member.wait();
  // Both held the pipe: it ends only when the worker is gone too.
  EXPECT_EQ(member.line("anything"), std::nullopt);
}

TEST(Keeper, ParkedMemoryOutlivesItsWorker) {
  Member member({"park"});
  ASSERT_TRUE(member.line("parked"));
  EXPECT_EQ(member.line("found").value_or(""), "found weights of 2");
  EXPECT_EQ(member.wait(), 0);
}

bool shm_exists(const std::string& name) {
  const int fd = ::shm_open(("/" + name).c_str(), O_RDONLY, 0);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

TEST(Keeper, ACleanEndRemovesTheMembersSharedMemoryOnly) {
  const std::string prefix = "weightbus.test.keeper." + std::to_string(::getpid()) + ".";
  const std::string other = "weightbus.test.keeper." + std::to_string(::getpid()) + "0.x";
  for (const auto& name : {prefix + "a", prefix + "b", other})
    ::close(::shm_open(("/" + name).c_str(), O_RDWR | O_CREAT, 0600));
  {
    // Given up, not ended: what it holds is kept for its next start.
    Member member({"crash", prefix});
    EXPECT_EQ(member.wait(), 128 + SIGKILL);
  }
  EXPECT_TRUE(shm_exists(prefix + "a"));
  {
    Member member({"serve", prefix});
    ASSERT_GT(member.worker(), 0);
    member.signal(SIGINT);
    EXPECT_EQ(member.wait(), 0);
  }
  EXPECT_FALSE(shm_exists(prefix + "a"));
  EXPECT_FALSE(shm_exists(prefix + "b"));
  EXPECT_TRUE(shm_exists(other));
  ::shm_unlink(("/" + other).c_str());
}

}  // namespace
}  // namespace weightbus::runtime
