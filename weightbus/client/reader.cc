#include "weightbus/client/reader.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "weightbus/client/frame_socket.h"
#include "weightbus/client/lease.h"
#include "weightbus/client/session.h"
#include "weightbus/client/wake_fd.h"

namespace weightbus::client {
namespace {

using base::ErrorCode;
using base::fail;
using Clock = std::chrono::steady_clock;

constexpr auto kBackoffFirst = std::chrono::milliseconds(10);  // an agent's worker is back within milliseconds
constexpr auto kBackoffLast = std::chrono::milliseconds(500);
constexpr const char* kSoftware = "weightbus 0.1.0";

// Whether waiting may help: the agent may still be starting.
bool may_pass(ErrorCode code) noexcept { return code == ErrorCode::kUnavailable || code == ErrorCode::kNotFound; }

}  // namespace

class Reader::Impl {
 public:
  explicit Impl(ReaderOptions options)
      : options_(std::move(options)),
        gate_([this] { wake_.wake(); }),
        session_(gate_, options_.hooks, options_.map, [this](const wire::AttachMessage& message) { send(message); }),
        thread_([this] { run(); }) {}

  ~Impl() {
    close();
    WB_ASSERT(gate_.idle(), "a reader was destroyed while a step ran inside it: its memory is about to go");
  }

  void close() {
    const std::lock_guard lock(close_mutex_);
    gate_.shut();
    stop_ = true;
    wake_.wake();
    if (thread_.joinable()) thread_.join();
  }

  base::Status wait_attached() {
    std::unique_lock lock(first_mutex_);
    const bool done =
        first_changed_.wait_until(lock, Clock::now() + options_.connect_timeout, [this] { return first_done_; });
    if (done) return first_;
    return fail(ErrorCode::kDeadlineExceeded, "no arena from the agent at {} within {} ms: {}", options_.socket_path,
                base::to_millis(options_.connect_timeout),
                first_.has_value() ? "it has none yet" : first_.error().message);
  }

  Gate& gate() noexcept { return gate_; }
  Session& session() noexcept { return session_; }

 private:
  void run() {
    auto backoff = kBackoffFirst;
    while (!stop_) {
      const base::Status status = attach_and_serve();
      socket_.reset();
      if (stop_) break;
      const base::Error why =
          status ? base::Error{ErrorCode::kUnavailable, "the agent closed the connection"} : status.error();
      const bool was_attached = session_.snapshot().attached;
      session_.on_lost(why);
      note_first(base::fail(why), !may_pass(why.code));
      if (was_attached) backoff = kBackoffFirst;
      wait(Clock::now() + backoff);
      backoff = std::min(backoff * 2, kBackoffLast);
    }
  }

  // One connection, from Attach to its end; the Status says why it ended.
  base::Status attach_and_serve() {
    if (!lease_ && options_.kind == wire::ClientKind::kEngineRank) {
      WB_ASSIGN(auto lease, Lease::take(lease_path(options_.socket_path)));
      lease_.emplace(std::move(lease));
    }
    WB_ASSIGN(auto socket, FrameSocket::connect(options_.socket_path));
    socket_.emplace(std::move(socket));
    broken_ = {};
    session_.on_attached();
    send(wire::Attach{static_cast<std::uint64_t>(::getpid()), options_.kind, lease_ ? lease_->key() : 0, kSoftware});
    while (!stop_) {
      WB_TRY(broken_);
      for (;;) {
        WB_ASSIGN(const auto message, socket_->next());
        if (!message) break;
        WB_TRY(session_.on_message(*message));
        if (session_.has_arena()) note_first({}, true);
      }
      WB_TRY(broken_);
      pollfd fds[] = {{wake_.fd(), POLLIN, 0},
                      {socket_->fd(), static_cast<short>(socket_->wants_write() ? POLLIN | POLLOUT : POLLIN), 0}};
      ::poll(fds, 2, -1);
      if (fds[0].revents != 0) {
        wake_.drain();
        if (!stop_) session_.on_idle();
      }
      if ((fds[1].revents & POLLOUT) != 0) WB_TRY(socket_->flush());
      if ((fds[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) WB_TRY(socket_->fill());
    }
    return {};
  }

  // Between two connections steps still come and go.
  void wait(Clock::time_point until) {
    while (!stop_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) return;
      pollfd fds[] = {{wake_.fd(), POLLIN, 0}};
      ::poll(fds, 1, static_cast<int>(left));
      if (fds[0].revents == 0) continue;
      wake_.drain();
      if (!stop_) session_.on_idle();
    }
  }

  void send(const wire::AttachMessage& message) {
    if (!socket_ || !broken_) return;
    broken_ = socket_->send(message);
  }

  void note_first(base::Status status, bool final) {
    {
      const std::lock_guard lock(first_mutex_);
      if (first_done_) return;
      first_ = std::move(status);
      first_done_ = final;
    }
    if (final) first_changed_.notify_all();
  }

  const ReaderOptions options_;
  WakeFd wake_;
  Gate gate_;
  std::optional<Lease> lease_;  // of the reader's thread, as what follows
  std::optional<FrameSocket> socket_;
  base::Status broken_;
  Session session_;

  std::mutex first_mutex_;
  std::condition_variable first_changed_;
  bool first_done_ = false;
  base::Status first_;

  std::mutex close_mutex_;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses everything above
};

Reader::Reader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Reader::~Reader() = default;

base::Result<std::unique_ptr<Reader>> Reader::connect(ReaderOptions options) {
  std::unique_ptr<Reader> reader(new Reader(std::make_unique<Impl>(std::move(options))));
  WB_TRY(reader->impl_->wait_attached());
  return reader;
}

base::Result<Reader::Step> Reader::enter_step(std::optional<base::Duration> timeout) {
  WB_ASSIGN(auto arena, impl_->gate().enter(timeout));
  return Step(impl_->gate(), std::move(arena));
}

std::shared_ptr<const Arena> Reader::peek() const { return impl_->session().peek(); }
ReaderState Reader::state() const { return impl_->session().snapshot(); }
void Reader::close() { impl_->close(); }

}  // namespace weightbus::client
