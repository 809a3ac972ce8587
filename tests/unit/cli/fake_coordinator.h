// A coordinator that answers as a test says, over a real socket on loopback.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "weightbus/protocol/messages.h"
#include "weightbus/transport/zmq/zmq_transport.h"

namespace weightbus::cli {

class FakeCoordinator {
 public:
  // Nothing: no answer. Called on the coordinator's thread.
  using Answer = std::function<std::optional<protocol::Body>(const protocol::Envelope&)>;

  explicit FakeCoordinator(Answer answer, transport::ZmqOptions options = {});
  ~FakeCoordinator();
  FakeCoordinator(const FakeCoordinator&) = delete;
  FakeCoordinator& operator=(const FakeCoordinator&) = delete;

  const std::string& endpoint() const { return endpoint_; }
  int requests() const { return requests_; }

 private:
  void serve();
  Answer answer_;
  std::unique_ptr<transport::ZmqTransport> transport_;
  std::string endpoint_;
  std::atomic<int> requests_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

inline const model::Epoch kFakeEpoch{{0x1234, 0x5678}, 7};

// What a run of the command line printed.
struct Printed {
  int code = 0;
  std::string out;
  std::string err;
};
// Runs `weightbus` with these arguments; `terminal`: as on one, of 100 columns, with colours.
Printed run_cli(std::vector<std::string> arguments, bool terminal = false);

// Updates and states to show.
protocol::UpdateStatus sample_update(protocol::Phase phase);
protocol::ModelStatus sample_status();

}  // namespace weightbus::cli
