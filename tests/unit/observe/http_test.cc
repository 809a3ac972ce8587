#include "weightbus/observe/http.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "weightbus/base/prng.h"
#include "weightbus/observe/metrics.h"

namespace weightbus::observe {
namespace {

using base::ErrorCode;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Client {
 public:
  explicit Client(std::uint16_t port, bool v6 = false) : fd_(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0)) {
    const timeval limit{20, 0};  // a server that never answers fails the test instead of stopping it
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in to4{};
    to4.sin_family = AF_INET;
    to4.sin_port = htons(port);
    to4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 to6{};
    to6.sin6_family = AF_INET6;
    to6.sin6_port = htons(port);
    to6.sin6_addr = in6addr_loopback;
    const int rc = v6 ? ::connect(fd_, reinterpret_cast<const sockaddr*>(&to6), sizeof to6)
                      : ::connect(fd_, reinterpret_cast<const sockaddr*>(&to4), sizeof to4);
    EXPECT_EQ(rc, 0);
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const auto wrote = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (wrote <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(wrote));
    }
  }
  void finish() const { ::shutdown(fd_, SHUT_WR); }
  // Everything until the server closes.
  std::string read_all() const {
    std::string text;
    char buffer[4096];
    ssize_t got = 0;
    while ((got = ::recv(fd_, buffer, sizeof buffer, 0)) > 0)
      text.append(buffer, static_cast<std::size_t>(got));
    return text;
  }

 private:
  int fd_;
};

class Http : public testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    auto routes = standard_routes(
        metrics_, [] { return Health{}; },
        [this] {
          return ready_ ? Health{} : Health{false, "quarantined: no committed version is live"};
        });
    routes["/page"] = [] { return HttpResponse{200, "text/html", "<p>here</p>"}; };
    server_ = HttpServer::start(options, std::move(routes)).value();
  }
  std::string request(std::string_view text) const {
    const Client client(server_->port());
    client.write(text);
    return client.read_all();
  }
  std::string get(const std::string& path) const { return request("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"); }

  Metrics metrics_;
  std::atomic<bool> ready_{true};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Http, MetricsAreServed) {
  start();
  metrics_.gauge(catalogue::kEpoch).set(7);
  const auto response = get("/metrics");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(response, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(response, HasSubstr("\nweightbus_epoch 7\n"));
}

TEST_F(Http, ProbesSayWhy) {
  start();
  EXPECT_THAT(get("/livez"), testing::AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("\r\n\r\nok\n")));
  EXPECT_THAT(get("/readyz"), StartsWith("HTTP/1.1 200 OK\r\n"));
  ready_ = false;
  const auto response = get("/readyz?verbose");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(response, HasSubstr("quarantined: no committed version is live"));
}

TEST_F(Http, OnlyKnownPathsAndMethodsAreAnswered) {
  start();
  EXPECT_THAT(get("/page"), HasSubstr("<p>here</p>"));
  for (const char* path : {"/", "/metrics/x", "/../etc/passwd", "/%2e%2e/etc/passwd", "/etc/passwd"}) {
    EXPECT_THAT(get(path), Not(StartsWith("HTTP/1.1 200"))) << path;
  }
  EXPECT_THAT(get("/nothing"), testing::AllOf(StartsWith("HTTP/1.1 404 Not Found\r\n"), HasSubstr("/readyz")));
  const auto posted = request("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_THAT(posted, StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
  EXPECT_THAT(posted, HasSubstr("Allow: GET, HEAD"));
  const auto head = request("HEAD /page HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 11"));
  EXPECT_THAT(head, Not(HasSubstr("here")));
}

TEST_F(Http, AConnectionEndsWithItsAnswer) {
  start();
  const Client client(server_->port());
  client.write("GET /livez HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(client.read_all(), HasSubstr("Connection: close"));
}

TEST_F(Http, OversizedRequestsAreRefused) {
  start();
  const auto response = request("GET /livez HTTP/1.1\r\nX: " + std::string(20000, 'a') + "\r\n\r\n");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 431 "));
  const auto endless = request("GET /" + std::string(20000, 'a'));
  EXPECT_THAT(endless, StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(get("/livez"), StartsWith("HTTP/1.1 200"));
}

TEST_F(Http, GarbageIsSurvived) {
  start({"127.0.0.1", 0, base::Millis(200), 4});
  base::Prng prng(11);
  for (int round = 0; round < 50; ++round) {
    std::string bytes = round % 2 == 0 ? "" : "GET ";
    const auto size = 1 + prng.below(3000);
    for (std::uint64_t i = 0; i < size; ++i)
      bytes += static_cast<char>(prng.next());
    if (round % 3 == 0) bytes += "\r\n\r\n";
    const Client client(server_->port());
    client.write(bytes);
    client.finish();
    EXPECT_THAT(client.read_all(), Not(StartsWith("HTTP/1.1 200"))) << round;
  }
  EXPECT_THAT(get("/livez"), StartsWith("HTTP/1.1 200"));
}

TEST_F(Http, SlowClientsDoNotKeepOthersOut) {
  // Far longer than the test may take: only the bound on connections helps here.
  start({"127.0.0.1", 0, std::chrono::hours(1), 2});
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(std::make_unique<Client>(server_->port()));
    slow.back()->write("GET /livez HT");
    EXPECT_THAT(get("/livez"), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_EQ(slow.front()->read_all(), "");  // was closed to make room
}

TEST_F(Http, SlowClientsAreClosedAtTheTimeout) {
  start({"127.0.0.1", 0, base::Millis(50), 8});
  const Client slow(server_->port());
  slow.write("GET /livez HT");
  EXPECT_EQ(slow.read_all(), "");
  const Client silent(server_->port());
  EXPECT_EQ(silent.read_all(), "");
}

TEST_F(Http, RequestsMayArriveInPieces) {
  start();
  const Client client(server_->port());
  for (const char c : std::string_view("GET /page HTTP/1.1\r\nHost: x\r\n\r\n"))
    client.write(std::string_view(&c, 1));
  EXPECT_THAT(client.read_all(), HasSubstr("<p>here</p>"));
}

TEST_F(Http, LargeAnswersToSlowReadersArriveWhole) {
  auto body = std::string(8U << 20, 'z');
  server_ = HttpServer::start({}, {{"/large", [&body] { return HttpResponse{200, "text/plain", body}; }}}).value();
  const Client first(server_->port());
  first.write("GET /large HTTP/1.1\r\n\r\n");
  EXPECT_THAT(get("/large"), testing::EndsWith("zzz"));  // while the first has read nothing
  const auto response = first.read_all();
  EXPECT_GT(response.size(), body.size());
}

TEST_F(Http, ManyClientsAtOnce) {
  start();
  std::atomic<int> answered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        if (get("/metrics").starts_with("HTTP/1.1 200")) ++answered;
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(answered, 80);
}

TEST_F(Http, Ipv6Works) {
  start({"::1", 0, base::Millis(5000), 2});
  EXPECT_EQ(server_->url(), fmt::format("http://[::1]:{}", server_->port()));
  const Client client(server_->port(), true);
  client.write("GET /livez HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.read_all(), HasSubstr(" 200 OK"));
}

TEST_F(Http, ATakenPortAndAForeignAddressAreTold) {
  start();
  const auto taken = HttpServer::start({"127.0.0.1", server_->port(), base::Millis(5000), 2}, {});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kConflict) << taken.error().message;
  EXPECT_THAT(taken.error().message, HasSubstr(std::to_string(server_->port())));
  for (const char* host : {"192.0.2.1", "no-such-host.invalid", "", "127.0.0.1:80"}) {
    const auto foreign = HttpServer::start({host, 0, base::Millis(5000), 2}, {});
    ASSERT_FALSE(foreign) << host;
    EXPECT_EQ(foreign.error().code, ErrorCode::kInvalidArgument) << foreign.error().message;
  }
}

}  // namespace
}  // namespace weightbus::observe
