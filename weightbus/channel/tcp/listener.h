// The source's end of all tcp connections of a process: one listening socket, one thread that accepts, one a
// connection.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/channel/tcp/factory.h"
#include "weightbus/channel/tcp/served_session.h"
#include "weightbus/channel/tcp/socket.h"

namespace weightbus::channel {

class Listener {
 public:
  // Listens; accepting begins with the first session.
  static base::Result<std::shared_ptr<Listener>> create(const TcpOptions& options);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();  // ends every connection and joins every thread

  const HostPort& advertised() const noexcept { return advertised_; }
  // Makes the session reachable by its number. kResourceExhausted when no thread can be had.
  base::Status add(std::shared_ptr<ServedSession> session);
  // Forgets it. Its connections end by themselves (ServedSession::close).
  void remove(std::uint64_t session);

 private:
  struct Connection {
    std::thread thread;
    std::atomic<bool> finished{false};
  };

  Listener(const TcpOptions& options, Fd socket, Fd stop, HostPort advertised);
  void accept_loop();
  void accept_one();
  void reap();
  void run_connection(Fd socket);
  base::Result<std::shared_ptr<ServedSession>> authenticate(int fd, model::MemberId& sink);
  std::shared_ptr<ServedSession> find(std::uint64_t session);

  const TcpOptions options_;
  const std::shared_ptr<TcpCounters> counters_;
  const Fd socket_;
  const Fd stop_;  // an eventfd: readable once the listener ends
  const HostPort advertised_;
  std::list<Connection> connections_;  // of the accepting thread
  std::mutex mutex_;                   // guards the two below
  std::map<std::uint64_t, std::shared_ptr<ServedSession>> sessions_;
  std::thread accepting_;
};

}  // namespace weightbus::channel
