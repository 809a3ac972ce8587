#include "weightbus/channel/tcp/tcp_pull.h"

#include <algorithm>
#include <array>

#include "weightbus/channel/tcp/stream.h"

namespace weightbus::channel {
namespace {

using base::ErrorCode;
using base::fail;

constexpr std::uint16_t kDescriptorRevision = 1;
constexpr std::size_t kHostMax = 255;

}  // namespace

std::string TcpDescriptor::encode() const {
  Encoder encoder;
  encoder.number(kDescriptorRevision);
  encoder.string(address.host);
  encoder.number(address.port);
  encoder.number(session);
  return encoder.take();
}

std::optional<TcpDescriptor> TcpDescriptor::decode(std::string_view bytes) {
  Decoder decoder(bytes);
  if (decoder.number<std::uint16_t>() != kDescriptorRevision) return std::nullopt;
  const auto host = decoder.string(kHostMax);
  const auto port = decoder.number<std::uint16_t>();
  const auto session = decoder.number<std::uint64_t>();
  if (!host || host->empty() || host->find('\0') != std::string_view::npos || !port || !session || !decoder.done()) {
    return std::nullopt;
  }
  return TcpDescriptor{{std::string(*host), *port}, *session};
}

base::Result<std::unique_ptr<PullSession>> TcpPull::create(const JoinRequest& request, const TcpOptions& options) {
  auto descriptor = TcpDescriptor::decode(request.offer.descriptor);
  if (request.offer.channel != kTcpName || !descriptor) {
    return fail(ErrorCode::kInvalidArgument, "the tcp offer of {} cannot be read", request.source.value());
  }
  if (request.sink.value().size() > kMemberNameMax) {
    return fail(ErrorCode::kInvalidArgument, "the sink's name has more than {} characters", kMemberNameMax);
  }
  std::unique_ptr<TcpPull> pull(new TcpPull(request, std::move(*descriptor), options));
  WB_TRY(pull->connect(PullLimits(request.source, request.deadline, nullptr)));
  return pull;
}

TcpPull::TcpPull(const JoinRequest& request, TcpDescriptor descriptor, const TcpOptions& options)
    : source_(request.source),
      sink_(request.sink),
      descriptor_(std::move(descriptor)),
      key_(hash_token(request.token)),
      window_bytes_(options.window_bytes),
      staging_(std::max<std::uint64_t>(options.staging_bytes, 4096)) {}

base::Status TcpPull::connect(const PullLimits& within) {
  SinkLimits limits(within);
  auto socket = connect_to(descriptor_.address, within, limits);
  if (!socket) return fail(socket.error().with(source_.value()));
  if (const auto status = greet(socket->get(), limits); !status) return fail(status.error().with(source_.value()));
  socket_ = std::move(*socket);
  return {};
}

base::Status TcpPull::greet(int fd, SocketLimits& limits) {
  std::array<char, ServerHello::kSize> hello_bytes{};
  WB_TRY(receive_all(fd, hello_bytes.data(), hello_bytes.size(), limits));
  const auto hello = ServerHello::decode({hello_bytes.data(), hello_bytes.size()});
  if (!hello) {
    return fail(ErrorCode::kCorrupted, "{} does not speak the tcp channel's protocol",
                format_host_port(descriptor_.address));
  }
  if (hello->revision != kTcpRevision) {
    return fail(ErrorCode::kUnsupported, "it speaks revision {} of the tcp channel, we {}: install the same version",
                hello->revision, kTcpRevision);
  }
  const auto nonce = random_secret();
  const auto& name = sink_.value();
  const auto proof = make_proof(key_, "sink", hello->nonce, nonce, descriptor_.session, name);
  const ClientHello client{kTcpRevision, descriptor_.session, static_cast<std::uint16_t>(name.size()), nonce, proof};
  const auto bytes = client.encode() + name;
  WB_TRY(send_all(fd, bytes.data(), bytes.size(), false, limits));

  std::array<char, ServerWelcome::kSize> welcome_bytes{};
  WB_TRY(receive_all(fd, welcome_bytes.data(), welcome_bytes.size(), limits));
  const auto welcome = ServerWelcome::decode({welcome_bytes.data(), welcome_bytes.size()});
  if (welcome->refusal == static_cast<std::uint16_t>(ErrorCode::kPermissionDenied)) {
    return fail(ErrorCode::kPermissionDenied, "it serves another update: the token differs");
  }
  if (welcome->refusal != 0) return fail(ErrorCode::kUnavailable, "it serves this update no longer");
  const auto expected = make_proof(key_, "source", hello->nonce, nonce, descriptor_.session, name);
  if (!equal_secrets(welcome->proof, expected)) {
    return fail(ErrorCode::kPermissionDenied, "whoever listens at {} does not know the token",
                format_host_port(descriptor_.address));
  }
  return {};
}

base::Status TcpPull::pull(std::span<const plan::Bucket> buckets, std::span<const plan::PlannedTensor> tensors,
                           std::span<std::byte* const> to, base::Duration deadline, device::Control& control) {
  const PullLimits within(source_, deadline, &control);
  WB_TRY(check_buckets(buckets, source_, sink_));
  WB_TRY(within.check());
  if (buckets.empty()) return {};
  if (!socket_.valid()) WB_TRY(connect(within));
  SinkLimits limits(within);
  auto status = receive(buckets, tensors, to, limits, control);
  if (!status) socket_.reset();
  return status;
}

// As many buckets as fit into the window, and two at least, so that one is sent while the other is placed.
std::uint32_t TcpPull::window(std::span<const plan::Bucket> buckets) const noexcept {
  std::uint64_t largest = 1;
  for (const auto& bucket : buckets)
    largest = std::max(largest, bucket.bytes);
  const auto credits = std::clamp<std::uint64_t>(window_bytes_ / largest, 2, kCreditsMax);
  return static_cast<std::uint32_t>(credits);
}

base::Status TcpPull::receive(std::span<const plan::Bucket> buckets, std::span<const plan::PlannedTensor> tensors,
                              std::span<std::byte* const> to, SocketLimits& limits, device::Control& control) {
  if (buckets.size() > UINT32_MAX) return fail(ErrorCode::kInvalidArgument, "{} buckets are too many", buckets.size());
  const std::uint32_t credits = window(buckets);
  const auto count = static_cast<std::uint32_t>(buckets.size());
  WB_TRY(send_request({RequestKind::kPull, buckets[0].index, count, credits}, limits));
  const auto progress = [&control](std::uint64_t bytes) {
    control.bytes_done.fetch_add(bytes, std::memory_order_relaxed);
  };
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const auto& bucket = buckets[i];
    WB_ASSIGN(const auto ops, device::make_copy_ops(bucket, tensors, device::CopyKind::kUnpack));
    WB_TRY(device::check_region_count(ops, 1, to.size()));
    WB_TRY(receive_header(bucket, limits));
    if (const auto status = receive_payload(socket_.get(), ops, to, staging_, limits, progress); !status) {
      return fail(status.error().with(source_.value()));
    }
    // A credit a bucket, until all buckets have one: the source reads no more than it needs.
    if (i + credits < buckets.size()) WB_TRY(send_request({RequestKind::kCredit}, limits));
  }
  return {};
}

base::Status TcpPull::receive_header(const plan::Bucket& bucket, SocketLimits& limits) {
  std::array<char, BucketHeader::kSize> bytes{};
  if (const auto status = receive_all(socket_.get(), bytes.data(), bytes.size(), limits); !status) {
    return fail(status.error().with(source_.value()));
  }
  const auto header = BucketHeader::decode({bytes.data(), bytes.size()});
  if (header && header->kind == HeaderKind::kFailed && header->bytes <= kFailureMax) {
    std::string message(header->bytes, '\0');
    WB_TRY(receive_all(socket_.get(), message.data(), message.size(), limits));
    const bool known = header->number >= 1 && header->number <= static_cast<std::uint32_t>(ErrorCode::kInternal);
    return fail(known ? static_cast<ErrorCode>(header->number) : ErrorCode::kInternal, "{}", message);
  }
  if (!header || header->kind != HeaderKind::kData || header->number != bucket.index || header->bytes != bucket.bytes) {
    return fail(ErrorCode::kCorrupted, "{} did not send bucket {} of {} bytes: their plans or protocols differ",
                source_.value(), bucket.index, bucket.bytes);
  }
  return {};
}

base::Status TcpPull::send_request(const Request& request, SocketLimits& limits) {
  const auto bytes = request.encode();
  const auto status = send_all(socket_.get(), bytes.data(), bytes.size(), false, limits);
  if (!status) return fail(status.error().with(source_.value()));
  return {};
}

}  // namespace weightbus::channel
