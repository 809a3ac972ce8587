#include "weightbus/observe/http.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "weightbus/base/assert.h"
#include "weightbus/observe/metrics.h"

namespace weightbus::observe {

using base::ErrorCode;
using base::fail;
using base::Result;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kRequestBytesMax = 8192;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr int kBacklog = 128;

class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

// A connection reads one request, writes one answer, and then waits for the client to close: closing first while
// unread bytes are there would reset the connection and take the answer away.
struct Connection {
  enum class State : std::uint8_t { kReading, kWriting, kDraining };
  OwnedFd socket;
  Clock::time_point deadline;
  State state = State::kReading;
  std::string bytes;  // the request, then the answer
  std::size_t sent = 0;
};

const char* reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    default: return "Status";
  }
}

HttpResponse plain(int status, std::string body) { return {status, "text/plain; charset=utf-8", std::move(body)}; }

std::string serialize(const HttpResponse& response, bool with_body) {
  auto text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n{}Connection: close\r\n\r\n",
      response.status, reason_phrase(response.status), response.content_type, response.body.size(),
      response.status == 405 ? "Allow: GET, HEAD\r\n" : "");
  if (with_body) text += response.body;
  return text;
}

struct Request {
  std::string_view method;
  std::string_view path;  // without the query
};

// "GET /path?query HTTP/1.1"; nullopt if it is anything else.
std::optional<Request> parse_request_line(std::string_view line) {
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  const auto target = line.substr(first + 1, last - first - 1);
  if (!line.substr(last + 1).starts_with("HTTP/1.") || !target.starts_with('/')) return std::nullopt;
  const bool printable =
      std::all_of(target.begin(), target.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!printable) return std::nullopt;
  return Request{line.substr(0, first), target.substr(0, target.find('?'))};
}

Result<OwnedFd> listen_on(const HttpOptions& options) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const auto port = std::to_string(options.port);
  const int found = options.host.empty() ? EAI_NONAME : getaddrinfo(options.host.c_str(), port.c_str(), &hints, &list);
  if (found != 0) {
    return fail(ErrorCode::kInvalidArgument, "cannot serve HTTP on '{}': {}", options.host, gai_strerror(found));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(list, &freeaddrinfo);
  OwnedFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  const int off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (list->ai_family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (socket.get() < 0 || ::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    const int error = errno;
    const auto code = error == EADDRINUSE ? ErrorCode::kConflict
                      : error == EACCES   ? ErrorCode::kPermissionDenied
                                          : ErrorCode::kInvalidArgument;
    return fail(code, "cannot serve HTTP on {} port {}: {}", options.host, options.port, std::strerror(error));
  }
  return socket;
}

std::uint16_t bound_port(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  WB_ASSERT(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0, "the socket is bound");
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

struct HttpServer::Impl {
  void run();
  void accept_all(Clock::time_point now);
  // False: the connection is over.
  bool advance(Connection& connection);
  bool read_request(Connection& connection);
  bool write_answer(Connection& connection);
  void answer(Connection& connection, const HttpResponse& response, bool with_body = true);
  void dispatch(Connection& connection, std::string_view request_line);

  HttpOptions options;
  std::map<std::string, HttpHandler> routes;
  OwnedFd listener;
  OwnedFd stop;
  std::uint16_t port = 0;
  std::list<Connection> connections;  // the oldest first
  Clock::time_point accept_after{};   // out of descriptors until then
  std::thread thread;
};

void HttpServer::Impl::run() {
  while (true) {
    const auto now = Clock::now();
    const bool accepting = now >= accept_after;
    auto until = accepting ? Clock::time_point::max() : accept_after;
    std::vector<pollfd> watched{{stop.get(), POLLIN, 0},
                                {listener.get(), static_cast<short>(accepting ? POLLIN : 0), 0}};
    for (const auto& connection : connections) {
      const bool writing = connection.state == Connection::State::kWriting;
      watched.push_back({connection.socket.get(), static_cast<short>(writing ? POLLOUT : POLLIN), 0});
      until = std::min(until, connection.deadline);
    }
    int wait_ms = -1;
    if (until != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
      wait_ms = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60000));
    }
    if (::poll(watched.data(), watched.size(), wait_ms) < 0 && errno != EINTR) return;
    if (watched[0].revents != 0) return;

    const auto after = Clock::now();
    std::size_t at = 2;
    for (auto connection = connections.begin(); connection != connections.end(); ++at) {
      const bool over = connection->deadline <= after || (watched[at].revents != 0 && !advance(*connection));
      connection = over ? connections.erase(connection) : std::next(connection);
    }
    if (watched[1].revents != 0) accept_all(after);
  }
}

void HttpServer::Impl::accept_all(Clock::time_point now) {
  for (int i = 0; i < kBacklog; ++i) {
    OwnedFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) accept_after = now + kAcceptPause;
      if (errno != ECONNABORTED && errno != EINTR) return;
      continue;
    }
    if (connections.size() >= options.connections_max) connections.pop_front();
    connections.push_back({std::move(socket), now + options.exchange_timeout, Connection::State::kReading, {}, 0});
  }
}

bool HttpServer::Impl::advance(Connection& connection) {
  switch (connection.state) {
    case Connection::State::kReading: return read_request(connection);
    case Connection::State::kWriting: return write_answer(connection);
    case Connection::State::kDraining: break;
  }
  std::array<char, 4096> unread{};
  const auto got = ::recv(connection.socket.get(), unread.data(), unread.size(), 0);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

bool HttpServer::Impl::read_request(Connection& connection) {
  std::array<char, 4096> buffer{};
  const auto got = ::recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  auto& bytes = connection.bytes;
  bytes.append(buffer.data(), static_cast<std::size_t>(got));
  const auto end = bytes.find("\r\n\r\n");
  if (end == std::string::npos || end > kRequestBytesMax) {
    if (bytes.size() > kRequestBytesMax) answer(connection, plain(431, "the request is over 8 KiB\n"));
  } else {
    dispatch(connection, std::string_view(bytes).substr(0, bytes.find("\r\n")));
  }
  return connection.state == Connection::State::kReading || write_answer(connection);
}

void HttpServer::Impl::dispatch(Connection& connection, std::string_view request_line) {
  const auto request = parse_request_line(request_line);
  if (!request) return answer(connection, plain(400, "not an HTTP request\n"));
  if (request->method != "GET" && request->method != "HEAD") {
    return answer(connection, plain(405, "use GET or HEAD\n"));
  }
  const bool with_body = request->method == "GET";
  const auto route = routes.find(std::string(request->path));
  if (route != routes.end()) return answer(connection, route->second(), with_body);
  std::string known = "there is:\n";
  for (const auto& [path, handler] : routes)
    known += path + "\n";
  answer(connection, plain(404, std::move(known)), with_body);
}

void HttpServer::Impl::answer(Connection& connection, const HttpResponse& response, bool with_body) {
  connection.bytes = serialize(response, with_body);
  connection.state = Connection::State::kWriting;
}

bool HttpServer::Impl::write_answer(Connection& connection) {
  while (connection.sent < connection.bytes.size()) {
    const auto rest = std::string_view(connection.bytes).substr(connection.sent);
    const auto wrote = ::send(connection.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (wrote < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<std::size_t>(wrote);
  }
  ::shutdown(connection.socket.get(), SHUT_WR);
  connection.state = Connection::State::kDraining;
  return true;
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->thread = std::thread([self = impl_.get()] { self->run(); });
}

HttpServer::~HttpServer() {
  const std::uint64_t one = 1;
  WB_ASSERT(::write(impl_->stop.get(), &one, sizeof one) == sizeof one, "cannot stop the HTTP thread");
  impl_->thread.join();
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpOptions options, std::map<std::string, HttpHandler> routes) {
  WB_ASSERT(options.connections_max > 0, "a server needs a connection");
  auto impl = std::make_unique<Impl>();
  WB_ASSIGN(impl->listener, listen_on(options));
  impl->stop = OwnedFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (impl->stop.get() < 0) {
    return fail(ErrorCode::kResourceExhausted, "cannot serve HTTP: {}", std::strerror(errno));
  }
  impl->port = bound_port(impl->listener.get());
  impl->options = std::move(options);
  impl->routes = std::move(routes);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

std::uint16_t HttpServer::port() const noexcept { return impl_->port; }

std::string HttpServer::url() const {
  const bool is_v6 = impl_->options.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", is_v6 ? "[" : "", impl_->options.host, is_v6 ? "]" : "", impl_->port);
}

std::map<std::string, HttpHandler> standard_routes(const Metrics& metrics, HealthCheck live, HealthCheck ready) {
  const auto probe = [](HealthCheck check) -> HttpHandler {
    return [check = std::move(check)] {
      const auto health = check();
      const auto text = health.reason.empty() ? (health.ok ? "ok" : "not ok") : health.reason;
      return HttpResponse{health.ok ? 200 : 503, "text/plain; charset=utf-8", text + "\n"};
    };
  };
  std::map<std::string, HttpHandler> routes;
  routes["/metrics"] = [&metrics] {
    return HttpResponse{200, "text/plain; version=0.0.4; charset=utf-8", metrics.serialize()};
  };
  routes["/livez"] = probe(std::move(live));
  routes["/readyz"] = probe(std::move(ready));
  return routes;
}

}  // namespace weightbus::observe
