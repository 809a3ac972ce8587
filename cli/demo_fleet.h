// The demo's fleet: real processes of this machine, in one folder.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"

namespace weightbus::cli {

struct DemoFleetOptions {
  std::string directory;  // journal, state and logs go here
  std::string programs;   // folder of the three service programs
  std::string model;      // its own, so that several demos can run at once
  std::uint32_t trainers = 2;
  std::uint32_t engines = 2;
  std::uint32_t tp_size = 2;
  std::uint32_t retain_versions = 4;
};

// One thread. The processes die with this one.
class DemoFleet {
 public:
  // Starts everything and returns when the coordinator listens. kNotFound: a program is missing; kUnavailable: it did
  // not start, with the end of its log.
  static base::Result<std::unique_ptr<DemoFleet>> start(DemoFleetOptions options);
  ~DemoFleet();

  const std::string& endpoint() const { return endpoint_; }
  std::size_t agents() const { return processes_.size() - 1; }
  // The worker of an agent: the process that does the work and that its keeper starts again. kNotFound while there is
  // none.
  base::Result<pid_t> worker(const std::string& member) const;
  // Asks all to end, waits, and reports what did not end by itself or was left behind (processes, shared memory).
  base::Status stop();

 private:
  struct Process {
    std::string name;
    pid_t pid;
    std::string log;
  };
  explicit DemoFleet(DemoFleetOptions options) : options_(std::move(options)) {}
  base::Status spawn(const std::string& program, const std::string& name, std::vector<std::string> arguments);
  base::Status wait_for_coordinator();

  DemoFleetOptions options_;
  std::vector<Process> processes_;  // the coordinator first
  std::string endpoint_;
};

// Names under /dev/shm that belong to the model's members.
std::vector<std::string> shared_memory_of(const std::string& model);

}  // namespace weightbus::cli
