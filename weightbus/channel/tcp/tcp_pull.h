// The sink's end of the tcp channel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weightbus/channel/channel.h"
#include "weightbus/channel/secret.h"
#include "weightbus/channel/tcp/factory.h"
#include "weightbus/channel/tcp/frames.h"
#include "weightbus/channel/tcp/socket.h"

namespace weightbus::channel {

struct TcpDescriptor {
  HostPort address;
  std::uint64_t session;
  std::string encode() const;
  static std::optional<TcpDescriptor> decode(std::string_view bytes);
};

class TcpPull final : public PullSession {
 public:
  // Connects and authenticates within request.deadline.
  static base::Result<std::unique_ptr<PullSession>> create(const JoinRequest& request, const TcpOptions& options);

  base::Status pull(std::span<const plan::Bucket> buckets, std::span<const plan::PlannedTensor> tensors,
                    std::span<std::byte* const> to, base::Duration deadline, device::Control& control) override;

 private:
  TcpPull(const JoinRequest& request, TcpDescriptor descriptor, const TcpOptions& options);
  base::Status connect(const PullLimits& within);
  base::Status greet(int fd, SocketLimits& limits);
  base::Status receive(std::span<const plan::Bucket> buckets, std::span<const plan::PlannedTensor> tensors,
                       std::span<std::byte* const> to, SocketLimits& limits, device::Control& control);
  base::Status receive_header(const plan::Bucket& bucket, SocketLimits& limits);
  base::Status send_request(const Request& request, SocketLimits& limits);
  std::uint32_t window(std::span<const plan::Bucket> buckets) const noexcept;

  const model::MemberId source_;
  const model::MemberId sink_;
  const TcpDescriptor descriptor_;
  const Secret key_;
  const std::uint64_t window_bytes_;
  std::vector<std::byte> staging_;
  Fd socket_;  // not valid after a pull that failed: what was still on the way is gone with it
};

}  // namespace weightbus::channel
