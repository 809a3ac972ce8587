// One of our services as a real process: a keeper and its worker, in a process group of their own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weightbus::testing {

// A bound on waits for what must happen, never an expectation of how long it takes.
inline constexpr std::chrono::seconds kPatience{60};

// Looks again and again until `condition` holds. False: it did not within the bound.
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds bound = kPatience);

// Used by the thread that called start(): the process is killed when that thread ends.
class ServiceProcess {
 public:
  // `settings`: flags without dashes ("member_timeout"), and their values. Logs go to the file `log`.
  ServiceProcess(std::string program, std::map<std::string, std::string> settings, std::string log);
  ~ServiceProcess();  // kills what still runs
  ServiceProcess(const ServiceProcess&) = delete;
  ServiceProcess& operator=(const ServiceProcess&) = delete;

  std::map<std::string, std::string>& settings() { return settings_; }
  // No file that it writes grows over this size from the next start on, as on a disk that is full.
  void limit_file_size(std::optional<std::uint64_t> bytes) { file_size_ = bytes; }

  void start();
  bool running();  // the keeper
  pid_t keeper() const { return keeper_; }
  pid_t worker() const;  // waits for one; -1: there is none

  void signal_worker(int number);  // SIGSTOP: returns once it has stopped
  void kill_worker();              // SIGKILL, and waits until that worker is gone
  void kill_keeper();              // SIGKILL, and waits until its worker is gone too
  // Waits for the keeper's end and returns its exit code, 128 + a signal, or -1 if it did not end.
  int wait();
  int stop();  // SIGTERM, then wait()
  // Whether any process of the group is left after the keeper's end.
  bool leftovers();

  // The field of the first log line with this event since the last start, waiting for it; empty: none came. `at`: the
  // how many-th such line.
  std::string logged(const std::string& event, const std::string& field, std::size_t at = 0);
  // The same without waiting.
  std::vector<std::string> all_logged(const std::string& event, const std::string& field) const;
  std::string log_tail(std::size_t lines) const;

 private:
  std::string program_;
  std::map<std::string, std::string> settings_;
  std::string log_;
  std::optional<std::uint64_t> file_size_;
  pid_t keeper_ = -1;
  std::optional<int> status_;
  std::uint64_t log_start_ = 0;
};

}  // namespace weightbus::testing
