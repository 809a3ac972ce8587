#include "weightbus/transport/local/local_transport.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "weightbus/transport/endpoint.h"

namespace weightbus::transport {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::Status;

// One connection. What the client queued waits here while nobody listens, as it would in ZeroMQ.
struct LocalHub::Link {
  std::string client_name;
  std::string server_name;
  std::string endpoint;
  Node* client = nullptr;
  Node* server = nullptr;
  std::deque<std::string> waiting;
  std::size_t to_server = 0;  // queued at the receiver
  std::size_t to_client = 0;
};

struct LocalHub::State {
  explicit State(std::size_t frames) : queue_frames(frames) {}
  const std::size_t queue_frames;
  std::mutex mutex;
  std::map<std::string, Node*> listeners;
  std::vector<std::shared_ptr<Link>> links;
  std::uint16_t next_port = 40000;
  std::uint64_t next_peer = 1;
};

class LocalHub::Node final : public Transport {
 public:
  Node(std::shared_ptr<State> state, std::optional<Received::Identity> identity)
      : state_(std::move(state)), identity_(std::move(identity)) {}
  ~Node() override;

  Result<std::string> bind(const std::string& endpoint) override;
  Status connect(const std::string& connection, const std::string& endpoint, const std::string& peer_key) override;
  void disconnect(const std::string& connection) override;
  Status send(const std::string& connection, std::string_view frame) override;
  std::optional<Received> receive(base::Duration timeout) override;
  void wake() override;
  Drops drops() const override;

 private:
  struct Queued {
    std::shared_ptr<Link> link;
    bool from_client;
    Received received;
  };
  // All of these are called with the hub's mutex held.
  std::shared_ptr<Link> find(const std::string& connection);
  void attach(const std::shared_ptr<Link>& link);
  void deliver_to_server(const std::shared_ptr<Link>& link, std::string frame);
  void drop_client_link(const std::shared_ptr<Link>& link);

  const std::shared_ptr<State> state_;
  const std::optional<Received::Identity> identity_;
  std::deque<Queued> inbox_;
  std::condition_variable changed_;
  bool woken_ = false;
  std::uint64_t oversized_ = 0;
};

namespace {

Result<std::string> canonical(const std::string& endpoint, std::uint16_t& next_port, bool listener) {
  WB_ASSIGN(auto parsed, parse_endpoint(endpoint));
  if (parsed.kind == Endpoint::Kind::kTcp) {
    if (!listener && (parsed.port == 0 || parsed.host == "*")) {
      return fail(ErrorCode::kInvalidArgument, "cannot connect to {}: give a host and a port", endpoint);
    }
    if (parsed.host == "localhost" || parsed.host == "*") parsed.host = "127.0.0.1";
    if (parsed.port == 0) parsed.port = next_port++;
  }
  return parsed.to_string();
}

}  // namespace

LocalHub::LocalHub(std::size_t queue_frames) : state_(std::make_shared<State>(queue_frames)) {}
LocalHub::~LocalHub() = default;

std::unique_ptr<Transport> LocalHub::make(std::optional<Received::Identity> identity) {
  return std::make_unique<Node>(state_, std::move(identity));
}

LocalHub::Node::~Node() {
  const std::lock_guard lock(state_->mutex);
  std::erase_if(state_->listeners, [this](const auto& entry) { return entry.second == this; });
  auto links = state_->links;
  for (const auto& link : links) {
    if (link->client == this) drop_client_link(link);
    if (link->server == this) {
      link->server = nullptr;
      link->to_server = 0;
    }
  }
}

std::shared_ptr<LocalHub::Link> LocalHub::Node::find(const std::string& connection) {
  for (const auto& link : state_->links) {
    if (link->client == this && link->client_name == connection) return link;
    if (link->server == this && link->server_name == connection) return link;
  }
  return nullptr;
}

void LocalHub::Node::attach(const std::shared_ptr<Link>& link) {
  link->server = this;
  link->server_name = fmt::format("#{:x}", state_->next_peer++);  // a peer that comes back is a new connection
  while (!link->waiting.empty()) {
    deliver_to_server(link, std::move(link->waiting.front()));
    link->waiting.pop_front();
  }
}

void LocalHub::Node::deliver_to_server(const std::shared_ptr<Link>& link, std::string frame) {
  ++link->to_server;
  inbox_.push_back({link, true, {link->server_name, link->client->identity_, std::move(frame)}});
  changed_.notify_all();
}

void LocalHub::Node::drop_client_link(const std::shared_ptr<Link>& link) {
  link->client = nullptr;
  std::erase(state_->links, link);
}

Result<std::string> LocalHub::Node::bind(const std::string& endpoint) {
  const std::lock_guard lock(state_->mutex);
  WB_ASSIGN(const auto bound, canonical(endpoint, state_->next_port, true));
  if (!state_->listeners.emplace(bound, this).second) {
    return fail(ErrorCode::kConflict, "cannot listen on {}: someone else does", endpoint);
  }
  for (const auto& link : state_->links) {
    if (link->server == nullptr && link->endpoint == bound) attach(link);
  }
  return bound;
}

Status LocalHub::Node::connect(const std::string& connection, const std::string& endpoint,
                               const std::string& /*peer_key*/) {
  if (connection.empty() || connection.front() == '#') {
    return fail(ErrorCode::kInvalidArgument, "'{}' is no name for a connection", connection);
  }
  const std::lock_guard lock(state_->mutex);
  WB_ASSIGN(const auto target, canonical(endpoint, state_->next_port, false));
  if (const auto existing = find(connection)) {
    if (existing->endpoint == target) return {};
    drop_client_link(existing);
  }
  auto link = std::make_shared<Link>();
  link->client_name = connection;
  link->endpoint = target;
  link->client = this;
  state_->links.push_back(link);
  if (const auto listener = state_->listeners.find(target); listener != state_->listeners.end()) {
    listener->second->attach(link);
  }
  return {};
}

void LocalHub::Node::disconnect(const std::string& connection) {
  const std::lock_guard lock(state_->mutex);
  const auto link = find(connection);
  if (link && link->client == this) drop_client_link(link);
}

Status LocalHub::Node::send(const std::string& connection, std::string_view frame) {
  const std::lock_guard lock(state_->mutex);
  if (frame.size() > kMaxFrameBytes) {
    ++oversized_;
    return fail(ErrorCode::kInvalidArgument, "a frame of {} bytes for {} is over the limit of {}", frame.size(),
                connection, kMaxFrameBytes);
  }
  const auto link = find(connection);
  if (!link) return fail(ErrorCode::kUnavailable, "there is no connection '{}'", connection);
  const bool from_client = link->client == this && link->client_name == connection;
  const auto queued = from_client ? link->to_server + link->waiting.size() : link->to_client;
  if (queued >= state_->queue_frames) {
    return fail(ErrorCode::kUnavailable, "cannot send to {}: its queue is full", connection);
  }
  if (!from_client) {
    auto& client = *link->client;
    ++link->to_client;
    client.inbox_.push_back({link, false, {link->client_name, identity_, std::string(frame)}});
    client.changed_.notify_all();
  } else if (link->server != nullptr) {
    link->server->deliver_to_server(link, std::string(frame));
  } else {
    link->waiting.emplace_back(frame);
  }
  return {};
}

std::optional<Received> LocalHub::Node::receive(base::Duration timeout) {
  constexpr base::Duration kWaitMax = std::chrono::hours(1);
  const auto wait = std::clamp<base::Duration>(timeout, base::Duration::zero(), kWaitMax);
  std::unique_lock lock(state_->mutex);
  changed_.wait_for(lock, wait, [this] { return woken_ || !inbox_.empty(); });
  if (std::exchange(woken_, false) || inbox_.empty()) return std::nullopt;
  auto queued = std::move(inbox_.front());
  inbox_.pop_front();
  auto& count = queued.from_client ? queued.link->to_server : queued.link->to_client;
  if (count > 0) --count;
  return std::move(queued.received);
}

void LocalHub::Node::wake() {
  const std::lock_guard lock(state_->mutex);
  woken_ = true;
  changed_.notify_all();
}

Transport::Drops LocalHub::Node::drops() const {
  const std::lock_guard lock(state_->mutex);
  Drops drops;
  drops.oversized = oversized_;
  return drops;
}

}  // namespace weightbus::transport
