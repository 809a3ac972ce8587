#include "weightbus/runtime/attach_server.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "weightbus/client/frame_socket.h"
#include "weightbus/client/lease.h"
#include "weightbus/client/wake_fd.h"
#include "weightbus/runtime/attach_socket.h"

namespace weightbus::runtime {
namespace {

using base::ErrorCode;
using base::fail;
using Clock = std::chrono::steady_clock;

// What clients send is small; more is not from a client of ours.
constexpr std::size_t kMaxClientFrameBytes = 64U << 10;
constexpr std::size_t kMaxClients = 256;
// How often leases are looked at while a pause waits: their end is not an event.
constexpr auto kLeaseInterval = std::chrono::milliseconds(5);

struct Client {
  explicit Client(Accepted accepted) : socket(std::move(accepted.fd), kMaxClientFrameBytes), pid(accepted.pid) {}

  client::FrameSocket socket;
  std::uint64_t pid;
  bool attached = false;
  wire::ClientKind kind = wire::ClientKind::kObserver;
  std::uint64_t lease = 0;
  std::optional<std::uint64_t> paused_id;
  std::optional<wire::Exchanged> exchanged;
  std::optional<base::Error> exchange_error;
  std::optional<std::string> doomed;  // why the server's thread must drop it

  bool is_rank() const noexcept { return attached && kind == wire::ClientKind::kEngineRank; }
};

class Server final : public AttachServer {
 public:
  Server(AttachServerOptions options, client::UniqueFd listener, client::LeaseFile leases)
      : options_(std::move(options)), listener_(std::move(listener)), leases_(std::move(leases)) {
    thread_ = std::thread([this] { run(); });
  }

  ~Server() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.wake();
    changed_.notify_all();
    thread_.join();
    ::unlink(options_.path.c_str());
    clients_.clear();
    leases_.remove_if_free();
  }

  base::Status set_arena(wire::ArenaInfo info) override;
  base::Result<PauseReport> pause(base::Duration deadline) override;
  base::Result<ExchangeReport> exchange(std::uint32_t live, const protocol::Tag& tag, base::Duration deadline) override;
  void resume() override;

  bool paused() const override {
    const std::lock_guard lock(mutex_);
    return pausing_;
  }
  std::size_t readers() const override {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(
        std::count_if(clients_.begin(), clients_.end(), [](const auto& c) { return c->is_rank(); }));
  }
  std::vector<std::uint64_t> reader_pids() const override {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint64_t> pids;
    for (const auto& client : clients_)
      if (client->is_rank()) pids.push_back(client->pid);
    return pids;
  }
  std::optional<wire::ArenaInfo> arena() const override {
    const std::lock_guard lock(mutex_);
    return arena_;
  }

 private:
  using Events = std::vector<AttachEvent>;

  void run();
  void serve(const std::vector<pollfd>& fds, Events& events);
  void accept_all(Events& events);
  void read(Client& client, Events& events);
  void obey(Client& client, const wire::AttachMessage& message, Events& events);
  void attach(Client& client, const wire::Attach& message, Events& events);
  void drop_doomed(Events& events);
  void send(Client& client, const wire::AttachMessage& message);
  void send_arena(Client& client);
  void send_all(const wire::AttachMessage& message);
  // Processes that may still compute: ranks that have not paused, and leases without a paused rank.
  base::Result<std::vector<std::uint64_t>> computing() const;

  const AttachServerOptions options_;
  client::UniqueFd listener_;
  client::LeaseFile leases_;
  client::WakeFd wake_;
  std::mutex operation_;  // one pause or exchange at a time; taken before mutex_

  mutable std::mutex mutex_;  // of everything below; never held while waiting or calling out
  std::condition_variable changed_;
  bool stop_ = false;
  std::vector<std::unique_ptr<Client>> clients_;
  std::optional<wire::ArenaInfo> arena_;  // with `paused` always as pausing_
  std::uint64_t pause_id_ = 0;
  std::uint32_t pause_deadline_ms_ = 0;
  bool pausing_ = false;
  bool pause_complete_ = false;
  std::optional<wire::Exchange> exchanging_;

  std::thread thread_;
};

// ---------------------------------------------------------------- what the agent asks for

base::Status Server::set_arena(wire::ArenaInfo info) {
  WB_TRY(wire::validate_arena(info));
  const std::lock_guard lock(mutex_);
  info.paused = pausing_;
  if (arena_ && !pausing_ && arena_->halves == info.halves && arena_->live != info.live) {
    WB_ASSIGN(const auto pids, computing());
    if (!pids.empty())
      return fail(ErrorCode::kConflict, "clients {} compute with half {}; pause and exchange them",
                  fmt::join(pids, ", "), arena_->live);
  }
  WB_TRY(wire::encode_attach(info));  // too many slots for a frame: said here, not to each client
  arena_ = std::move(info);
  for (auto& client : clients_)
    if (client->attached) send_arena(*client);
  wake_.wake();
  return {};
}

base::Result<PauseReport> Server::pause(base::Duration deadline) {
  const std::lock_guard operation(operation_);
  const auto until = Clock::now() + deadline;
  std::unique_lock lock(mutex_);
  if (!pausing_) {
    pausing_ = true;
    pause_complete_ = false;
    ++pause_id_;
    // Whoever attaches from now on must not begin, not even before its Pause arrives.
    if (arena_) arena_->paused = true;
  }
  const auto millis = std::chrono::ceil<std::chrono::milliseconds>(deadline).count();
  pause_deadline_ms_ =
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(millis, 0, std::numeric_limits<std::uint32_t>::max()));
  send_all(wire::Pause{pause_id_, pause_deadline_ms_});
  for (;;) {
    if (stop_) return fail(ErrorCode::kUnavailable, "the server is being closed");
    WB_ASSIGN(const auto pids, computing());
    if (pids.empty()) break;
    const auto now = Clock::now();
    if (now >= until)
      return fail(ErrorCode::kDeadlineExceeded,
                  "process {} did not pause within {} ms: it is inside a step, or stopped", fmt::join(pids, ", "),
                  base::to_millis(deadline));
    changed_.wait_until(lock, std::min<Clock::time_point>(until, now + kLeaseInterval));
  }
  pause_complete_ = true;
  PauseReport report;
  for (const auto& client : clients_)
    report.readers += client->is_rank() ? 1U : 0U;
  return report;
}

base::Result<ExchangeReport> Server::exchange(std::uint32_t live, const protocol::Tag& tag, base::Duration deadline) {
  const std::lock_guard operation(operation_);
  const auto until = Clock::now() + deadline;
  std::unique_lock lock(mutex_);
  if (!arena_ || live > 1) return fail(ErrorCode::kInvalidArgument, "there is no half {} to exchange in", live);
  if (!pausing_ || !pause_complete_)
    return fail(ErrorCode::kConflict, "nothing is exchanged before everyone has paused");
  for (auto& client : clients_) {
    client->exchanged.reset();
    client->exchange_error.reset();
  }
  exchanging_ = wire::Exchange{pause_id_, live, tag};
  send_all(*exchanging_);
  base::Result<ExchangeReport> result = ExchangeReport{};
  for (;;) {
    std::vector<std::uint64_t> waiting;
    result = ExchangeReport{};
    for (const auto& client : clients_) {
      if (!client->is_rank() || client->doomed) continue;
      if (client->exchange_error) {
        result = fail(client->exchange_error->with(fmt::format("process {} did not exchange", client->pid)));
        break;
      }
      if (!client->exchanged) {
        waiting.push_back(client->pid);
        continue;
      }
      result->readers += 1;
      result->slowest_ns = std::max(result->slowest_ns, client->exchanged->duration_ns);
    }
    if (!result || waiting.empty()) break;
    if (stop_) result = fail(ErrorCode::kUnavailable, "the server is being closed");
    if (Clock::now() >= until)
      result = fail(ErrorCode::kDeadlineExceeded, "process {} did not exchange within {} ms", fmt::join(waiting, ", "),
                    base::to_millis(deadline));
    if (!result) break;
    changed_.wait_until(lock, until);
  }
  exchanging_.reset();
  if (!result) return result;
  arena_->live = live;
  arena_->tag = tag;
  return result;
}

void Server::resume() {
  const std::lock_guard lock(mutex_);
  if (!pausing_) return;
  pausing_ = false;
  pause_complete_ = false;
  if (!arena_) return;  // set_arena() lets clients go on
  send_all(wire::Resume{pause_id_, arena_->live, arena_->tag});
  arena_->paused = false;
}

base::Result<std::vector<std::uint64_t>> Server::computing() const {
  std::vector<std::uint64_t> pids;
  std::vector<std::uint64_t> known_leases;
  for (const auto& client : clients_) {
    if (!client->is_rank()) continue;
    const bool has_paused = pausing_ && client->paused_id == pause_id_;
    // A connection that is about to be dropped proves nothing of its process: the lease decides.
    if (client->doomed && !has_paused) continue;
    known_leases.push_back(client->lease);
    if (!has_paused) pids.push_back(client->pid);
  }
  WB_ASSIGN(const auto held, leases_.held());
  for (const auto lease : held)
    if (std::find(known_leases.begin(), known_leases.end(), lease) == known_leases.end())
      pids.push_back(client::lease_pid(lease));
  return pids;
}

// ---------------------------------------------------------------- the server's thread

void Server::run() {
  for (;;) {
    std::vector<pollfd> fds;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      fds.push_back({wake_.fd(), POLLIN, 0});
      fds.push_back({listener_.get(), static_cast<short>(clients_.size() < kMaxClients ? POLLIN : 0), 0});
      for (const auto& client : clients_)
        fds.push_back(
            {client->socket.fd(), static_cast<short>(client->socket.wants_write() ? POLLIN | POLLOUT : POLLIN), 0});
    }
    // Only this thread adds or removes clients, so that positions still match afterwards.
    ::poll(fds.data(), fds.size(), -1);
    Events events;
    {
      const std::lock_guard lock(mutex_);
      serve(fds, events);
    }
    changed_.notify_all();
    if (options_.on_event)
      for (const auto& event : events)
        options_.on_event(event);
  }
}

void Server::serve(const std::vector<pollfd>& fds, Events& events) {
  if (fds[0].revents != 0) wake_.drain();
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    const short ready = fds[i + 2].revents;
    auto& client = *clients_[i];
    if ((ready & POLLOUT) != 0)
      if (const auto status = client.socket.flush(); !status) client.doomed = status.error().message;
    if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0) read(client, events);
  }
  drop_doomed(events);
  if (fds[1].revents != 0) accept_all(events);
}

void Server::accept_all(Events& events) {
  while (clients_.size() < kMaxClients) {
    auto accepted = accept_unix(listener_.get());
    if (!accepted) {
      if (accepted.error().code != ErrorCode::kPermissionDenied) return;
      events.push_back({AttachEvent::Kind::kRefused, 0, wire::ClientKind::kObserver, accepted.error().message});
      continue;
    }
    clients_.push_back(std::make_unique<Client>(std::move(*accepted)));
  }
}

void Server::read(Client& client, Events& events) {
  if (client.doomed) return;
  if (const auto status = client.socket.fill(); !status) {
    client.doomed = status.error().message;
    return;
  }
  while (!client.doomed) {
    auto message = client.socket.next();
    if (!message) {
      // Said in words before the connection ends: most often it is a client of another release.
      send(client, wire::AttachRefused{message.error()});
      client.doomed = message.error().message;
      events.push_back({AttachEvent::Kind::kRefused, client.pid, client.kind, message.error().message});
      return;
    }
    if (!*message) return;
    obey(client, **message, events);
  }
}

void Server::obey(Client& client, const wire::AttachMessage& message, Events& events) {
  if (const auto* hello = std::get_if<wire::Attach>(&message)) {
    attach(client, *hello, events);
  } else if (!client.attached) {
    client.doomed = "it spoke before it attached";
  } else if (const auto* paused = std::get_if<wire::Paused>(&message)) {
    if (paused->id == pause_id_) client.paused_id = paused->id;
  } else if (const auto* exchanged = std::get_if<wire::Exchanged>(&message)) {
    if (exchanging_ && exchanged->id == exchanging_->id && exchanged->live == exchanging_->live)
      client.exchanged = *exchanged;
  } else if (const auto* failed = std::get_if<wire::ExchangeFailed>(&message)) {
    if (exchanging_ && failed->id == exchanging_->id) client.exchange_error = failed->error;
  } else {
    client.doomed = "it sent a message that only agents send";
  }
}

void Server::attach(Client& client, const wire::Attach& message, Events& events) {
  if (!client.attached) {
    client.attached = true;
    client.kind = message.kind;
    client.lease = message.lease;
    // Behind a process namespace the kernel cannot name the peer.
    if (client.pid == 0) client.pid = message.pid;
    events.push_back({AttachEvent::Kind::kAttached, client.pid, client.kind, message.software});
  }
  send_arena(client);
}

void Server::send_arena(Client& client) {
  if (arena_) send(client, *arena_);
  // Also without an arena: the client may compute with what the agent's earlier start had given it.
  if (pausing_) send(client, wire::Pause{pause_id_, pause_deadline_ms_});
  if (exchanging_) send(client, *exchanging_);
}

void Server::send(Client& client, const wire::AttachMessage& message) {
  if (client.doomed) return;
  if (const auto status = client.socket.send(message); !status) client.doomed = status.error().message;
}

void Server::send_all(const wire::AttachMessage& message) {
  for (auto& client : clients_)
    if (client->attached) send(*client, message);
  wake_.wake();  // for what did not go at once, and for those that are doomed now
}

void Server::drop_doomed(Events& events) {
  std::erase_if(clients_, [&](const auto& client) {
    if (!client->doomed) return false;
    if (client->attached) events.push_back({AttachEvent::Kind::kLeft, client->pid, client->kind, *client->doomed});
    return true;
  });
}

}  // namespace

base::Result<std::unique_ptr<AttachServer>> AttachServer::listen(AttachServerOptions options) {
  WB_ASSIGN(auto listener, listen_unix(options.path));
  WB_ASSIGN(auto leases, client::LeaseFile::open(client::lease_path(options.path)));
  return std::make_unique<Server>(std::move(options), std::move(listener), std::move(leases));
}

}  // namespace weightbus::runtime
