#include "weightbus/observe/http.h"

#include <arpa/inet.h>
#include <civetweb.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "weightbus/base/assert.h"
#include "weightbus/observe/metrics.h"

namespace weightbus::observe {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr const char* kRequestBytesMax = "8192";

const char* reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 503: return "Service Unavailable";
    default: return "Status";
  }
}

}  // namespace

struct HttpServer::Impl {
  static int serve(mg_connection* connection, void* self);
  HttpResponse respond(const mg_request_info& request) const;

  HttpOptions options;
  std::map<std::string, HttpHandler> routes;
  mg_context* context = nullptr;
  std::uint16_t port = 0;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  if (impl_->context != nullptr) mg_stop(impl_->context);
}

HttpResponse HttpServer::Impl::respond(const mg_request_info& request) const {
  const std::string method = request.request_method == nullptr ? "" : request.request_method;
  if (method != "GET" && method != "HEAD") return {405, "text/plain; charset=utf-8", "use GET or HEAD\n"};
  const std::string path = request.local_uri == nullptr ? "" : request.local_uri;
  const auto route = routes.find(path);
  if (route != routes.end()) return route->second();
  HttpResponse missing{404, "text/plain; charset=utf-8", "there is:\n"};
  for (const auto& [known, handler] : routes) missing.body += known + "\n";
  return missing;
}

int HttpServer::Impl::serve(mg_connection* connection, void* self) {
  const auto* request = mg_get_request_info(connection);
  const auto response = static_cast<const Impl*>(self)->respond(*request);
  const bool is_head = request->request_method != nullptr && std::strcmp(request->request_method, "HEAD") == 0;
  const auto head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n{}Connection: close\r\n\r\n",
      response.status, reason_phrase(response.status), response.content_type, response.body.size(),
      response.status == 405 ? "Allow: GET, HEAD\r\n" : "");
  if (mg_write(connection, head.data(), head.size()) > 0 && !is_head && !response.body.empty()) {
    mg_write(connection, response.body.data(), response.body.size());
  }
  return response.status;
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpOptions options, std::map<std::string, HttpHandler> routes) {
  in6_addr v6{};
  in_addr v4{};
  const bool is_v6 = inet_pton(AF_INET6, options.host.c_str(), &v6) == 1;
  if (!is_v6 && inet_pton(AF_INET, options.host.c_str(), &v4) != 1) {
    return fail(ErrorCode::kInvalidArgument, "cannot serve HTTP on '{}': give an IP address", options.host);
  }
  WB_ASSERT(options.threads > 0, "a server needs a thread");
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  impl->routes = std::move(routes);

  const auto address = fmt::format("{}{}{}:{}", is_v6 ? "[" : "", impl->options.host, is_v6 ? "]" : "",
                                   impl->options.port);
  const auto timeout = std::to_string(std::max<std::int64_t>(impl->options.request_timeout / base::Millis(1), 1));
  const auto threads = std::to_string(impl->options.threads);
  const std::array<const char*, 13> settings{"listening_ports",    address.c_str(),  "num_threads",      threads.c_str(),
                                             "request_timeout_ms", timeout.c_str(),  "max_request_size", kRequestBytesMax,
                                             "enable_keep_alive",  "no",             "linger_timeout_ms", "0",
                                             nullptr};
  std::array<char, 256> text{};
  mg_error_data error{};
  error.text = text.data();
  error.text_buffer_size = text.size();
  mg_init_data init{};
  static constexpr mg_callbacks kNoCallbacks{};
  init.callbacks = &kNoCallbacks;
  init.configuration_options = const_cast<const char**>(settings.data());
  errno = 0;
  impl->context = mg_start2(&init, &error);
  if (impl->context == nullptr) {
    return fail(errno == EADDRINUSE ? ErrorCode::kConflict : ErrorCode::kInvalidArgument,
                "cannot serve HTTP on {}: {}", address, text[0] == '\0' ? "unknown reason" : text.data());
  }
  mg_set_request_handler(impl->context, "/", &Impl::serve, impl.get());
  std::array<mg_server_port, 1> ports{};
  WB_ASSERT(mg_get_server_ports(impl->context, 1, ports.data()) == 1, "the server listens on one port");
  impl->port = static_cast<std::uint16_t>(ports[0].port);
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
