// A small HTTP server for metrics, probes and later a page: GET and HEAD only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"

namespace weightbus::observe {

class Metrics;

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Called from the server's threads, several at a time; must not block.
using HttpHandler = std::function<HttpResponse()>;

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, without brackets
  std::uint16_t port = 0;          // 0 picks one
  base::Duration request_timeout = base::Millis(5000);  // for a whole request to arrive
  int threads = 4;                 // connections served at a time; a slow client holds one for request_timeout
};

// Requests are bounded to 8 KiB; a connection is closed after one answer.
class HttpServer {
 public:
  // Routes by exact path ("/metrics"); "/" only matches itself. The socket listens when this returns. kConflict if the
  // address is taken, kInvalidArgument if it is none of this machine's.
  static base::Result<std::unique_ptr<HttpServer>> start(HttpOptions options,
                                                         std::map<std::string, HttpHandler> routes);
  // Ends when the running handlers have.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const noexcept;
  std::string url() const;  // "http://127.0.0.1:9090", "http://[::1]:9090"

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What a probe answers: 200 and "ok", or 503 and the reason.
struct Health {
  bool ok = true;
  std::string reason;  // one line for people; may be given with ok
};
using HealthCheck = std::function<Health()>;

// /metrics, /livez and /readyz. `metrics` must outlive the server.
std::map<std::string, HttpHandler> standard_routes(const Metrics& metrics, HealthCheck live, HealthCheck ready);

}  // namespace weightbus::observe
