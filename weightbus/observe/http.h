// A small HTTP server for metrics, probes and later a page: GET and HEAD only. Our own, since the server that
// distributions ship with prometheus-cpp listens on IPv4 only and takes seconds to stop.
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

// Called from the server's one thread; must not block.
using HttpHandler = std::function<HttpResponse()>;

struct HttpOptions {
  std::string host = "127.0.0.1";                        // an address without brackets, or a name
  std::uint16_t port = 0;                                // 0 picks one
  base::Duration exchange_timeout = base::Millis(5000);  // from accepting a connection to its last byte
  std::size_t connections_max = 64;  // one more closes the oldest, so that slow clients keep nobody out
};

// Requests are bounded to 8 KiB; a connection is closed after one answer.
class HttpServer {
 public:
  // Routes by exact path ("/metrics"), without the query. The socket listens when this returns. kConflict if the
  // address is taken, kInvalidArgument if it is none of this machine's.
  static base::Result<std::unique_ptr<HttpServer>> start(HttpOptions options,
                                                         std::map<std::string, HttpHandler> routes);
  // Closes every connection.
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
