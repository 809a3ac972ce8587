// Wakes a poll() from any thread: an eventfd that counts nothing but "something happened".
#pragma once

#include "weightbus/client/unique_fd.h"

namespace weightbus::client {

class WakeFd {
 public:
  WakeFd();  // ends the process when no descriptor is left: nothing could be told apart from a hang afterwards
  int fd() const noexcept { return fd_.get(); }
  void wake() noexcept;   // any thread, also a signal handler
  void drain() noexcept;  // the polling thread

 private:
  UniqueFd fd_;
};

}  // namespace weightbus::client
