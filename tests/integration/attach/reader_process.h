// A real weightbus-reader process and the lines that it prints.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

extern char** environ;

namespace weightbus::testing {

class ReaderProcess {
 public:
  explicit ReaderProcess(std::vector<std::string> arguments) {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    arguments.insert(arguments.begin(), WEIGHTBUS_READER);
    std::vector<char*> argv;
    for (auto& argument : arguments)
      argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    const int error = ::posix_spawn(&pid_, WEIGHTBUS_READER, &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(fds[1]);
    out_ = fds[0];
    if (error != 0) throw std::runtime_error("cannot start the reader");
  }
  ~ReaderProcess() {
    if (!status_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(out_);
  }
  ReaderProcess(const ReaderProcess&) = delete;
  ReaderProcess& operator=(const ReaderProcess&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) { ::kill(pid_, number); }
  // SIGSTOP, and waits until every thread of it has stopped.
  void stop() {
    int status = 0;
    ::kill(pid_, SIGSTOP);
    if (::waitpid(pid_, &status, WUNTRACED) == pid_ && !WIFSTOPPED(status)) status_ = status;
  }

  // The next line with this "event", or nullopt when the output has ended or nothing came for long.
  std::optional<nlohmann::json> next(const std::string& event) {
    for (;;) {
      const auto end = buffer_.find('\n');
      if (end == std::string::npos) {
        if (!read_more()) return std::nullopt;
        continue;
      }
      const auto line = nlohmann::json::parse(buffer_.substr(0, end));
      buffer_.erase(0, end + 1);
      if (line.at("event") == event) return line;
    }
  }
  // Waits until a step saw this version.
  bool saw_version(std::uint64_t version) {
    while (const auto line = next("version"))
      if (line->at("version") == version) return true;
    return false;
  }
  bool has_ended() {
    if (!status_) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    }
    return status_.has_value();
  }
  // The exit status, waiting for the end.
  int wait() {
    if (!status_) {
      int status = 0;
      ::waitpid(pid_, &status, 0);
      status_ = status;
    }
    return WIFEXITED(*status_) ? WEXITSTATUS(*status_) : -WTERMSIG(*status_);
  }
  // SIGTERM, then its summary.
  nlohmann::json finish() {
    signal(SIGTERM);
    return next("summary").value_or(nlohmann::json::object());
  }

 private:
  bool read_more() {
    pollfd fd{out_, POLLIN, 0};
    if (::poll(&fd, 1, 30'000) != 1) return false;
    char bytes[4096];
    const auto count = ::read(out_, bytes, sizeof bytes);
    if (count <= 0) return false;
    buffer_.append(bytes, static_cast<std::size_t>(count));
    return true;
  }

  pid_t pid_ = -1;
  int out_ = -1;
  std::string buffer_;
  std::optional<int> status_;
};

}  // namespace weightbus::testing
