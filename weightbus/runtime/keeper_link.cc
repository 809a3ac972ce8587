#include "weightbus/runtime/keeper_link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "weightbus/runtime/values.h"

namespace weightbus::runtime {
namespace {

using base::ErrorCode;
using base::fail;
using client::UniqueFd;

// A packet is one character and a text: of requests the verb and the name, of answers the outcome and a name or reason.
constexpr char kPark = 'p', kTake = 't', kDrop = 'd', kName = 'n';
constexpr char kDone = 'o', kMissing = 'm', kTaken = 'c', kFull = 'f', kBad = 'b';
constexpr std::size_t kMaxPacket = kMaxParkedName + 1;

struct Packet {
  char kind = kBad;
  std::string text;
  UniqueFd fd;
};

// `flags`: MSG_DONTWAIT in the keeper, which must never wait for a worker.
bool send_packet(int socket, char kind, const std::string& text, int fd, int flags) {
  std::string bytes(1, kind);
  bytes += text;
  iovec data{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | flags);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

std::optional<Packet> receive_packet(int socket, int flags) {
  char bytes[kMaxPacket];
  iovec data{bytes, sizeof bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return std::nullopt;
  Packet packet;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    packet.fd.reset(fd);
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return packet;  // kBad
  packet.kind = bytes[0];
  packet.text.assign(bytes + 1, static_cast<std::size_t>(count - 1));
  return packet;
}

}  // namespace

struct KeeperLink::Answer {
  std::string text;
  UniqueFd fd;
};

base::Result<std::unique_ptr<KeeperLink>> KeeperLink::from_environment() {
  const char* text = std::getenv(kKeeperVariable);
  if (text == nullptr) return fail(ErrorCode::kNotFound, "this process was not started by a keeper");
  const auto number = parse_count(text);
  if (!number || *number > 1'000'000 || ::fcntl(static_cast<int>(*number), F_SETFD, FD_CLOEXEC) != 0)
    return fail(ErrorCode::kInvalidArgument, "{}={} is not a descriptor of a keeper's socket", kKeeperVariable, text);
  return std::make_unique<KeeperLink>(UniqueFd(static_cast<int>(*number)));
}

base::Result<KeeperLink::Answer> KeeperLink::ask(char verb, const std::string& name, int fd) {
  if (name.size() > kMaxParkedName)
    return fail(ErrorCode::kInvalidArgument, "the name of a parked descriptor has {} bytes; at most {} may be",
                name.size(), kMaxParkedName);
  const std::lock_guard lock(mutex_);
  if (!send_packet(socket_.get(), verb, name, fd, 0))
    return fail(ErrorCode::kUnavailable, "the keeper does not answer: {}", std::strerror(errno));
  auto answer = receive_packet(socket_.get(), 0);
  if (!answer) return fail(ErrorCode::kUnavailable, "the keeper is gone");
  switch (answer->kind) {
    case kDone: return Answer{std::move(answer->text), std::move(answer->fd)};
    case kMissing: return fail(ErrorCode::kNotFound, "nothing is parked as {}", name);
    case kTaken: return fail(ErrorCode::kConflict, "{} is parked already", name);
    case kFull:
      return fail(ErrorCode::kResourceExhausted, "the keeper cannot hold another descriptor; raise RLIMIT_NOFILE");
    default: return fail(ErrorCode::kInternal, "the keeper did not understand the request for {}", name);
  }
}

base::Status KeeperLink::park(const std::string& name, int fd) {
  WB_TRY(ask(kPark, name, fd));
  return {};
}

base::Result<UniqueFd> KeeperLink::take(const std::string& name) {
  WB_ASSIGN(auto answer, ask(kTake, name, -1));
  if (!answer.fd.valid())
    return fail(ErrorCode::kResourceExhausted, "no descriptor is left for {}; raise RLIMIT_NOFILE", name);
  return std::move(answer.fd);
}

base::Status KeeperLink::drop(const std::string& name) {
  WB_TRY(ask(kDrop, name, -1));
  return {};
}

base::Result<std::vector<std::string>> KeeperLink::names() {
  std::vector<std::string> all;
  while (all.size() < kMaxParked) {
    // By position, one a request, so that no answer outgrows a packet.
    auto answer = ask(kName, std::to_string(all.size()), -1);
    if (!answer && answer.error().code == ErrorCode::kNotFound) break;
    if (!answer) return fail(answer.error());
    all.push_back(std::move(answer->text));
  }
  return all;
}

bool ParkedFds::serve(int socket) {
  auto request = receive_packet(socket, MSG_DONTWAIT);
  if (!request) return false;
  const auto answer = [&](char outcome, const std::string& text = {}, int fd = -1) {
    send_packet(socket, outcome, text, fd, MSG_DONTWAIT);
    return true;
  };
  const auto found =
      std::find_if(parked_.begin(), parked_.end(), [&](const Parked& p) { return p.name == request->text; });
  switch (request->kind) {
    case kPark:
      if (found != parked_.end()) return answer(kTaken);
      if (!request->fd.valid() || parked_.size() >= kMaxParked) return answer(kFull);
      parked_.push_back({request->text, std::move(request->fd)});
      return answer(kDone);
    case kTake: return found == parked_.end() ? answer(kMissing) : answer(kDone, {}, found->fd.get());
    case kDrop:
      if (found == parked_.end()) return answer(kMissing);
      parked_.erase(found);
      return answer(kDone);
    case kName: {
      const auto index = parse_count(request->text);
      if (!index || *index >= parked_.size()) return answer(kMissing);
      return answer(kDone, parked_[*index].name);
    }
    // A parked descriptor that did not arrive (no descriptor left here) comes as a truncated packet.
    default: return answer(request->fd.valid() ? kBad : kFull);
  }
}

}  // namespace weightbus::runtime
