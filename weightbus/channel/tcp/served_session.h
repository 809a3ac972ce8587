// What a source serves over tcp until it closes: shared by the SourceSession and its connections.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/channel/channel.h"
#include "weightbus/channel/secret.h"
#include "weightbus/channel/tcp/frames.h"
#include "weightbus/channel/tcp/socket.h"

namespace weightbus::channel {

class ServedSession {
 public:
  struct Limits {
    std::size_t staging_bytes;
    base::Duration stall;
  };
  static base::Result<std::shared_ptr<ServedSession>> create(const ServeRequest& request, const Limits& limits);
  ServedSession(const ServedSession&) = delete;
  ServedSession& operator=(const ServedSession&) = delete;

  std::uint64_t number() const noexcept { return number_; }
  const Secret& key() const noexcept { return key_; }

  void set_part(std::shared_ptr<const plan::SourcePart> part);
  // Ends every connection and returns when none reads the regions any more.
  void close();

  // Serves one authenticated connection until it breaks, misbehaves or the session closes. kCorrupted: misbehaved.
  base::Status serve(int fd, const model::MemberId& sink);

 private:
  ServedSession(const ServeRequest& request, const Limits& limits, Fd stop, Fd ready);
  bool enter();
  void leave();
  base::Status serve_requests(int fd, const model::MemberId& sink);
  base::Status wait_for_part(int fd);
  base::Status send_buckets(int fd, std::span<const plan::Bucket* const> buckets, const Request& request,
                            std::span<std::byte> staging, SocketLimits& limits);
  std::vector<const plan::Bucket*> buckets_for(const model::MemberId& sink);

  const std::uint64_t number_;
  const model::MemberId source_;
  const Secret key_;
  const Limits limits_;
  const Fd stop_;  // eventfds: readable once closed, and once there is a part; never read
  const Fd ready_;
  std::vector<const std::byte*> regions_;
  std::vector<std::uint64_t> region_bytes_;
  std::shared_ptr<const plan::SourcePart> part_;  // written once, before ready_ becomes readable

  std::mutex mutex_;  // guards the two below
  std::condition_variable changed_;
  bool closed_ = false;
  int connections_ = 0;
};

// An eventfd, and making it readable for good.
base::Result<Fd> make_event();
void raise(const Fd& event) noexcept;
bool is_raised(const Fd& event) noexcept;

}  // namespace weightbus::channel
