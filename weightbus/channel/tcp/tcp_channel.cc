#include <algorithm>

#include "weightbus/channel/tcp/factory.h"
#include "weightbus/channel/tcp/listener.h"
#include "weightbus/channel/tcp/served_session.h"
#include "weightbus/channel/tcp/tcp_pull.h"

namespace weightbus::channel {
namespace {

class TcpSource final : public SourceSession {
 public:
  TcpSource(std::shared_ptr<Listener> listener, std::shared_ptr<ServedSession> session)
      : listener_(std::move(listener)),
        session_(std::move(session)),
        offer_{std::string(kTcpName), TcpDescriptor{listener_->advertised(), session_->number()}.encode()} {}
  TcpSource(const TcpSource&) = delete;
  TcpSource& operator=(const TcpSource&) = delete;
  ~TcpSource() override {
    listener_->remove(session_->number());
    session_->close();
  }
  const Offer& offer() const override { return offer_; }
  void set_part(std::shared_ptr<const plan::SourcePart> part) override { session_->set_part(std::move(part)); }

 private:
  const std::shared_ptr<Listener> listener_;
  const std::shared_ptr<ServedSession> session_;
  const Offer offer_;
};

class TcpChannel final : public Channel {
 public:
  explicit TcpChannel(const TcpOptions& options) : options_(options) {
    auto listener = Listener::create(options);
    if (listener) {
      listener_ = std::move(*listener);
    } else {
      viability_ = {false, listener.error().message};
    }
  }
  std::string_view name() const override { return kTcpName; }
  Viability viability() const override { return viability_; }

  base::Result<std::unique_ptr<SourceSession>> serve(const ServeRequest& request) override {
    if (!listener_) return base::fail(base::ErrorCode::kUnavailable, "{}", viability_.reason);
    const ServedSession::Limits limits{std::max<std::uint64_t>(options_.staging_bytes, 4096), options_.stall};
    WB_ASSIGN(auto session, ServedSession::create(request, limits));
    WB_TRY(listener_->add(session));
    return std::make_unique<TcpSource>(listener_, std::move(session));
  }

  base::Result<std::unique_ptr<PullSession>> join(const JoinRequest& request) override {
    return TcpPull::create(request, options_);
  }

 private:
  const TcpOptions options_;
  std::shared_ptr<Listener> listener_;  // null when it could not listen
  Viability viability_{true, ""};
};

}  // namespace

std::unique_ptr<Channel> make_tcp_channel(const TcpOptions& options) { return std::make_unique<TcpChannel>(options); }

}  // namespace weightbus::channel
