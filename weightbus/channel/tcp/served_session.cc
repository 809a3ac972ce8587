#include "weightbus/channel/tcp/served_session.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "weightbus/channel/tcp/stream.h"

namespace weightbus::channel {
namespace {

using base::ErrorCode;
using base::fail;

// Between two pulls a connection may rest for as long as the session lasts.
constexpr base::Duration kIdle = std::chrono::hours(24 * 24);

template <class Frame>
base::Result<Frame> receive_frame(int fd, SocketLimits& limits) {
  std::array<char, Frame::kSize> bytes{};
  WB_TRY(receive_all(fd, bytes.data(), bytes.size(), limits));
  const auto frame = Frame::decode({bytes.data(), bytes.size()});
  if (!frame) return fail(ErrorCode::kCorrupted, "the sink sent a frame that cannot be read");
  return *frame;
}

base::Status send_failure(int fd, const base::Error& error, SocketLimits& limits) {
  const auto text = std::string_view(error.message).substr(0, kFailureMax);
  const BucketHeader header{HeaderKind::kFailed, static_cast<std::uint32_t>(error.code), text.size()};
  const std::string bytes = header.encode() + std::string(text);
  return send_all(fd, bytes.data(), bytes.size(), false, limits);
}

}  // namespace

base::Result<Fd> make_event() {
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return fail(ErrorCode::kResourceExhausted, "no eventfd: {}", std::strerror(errno));
  return event;
}

void raise(const Fd& event) noexcept {
  const std::uint64_t one = 1;
  // A fresh counter takes this; there is nothing to do about an error.
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
}

bool is_raised(const Fd& event) noexcept {
  pollfd item{event.get(), POLLIN, 0};
  return ::poll(&item, 1, 0) > 0;
}

base::Result<std::shared_ptr<ServedSession>> ServedSession::create(const ServeRequest& request, const Limits& limits) {
  for (const auto* memory : request.regions) {
    if (memory->region().device_uuid.empty()) continue;
    return fail(ErrorCode::kUnsupported, "{}: tcp serves CPU memory only, not memory of GPU {}", request.source.value(),
                memory->region().device_uuid);
  }
  WB_ASSIGN(auto stop, make_event());
  WB_ASSIGN(auto ready, make_event());
  return std::shared_ptr<ServedSession>(new ServedSession(request, limits, std::move(stop), std::move(ready)));
}

ServedSession::ServedSession(const ServeRequest& request, const Limits& limits, Fd stop, Fd ready)
    : number_(random_number()),
      source_(request.source),
      key_(hash_token(request.token)),
      limits_(limits),
      stop_(std::move(stop)),
      ready_(std::move(ready)) {
  for (const auto* memory : request.regions) {
    // Memory's accessors are not const; reading through them changes nothing.
    regions_.push_back(const_cast<device::Memory*>(memory)->data());
    region_bytes_.push_back(memory->bytes());
  }
}

void ServedSession::set_part(std::shared_ptr<const plan::SourcePart> part) {
  const std::lock_guard lock(mutex_);
  WB_ASSERT(!part_ && part, "set_part is called once, with a part");
  part_ = std::move(part);
  raise(ready_);
}

void ServedSession::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  raise(stop_);
  changed_.wait(lock, [this] { return connections_ == 0; });
}

bool ServedSession::enter() {
  const std::lock_guard lock(mutex_);
  if (!closed_) ++connections_;
  return !closed_;
}

void ServedSession::leave() {
  const std::lock_guard lock(mutex_);
  --connections_;
  changed_.notify_all();
}

base::Status ServedSession::serve(int fd, const model::MemberId& sink) {
  if (!enter()) return fail(ErrorCode::kUnavailable, "the session has ended");
  auto status = serve_requests(fd, sink);
  leave();
  return status;
}

base::Status ServedSession::serve_requests(int fd, const model::MemberId& sink) {
  SourceLimits idle(stop_.get(), kIdle);
  SourceLimits busy(stop_.get(), limits_.stall);
  std::vector<std::byte> staging(limits_.staging_bytes);
  std::vector<const plan::Bucket*> buckets;
  bool known = false;
  while (true) {
    WB_TRY(idle.wait(fd, POLLIN));
    WB_ASSIGN(const Request request, receive_frame<Request>(fd, busy));
    if (request.kind != RequestKind::kPull || request.count == 0 || request.credits == 0) {
      return fail(ErrorCode::kCorrupted, "{} sent a request out of turn", sink.value());
    }
    WB_TRY(wait_for_part(fd));
    if (!known) buckets = buckets_for(sink);
    known = true;
    if (request.first > buckets.size() || request.count > buckets.size() - request.first) {
      const base::Error error{ErrorCode::kInvalidArgument,
                              fmt::format("{} has {} buckets for {}, not {} from {} on: their plans differ",
                                          source_.value(), buckets.size(), sink.value(), request.count, request.first)};
      WB_TRY(send_failure(fd, error, busy));
      return fail(error);
    }
    const auto wanted = std::span(buckets).subspan(request.first, request.count);
    WB_TRY(send_buckets(fd, wanted, request, staging, busy));
  }
}

base::Status ServedSession::wait_for_part(int fd) {
  while (!is_raised(ready_)) {
    pollfd items[3] = {{fd, POLLIN | POLLRDHUP, 0}, {stop_.get(), POLLIN, 0}, {ready_.get(), POLLIN, 0}};
    if (::poll(items, 3, -1) < 0) {
      if (errno == EINTR) continue;
      return fail(ErrorCode::kInternal, "poll: {}", std::strerror(errno));
    }
    if (items[1].revents) return fail(ErrorCode::kUnavailable, "the session has ended");
    if (items[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) return fail(ErrorCode::kUnavailable, "the sink has left");
    if (items[0].revents) return fail(ErrorCode::kCorrupted, "the sink speaks while it should wait");
  }
  return {};
}

std::vector<const plan::Bucket*> ServedSession::buckets_for(const model::MemberId& sink) {
  const std::lock_guard lock(mutex_);
  std::vector<const plan::Bucket*> buckets;
  for (const auto& bucket : part_->buckets) {
    if (bucket.sink == sink) buckets.push_back(&bucket);
  }
  return buckets;
}

base::Status ServedSession::send_buckets(int fd, std::span<const plan::Bucket* const> buckets, const Request& request,
                                         std::span<std::byte> staging, SocketLimits& limits) {
  std::uint32_t credits = std::min(request.credits, kCreditsMax);
  for (const auto* bucket : buckets) {
    while (credits == 0) {
      WB_ASSIGN(const Request more, receive_frame<Request>(fd, limits));
      if (more.kind != RequestKind::kCredit)
        return fail(ErrorCode::kCorrupted, "a request came in the middle of a pull");
      ++credits;
    }
    --credits;
    auto ops = device::make_copy_ops(*bucket, part_->tensors, device::CopyKind::kPack);
    const auto fits = ops ? device::check_sources(*ops, region_bytes_) : base::Status(fail(ops.error()));
    if (!fits) {
      WB_TRY(send_failure(fd, fits.error().with(source_.value()), limits));
      return fits;
    }
    const auto header = BucketHeader{HeaderKind::kData, bucket->index, bucket->bytes}.encode();
    WB_TRY(send_all(fd, header.data(), header.size(), bucket->bytes > 0, limits));
    WB_TRY(send_payload(fd, *ops, regions_, staging, limits));
  }
  // The sink grants exactly as many credits as there are buckets, so that none is left to be read as a request.
  return {};
}

}  // namespace weightbus::channel
