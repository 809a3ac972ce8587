#include "weightbus/channel/tcp/resolve.h"

#include <netdb.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

namespace weightbus::channel {
namespace {

using base::ErrorCode;
using base::fail;

struct Lookup {
  int code = 0;
  std::vector<Address> addresses;
};

Lookup look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* list = nullptr;
  Lookup result;
  result.code = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (result.code != 0) return result;
  for (const auto* item = list; item; item = item->ai_next) {
    Address address{};
    std::memcpy(&address.storage, item->ai_addr, item->ai_addrlen);
    address.size = item->ai_addrlen;
    result.addresses.push_back(address);
  }
  ::freeaddrinfo(list);
  return result;
}

struct Pending {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Lookup> result;
};

}  // namespace

base::Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port, const PullLimits& limits) {
  auto numeric = look_up(host, port, AI_NUMERICHOST);
  if (numeric.code == 0) return std::move(numeric.addresses);
  // A name server may take longer than any deadline of ours, and the call cannot be interrupted: a thread of its own
  // makes it, which is left behind when nobody waits any more.
  const auto pending = std::make_shared<Pending>();
  try {
    std::thread([pending, host, port] {
      auto result = look_up(host, port, 0);
      const std::lock_guard lock(pending->mutex);
      pending->result = std::move(result);
      pending->changed.notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kResourceExhausted, "the host {} cannot be looked up: {}", host, error.what());
  }
  std::unique_lock lock(pending->mutex);
  while (!pending->result) {
    if (const auto status = limits.check(); !status) return fail(status.error().with("looking up " + host));
    pending->changed.wait_for(lock, limits.wait(std::chrono::milliseconds(10)));
  }
  if (pending->result->code != 0) {
    return fail(ErrorCode::kUnavailable, "the host {} cannot be looked up: {}", host,
                ::gai_strerror(pending->result->code));
  }
  return std::move(pending->result->addresses);
}

}  // namespace weightbus::channel
