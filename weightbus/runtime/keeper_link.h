// Parking: a worker leaves file descriptors with its keeper, which outlives it, and its successor takes them back.
// Memory behind a parked descriptor survives the worker's death.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/client/unique_fd.h"

namespace weightbus::runtime {

inline constexpr const char* kKeeperVariable = "WEIGHTBUS_KEEPER_FD";
inline constexpr std::size_t kMaxParkedName = 200;
inline constexpr std::size_t kMaxParked = 4096;

// The worker's side. Thread safe; each call waits for the keeper's answer.
class KeeperLink {
 public:
  // kNotFound: this process was not started by a keeper.
  static base::Result<std::unique_ptr<KeeperLink>> from_environment();
  explicit KeeperLink(client::UniqueFd socket) : socket_(std::move(socket)) {}

  // The keeper keeps a duplicate until drop(). kConflict when the name is taken; kResourceExhausted when it holds
  // kMaxParked or has no descriptor left.
  base::Status park(const std::string& name, int fd);
  // A duplicate of what was parked; it stays parked. kNotFound.
  base::Result<client::UniqueFd> take(const std::string& name);
  // Forgets it. kNotFound.
  base::Status drop(const std::string& name);
  base::Result<std::vector<std::string>> names();

 private:
  struct Answer;
  base::Result<Answer> ask(char verb, const std::string& name, int fd);

  std::mutex mutex_;
  client::UniqueFd socket_;
};

// The keeper's side of one socket; single-threaded.
class ParkedFds {
 public:
  // Answers one request that waits on `socket`. False: none waits, or the worker's end is closed.
  bool serve(int socket);
  std::size_t size() const noexcept { return parked_.size(); }

 private:
  struct Parked {
    std::string name;
    client::UniqueFd fd;
  };
  std::vector<Parked> parked_;
};

}  // namespace weightbus::runtime
