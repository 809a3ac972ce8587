#include "weightbus/channel/tcp/listener.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace weightbus::channel {
namespace {

using base::ErrorCode;
using base::fail;

base::Result<HostPort> find_advertised(const TcpOptions& options, int fd) {
  WB_ASSIGN(HostPort address, bound_address(fd));
  if (!options.advertise.empty()) {
    address.host = options.advertise;
  } else if (address.host.empty()) {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0) {
      return fail(ErrorCode::kUnavailable, "the host has no name to advertise: {}", std::strerror(errno));
    }
    address.host = name.data();
  }
  return address;
}

}  // namespace

base::Result<std::shared_ptr<Listener>> Listener::create(const TcpOptions& options) {
  WB_ASSIGN(const HostPort address, parse_host_port(options.listen));
  WB_ASSIGN(Fd socket, listen_on(address));
  WB_ASSIGN(HostPort advertised, find_advertised(options, socket.get()));
  WB_ASSIGN(Fd stop, make_event());
  return std::shared_ptr<Listener>(new Listener(options, std::move(socket), std::move(stop), std::move(advertised)));
}

Listener::Listener(const TcpOptions& options, Fd socket, Fd stop, HostPort advertised)
    : options_(options),
      counters_(options.counters ? options.counters : std::make_shared<TcpCounters>()),
      socket_(std::move(socket)),
      stop_(std::move(stop)),
      advertised_(std::move(advertised)) {}

Listener::~Listener() {
  raise(stop_);
  if (accepting_.joinable()) accepting_.join();
  // Sessions hold this listener, so all of them have closed: what remains are handshakes, which see stop_.
  for (auto& connection : connections_)
    connection.thread.join();
}

base::Status Listener::add(std::shared_ptr<ServedSession> session) {
  const std::lock_guard lock(mutex_);
  if (!accepting_.joinable()) {
    try {
      accepting_ = std::thread([this] { accept_loop(); });
    } catch (const std::system_error& error) {
      return fail(ErrorCode::kResourceExhausted, "no thread to accept connections: {}", error.what());
    }
  }
  const auto number = session->number();
  sessions_.emplace(number, std::move(session));
  return {};
}

void Listener::remove(std::uint64_t session) {
  const std::lock_guard lock(mutex_);
  sessions_.erase(session);
}

std::shared_ptr<ServedSession> Listener::find(std::uint64_t session) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

void Listener::accept_loop() {
  while (true) {
    pollfd items[2] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(items, 2, -1) < 0 && errno != EINTR) return;
    if (items[1].revents) return;
    reap();
    if (items[0].revents) accept_one();
  }
}

void Listener::accept_one() {
  Fd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid()) {
    // Out of descriptors or memory: the connection stays in the queue. Without a pause this would spin.
    const bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    pollfd stop{stop_.get(), POLLIN, 0};
    if (exhausted) ::poll(&stop, 1, 10);
    return;
  }
  if (connections_.size() >= options_.connections_max) {
    ++counters_->over_limit;
    return;
  }
  tune(socket.get());
  auto& connection = connections_.emplace_back();
  try {
    connection.thread = std::thread([this, &connection, fd = socket.get()] {
      run_connection(Fd(fd));
      connection.finished.store(true, std::memory_order_release);
    });
    socket.release();  // the thread owns it
  } catch (const std::system_error&) {
    connections_.pop_back();
    ++counters_->over_limit;
  }
}

void Listener::reap() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const bool finished = it->finished.load(std::memory_order_acquire);
    if (finished) it->thread.join();
    it = finished ? connections_.erase(it) : std::next(it);
  }
}

void Listener::run_connection(Fd socket) {
  model::MemberId sink("");
  const auto session = authenticate(socket.get(), sink);
  if (!session) return;
  ++counters_->accepted;
  const auto status = (*session)->serve(socket.get(), sink);
  if (!status && status.error().code == ErrorCode::kCorrupted) ++counters_->malformed;
}

base::Result<std::shared_ptr<ServedSession>> Listener::authenticate(int fd, model::MemberId& sink) {
  // One deadline for all of it: a peer that sends a byte now and then must not hold the thread.
  const PullLimits within(sink, options_.handshake, nullptr);
  class Limits final : public SocketLimits {
   public:
    Limits(int stop, const PullLimits& limits) : stop_(stop), limits_(limits) {}
    base::Status check() override { return limits_.check(); }
    base::Status wait(int socket, short events) override {
      return SourceLimits(stop_, limits_.wait(std::chrono::hours(1))).wait(socket, events);
    }

   private:
    const int stop_;
    const PullLimits& limits_;
  } limits(stop_.get(), within);

  const ServerHello hello{kTcpRevision, random_secret()};
  const auto greeting = hello.encode();
  const auto malformed = [this](const base::Error& error) {
    ++counters_->malformed;
    return fail(error);
  };
  if (const auto sent = send_all(fd, greeting.data(), greeting.size(), false, limits); !sent)
    return malformed(sent.error());
  std::array<char, ClientHello::kSize> bytes{};
  if (const auto got = receive_all(fd, bytes.data(), bytes.size(), limits); !got) return malformed(got.error());
  const auto client = ClientHello::decode({bytes.data(), bytes.size()});
  if (!client) return malformed({ErrorCode::kCorrupted, "not the tcp channel's protocol"});
  std::string name(client->name_size, '\0');
  if (const auto got = receive_all(fd, name.data(), name.size(), limits); !got) return malformed(got.error());

  const auto refuse = [&](ErrorCode code, const char* why) {
    const auto bytes_out = ServerWelcome{static_cast<std::uint16_t>(code), Secret{}}.encode();
    static_cast<void>(send_all(fd, bytes_out.data(), bytes_out.size(), false, limits));  // it is refused either way
    return fail(code, "{}", why);
  };
  if (client->revision != kTcpRevision) {
    ++counters_->malformed;
    return refuse(ErrorCode::kUnsupported, "another revision of the tcp channel");
  }
  auto session = find(client->session);
  if (!session) {
    ++counters_->refused_token;
    return refuse(ErrorCode::kUnavailable, "no such session");
  }
  const auto& key = session->key();
  if (!equal_secrets(client->proof, make_proof(key, "sink", hello.nonce, client->nonce, client->session, name))) {
    ++counters_->refused_token;
    return refuse(ErrorCode::kPermissionDenied, "wrong token");
  }
  const auto proof = make_proof(key, "source", hello.nonce, client->nonce, client->session, name);
  const auto welcome = ServerWelcome{0, proof}.encode();
  WB_TRY(send_all(fd, welcome.data(), welcome.size(), false, limits));
  sink = model::MemberId(std::move(name));
  return session;
}

}  // namespace weightbus::channel
