#include "weightbus/transport/zmq/zap.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

namespace weightbus::transport {

namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kPartsMax = 16;
// version, request id, domain, address, routing id, mechanism, then credentials (RFC 27).
enum Part : std::size_t { kVersion, kRequestId, kDomain, kAddress, kRoutingId, kMechanism, kCredentials };

std::vector<std::string> read_request(ZmqSocket& socket) {
  std::vector<std::string> parts;
  bool more = true;
  while (more) {
    ZmqMessage part;
    if (!part.receive(socket)) return {};
    more = part.more();
    if (parts.size() < kPartsMax) parts.push_back(part.text());
  }
  return parts;
}

std::string to_z85(const std::string& key) {
  std::array<char, 41> text{};
  if (key.size() != kKeyBytes) return {};
  return zmq_z85_encode(text.data(), reinterpret_cast<const std::uint8_t*>(key.data()), kKeyBytes);
}

}  // namespace

ZapHandler::ZapHandler(void* context, const Access& access)
    : access_(access), socket_(context, ZMQ_REP), stop_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  WB_ASSERT(socket_ && stop_fd_ >= 0, "no socket or descriptor left for authentication");
  socket_.set(ZMQ_LINGER, 0);
  WB_ASSERT(zmq_bind(socket_.handle(), "inproc://zeromq.zap.01") == 0, "a context has one authentication handler");
  thread_ = std::thread([this] { run(); });
}

ZapHandler::~ZapHandler() {
  const std::uint64_t one = 1;
  WB_ASSERT(::write(stop_fd_, &one, sizeof one) == sizeof one, "cannot stop the authentication thread");
  thread_.join();
  ::close(stop_fd_);
}

void ZapHandler::run() {
  std::array<zmq_pollitem_t, 2> items{{{socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, stop_fd_, ZMQ_POLLIN, 0}}};
  while (true) {
    if (zmq_poll(items.data(), static_cast<int>(items.size()), -1) < 0 && zmq_errno() != EINTR) return;
    if (items[1].revents != 0) return;
    if (items[0].revents != 0) answer();
  }
}

void ZapHandler::answer() {
  const auto request = read_request(socket_);
  if (request.size() <= kMechanism) return;
  std::string user;
  bool allowed = false;
  if (!access_.curve()) {
    allowed = request[kMechanism] == "NULL";
  } else if (request[kMechanism] == "CURVE" && request.size() > kCredentials) {
    user = to_z85(request[kCredentials]);
    allowed = access_.list()->find(user) != nullptr;
  }
  if (!allowed) refused_.fetch_add(1, std::memory_order_relaxed);
  // 300 ("try again later") and not 400: after 400 libzmq's client gives up for good, and a key that is allowed later
  // would need a restart of the member.
  const std::array<std::string, 6> reply{
      "1.0", request[kRequestId], allowed ? "200" : "300", allowed ? "OK" : "key not allowed", allowed ? user : "", ""};
  for (std::size_t i = 0; i < reply.size(); ++i) {
    const int flags = i + 1 < reply.size() ? ZMQ_SNDMORE | ZMQ_DONTWAIT : ZMQ_DONTWAIT;
    if (zmq_send(socket_.handle(), reply[i].data(), reply[i].size(), flags) < 0) return;
  }
}

}  // namespace weightbus::transport
