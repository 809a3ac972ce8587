#include <charconv>
#include <condition_variable>
#include <map>
#include <mutex>

#include "weightbus/channel/direct_pull.h"
#include "weightbus/channel/local/factory.h"
#include "weightbus/channel/pull_limits.h"

namespace weightbus::channel {
namespace {

using base::ErrorCode;
using base::fail;

constexpr std::string_view kName = "local";

// Of one SourceSession, shared with the sessions that joined it.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  bool serving = false;
  std::atomic<bool> closed{false};  // written under the mutex; read without it between pieces
  int readers = 0;
  std::string token;
  std::vector<const std::byte*> regions;
  std::vector<std::uint64_t> region_bytes;
};

// Sessions by number; the descriptor is that number.
struct Registry {
  std::mutex mutex;
  std::uint64_t next = 1;
  std::map<std::uint64_t, std::shared_ptr<State>> sessions;
};

class LocalSource final : public SourceSession {
 public:
  LocalSource(std::shared_ptr<Registry> registry, std::uint64_t number, std::shared_ptr<State> state)
      : registry_(std::move(registry)),
        number_(number),
        state_(std::move(state)),
        offer_{std::string(kName), std::to_string(number)} {}
  LocalSource(const LocalSource&) = delete;
  LocalSource& operator=(const LocalSource&) = delete;
  ~LocalSource() override {
    {
      const std::lock_guard lock(registry_->mutex);
      registry_->sessions.erase(number_);
    }
    std::unique_lock lock(state_->mutex);
    state_->closed = true;
    state_->changed.notify_all();
    state_->changed.wait(lock, [this] { return state_->readers == 0; });
  }
  const Offer& offer() const override { return offer_; }
  void set_part(std::shared_ptr<const plan::SourcePart>) override {
    const std::lock_guard lock(state_->mutex);
    WB_ASSERT(!state_->serving, "set_part is called once");
    state_->serving = true;
    state_->changed.notify_all();
  }

 private:
  const std::shared_ptr<Registry> registry_;
  const std::uint64_t number_;
  const std::shared_ptr<State> state_;
  const Offer offer_;
};

class LocalPull final : public PullSession {
 public:
  LocalPull(const JoinRequest& request, std::shared_ptr<State> state)
      : source_(request.source), sink_(request.sink), state_(std::move(state)) {}

  base::Status pull(std::span<const plan::Bucket> buckets, std::span<const plan::PlannedTensor> tensors,
                    std::span<std::byte* const> to, base::Duration deadline, device::Control& control) override {
    const PullLimits limits(source_, deadline, &control);
    WB_TRY(check_buckets(buckets, source_, sink_));
    if (buckets.empty()) return limits.check();
    WB_TRY(begin(limits));
    auto status = direct_pull({buckets, tensors, state_->regions, state_->region_bytes, to, 1}, limits, control,
                              [this] { return serving(); });
    const std::lock_guard lock(state_->mutex);
    --state_->readers;
    state_->changed.notify_all();
    return status;
  }

 private:
  base::Status serving() const {
    if (!state_->closed) return {};
    return fail(ErrorCode::kUnavailable, "{} serves no longer", source_.value());
  }

  // Waits for the part and becomes a reader.
  base::Status begin(const PullLimits& limits) {
    std::unique_lock lock(state_->mutex);
    while (!state_->serving && !state_->closed) {
      WB_TRY(limits.check());
      // The wait is short, since nobody wakes it when control.cancelled is set.
      state_->changed.wait_for(lock, limits.wait(std::chrono::milliseconds(1)));
    }
    WB_TRY(serving());
    ++state_->readers;
    return {};
  }

  const model::MemberId source_;
  const model::MemberId sink_;
  const std::shared_ptr<State> state_;
};

class LocalChannel final : public Channel {
 public:
  std::string_view name() const override { return kName; }
  Viability viability() const override { return {true, ""}; }

  base::Result<std::unique_ptr<SourceSession>> serve(const ServeRequest& request) override {
    auto state = std::make_shared<State>();
    state->token = request.token;
    for (const auto* memory : request.regions) {
      // Memory's accessors are not const; reading through them changes nothing.
      state->regions.push_back(const_cast<device::Memory*>(memory)->data());
      state->region_bytes.push_back(memory->bytes());
    }
    const std::lock_guard lock(registry_->mutex);
    const auto number = registry_->next++;
    registry_->sessions.emplace(number, state);
    return std::make_unique<LocalSource>(registry_, number, std::move(state));
  }

  base::Result<std::unique_ptr<PullSession>> join(const JoinRequest& request) override {
    const auto& text = request.offer.descriptor;
    std::uint64_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (request.offer.channel != kName || parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) {
      return fail(ErrorCode::kInvalidArgument, "the local offer of {} cannot be read", request.source.value());
    }
    const std::lock_guard lock(registry_->mutex);
    const auto session = registry_->sessions.find(number);
    if (session == registry_->sessions.end()) {
      return fail(ErrorCode::kUnavailable, "{} serves no longer", request.source.value());
    }
    if (session->second->token != request.token) {
      return fail(ErrorCode::kPermissionDenied, "{} serves another update: its token differs", request.source.value());
    }
    return std::make_unique<LocalPull>(request, session->second);
  }

 private:
  const std::shared_ptr<Registry> registry_ = std::make_shared<Registry>();
};

}  // namespace

std::unique_ptr<Channel> make_local_channel() { return std::make_unique<LocalChannel>(); }

}  // namespace weightbus::channel
