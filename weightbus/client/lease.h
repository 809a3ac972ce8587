// Leases tell an agent which client processes live, even while they are not connected: each engine rank holds a lock on
// one byte of a file, which the kernel drops when the process ends (schemas/attach.capnp: "Lease").
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/client/unique_fd.h"

namespace weightbus::client {

// The lease file that belongs to an agent's socket.
std::string lease_path(const std::string& socket_path);

// Held until destroyed. Owned by one Reader.
class Lease {
 public:
  // Locks a byte that nobody else has locked, making the file if it is not there.
  static base::Result<Lease> take(const std::string& path);
  std::uint64_t key() const noexcept { return key_; }

 private:
  Lease(UniqueFd fd, std::uint64_t key) : fd_(std::move(fd)), key_(key) {}
  UniqueFd fd_;
  std::uint64_t key_;
};

// The process id that a lease's key was made with, as that process saw it; for messages.
inline std::uint64_t lease_pid(std::uint64_t key) noexcept { return key >> 24; }

// The agent's view.
class LeaseFile {
 public:
  static base::Result<LeaseFile> open(const std::string& path);
  // The keys held now, ascending. kInternal when the file cannot be queried.
  base::Result<std::vector<std::uint64_t>> held() const;
  // Removes the file if nobody holds a lease.
  void remove_if_free() noexcept;

 private:
  LeaseFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::string path_;
};

}  // namespace weightbus::client
