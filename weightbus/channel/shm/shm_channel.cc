#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "weightbus/channel/direct_pull.h"
#include "weightbus/channel/encoding.h"
#include "weightbus/channel/pull_limits.h"
#include "weightbus/channel/secret.h"
#include "weightbus/channel/shm/control_block.h"
#include "weightbus/channel/shm/factory.h"

namespace weightbus::channel {
namespace {

using base::ErrorCode;
using base::fail;

constexpr std::string_view kName = "shm";
constexpr std::uint16_t kDescriptorRevision = 1;
constexpr std::uint32_t kRegionsMax = 65536;
constexpr std::size_t kNameMax = 255;

struct Descriptor {
  std::string control;
  std::vector<model::Region> regions;
};

std::string encode(const Descriptor& descriptor) {
  Encoder encoder;
  encoder.number(kDescriptorRevision);
  encoder.string(descriptor.control);
  encoder.number(static_cast<std::uint32_t>(descriptor.regions.size()));
  for (const auto& region : descriptor.regions) {
    encoder.number(static_cast<std::uint8_t>(region.kind));
    encoder.string(region.handle);
    encoder.number(region.bytes);
    encoder.number(region.allocation_id);
  }
  return encoder.take();
}

std::optional<Descriptor> decode(std::string_view bytes) {
  Decoder decoder(bytes);
  Descriptor descriptor;
  if (decoder.number<std::uint16_t>() != kDescriptorRevision) return std::nullopt;
  const auto control = decoder.string(kNameMax);
  const auto count = decoder.number<std::uint32_t>();
  if (!control || !count || *count > kRegionsMax) return std::nullopt;
  descriptor.control = *control;
  for (std::uint32_t i = 0; i < *count; ++i) {
    const auto kind = decoder.number<std::uint8_t>();
    const auto handle = decoder.string(kNameMax);
    const auto size = decoder.number<std::uint64_t>();
    const auto id = decoder.number<std::uint64_t>();
    if (!kind || !handle || !size || !id) return std::nullopt;
    descriptor.regions.push_back({static_cast<model::RegionKind>(*kind), "", std::string(*handle), *size, *id});
  }
  if (!decoder.done()) return std::nullopt;
  return descriptor;
}

class ShmSource final : public SourceSession {
 public:
  ShmSource(std::unique_ptr<ControlBlock> control, Offer offer, base::Duration drain)
      : control_(std::move(control)), offer_(std::move(offer)), drain_(drain) {}
  ShmSource(const ShmSource&) = delete;
  ShmSource& operator=(const ShmSource&) = delete;
  // Closed before the drain: a reader that begins after it sees it, and a longer one sees it at its next piece.
  ~ShmSource() override {
    control_->set_state(ServeState::kClosed);
    control_->drain(drain_);
  }
  const Offer& offer() const override { return offer_; }
  void set_part(std::shared_ptr<const plan::SourcePart>) override {
    WB_ASSERT(control_->state() == ServeState::kWaiting, "set_part is called once");
    control_->set_state(ServeState::kServing);
  }

 private:
  const std::unique_ptr<ControlBlock> control_;
  const Offer offer_;
  const base::Duration drain_;
};

// Holds the reader's lock while in scope.
class ReadScope {
 public:
  explicit ReadScope(ControlBlock& control) : control_(control), held_(control.begin_read()) {}
  ReadScope(const ReadScope&) = delete;
  ReadScope& operator=(const ReadScope&) = delete;
  ~ReadScope() {
    if (held_) control_.end_read();
  }
  bool held() const noexcept { return held_; }

 private:
  ControlBlock& control_;
  const bool held_;
};

class ShmPull final : public PullSession {
 public:
  ShmPull(const JoinRequest& request, std::unique_ptr<ControlBlock> control,
          std::vector<std::unique_ptr<device::Memory>> regions, unsigned threads)
      : source_(request.source),
        sink_(request.sink),
        control_(std::move(control)),
        regions_(std::move(regions)),
        threads_(threads) {
    for (const auto& region : regions_) {
      from_.push_back(region->data());
      from_bytes_.push_back(region->bytes());
    }
  }

  base::Status pull(std::span<const plan::Bucket> buckets, std::span<const plan::PlannedTensor> tensors,
                    std::span<std::byte* const> to, base::Duration deadline, device::Control& control) override {
    const PullLimits limits(source_, deadline, &control);
    WB_TRY(check_buckets(buckets, source_, sink_));
    if (buckets.empty()) return limits.check();
    WB_TRY(wait_for_part(limits));
    const ReadScope reading(*control_);
    if (!reading.held()) return gone();
    WB_TRY(serving(true));
    std::atomic<std::uint32_t> pieces{0};
    const auto source_ok = [&] { return serving(pieces.fetch_add(1, std::memory_order_relaxed) % 16 == 0); };
    WB_TRY(direct_pull({buckets, tensors, from_, from_bytes_, to, threads_}, limits, control, source_ok));
    return serving(true);
  }

 private:
  base::Status gone() const { return fail(ErrorCode::kUnavailable, "{} serves no longer", source_.value()); }

  // Killed: it could not remove its control page.
  base::Status died() const {
    ControlBlock::sweep();
    return gone();
  }

  // `ask_kernel`: also whether the source's process lives, which costs a system call.
  base::Status serving(bool ask_kernel) const {
    if (control_->state() != ServeState::kServing) return gone();
    if (ask_kernel && !control_->source_alive()) return died();
    return {};
  }

  base::Status wait_for_part(const PullLimits& limits) const {
    base::Duration pause = std::chrono::microseconds(20);
    while (true) {
      const auto state = control_->state();
      if (state == ServeState::kServing) return {};
      if (state != ServeState::kWaiting) return gone();
      if (!control_->source_alive()) return died();
      WB_TRY(limits.check());
      std::this_thread::sleep_for(limits.wait(pause));
      pause = std::min<base::Duration>(pause * 2, std::chrono::milliseconds(1));
    }
  }

  const model::MemberId source_;
  const model::MemberId sink_;
  const std::unique_ptr<ControlBlock> control_;
  const std::vector<std::unique_ptr<device::Memory>> regions_;
  std::vector<const std::byte*> from_;
  std::vector<std::uint64_t> from_bytes_;
  const unsigned threads_;
};

Viability probe() {
  const auto block = ControlBlock::create(Secret{});
  if (!block) return {false, block.error().message};
  const auto reader = ControlBlock::open((*block)->name());
  if (!reader) return {false, reader.error().message};
  if (!(*reader)->source_alive()) {
    return {false, "/dev/shm does not keep locks of open file descriptions: the kernel or container forbids them"};
  }
  return {true, ""};
}

class ShmChannel final : public Channel {
 public:
  ShmChannel(std::shared_ptr<device::Device> device, const ShmOptions& options)
      : device_(std::move(device)), options_(options) {
    ControlBlock::sweep();
    viability_ = probe();
  }
  std::string_view name() const override { return kName; }
  Viability viability() const override { return viability_; }

  base::Result<std::unique_ptr<SourceSession>> serve(const ServeRequest& request) override {
    Descriptor descriptor;
    for (const auto* memory : request.regions) {
      const auto& region = memory->region();
      if (region.kind != model::RegionKind::kHostShm) {
        return fail(ErrorCode::kUnsupported, "{}: shm serves named shared memory only, not a region of kind {}",
                    request.source.value(), static_cast<int>(region.kind));
      }
      descriptor.regions.push_back(region);
    }
    WB_ASSIGN(auto control, ControlBlock::create(hash_token(request.token)));
    descriptor.control = control->name();
    return std::make_unique<ShmSource>(std::move(control), Offer{std::string(kName), encode(descriptor)},
                                       options_.drain);
  }

  base::Result<std::unique_ptr<PullSession>> join(const JoinRequest& request) override {
    const auto& source = request.source.value();
    const PullLimits limits(request.source, request.deadline, nullptr);
    const auto descriptor = decode(request.offer.descriptor);
    if (request.offer.channel != kName || !descriptor) {
      return fail(ErrorCode::kInvalidArgument, "the shm offer of {} cannot be read", source);
    }
    auto control = ControlBlock::open(descriptor->control);
    if (!control) return fail(control.error().with(source));
    if (!equal_secrets((*control)->token(), hash_token(request.token))) {
      return fail(ErrorCode::kPermissionDenied, "{} serves another update: its token differs", source);
    }
    std::vector<std::unique_ptr<device::Memory>> regions;
    for (const auto& region : descriptor->regions) {
      WB_TRY(limits.check());
      auto memory = device_->import_region(region, false);
      if (!memory) return fail(memory.error().with(source));
      regions.push_back(std::move(*memory));
    }
    return std::make_unique<ShmPull>(request, std::move(*control), std::move(regions), options_.threads);
  }

 private:
  const std::shared_ptr<device::Device> device_;
  const ShmOptions options_;
  Viability viability_{false, ""};
};

}  // namespace

std::unique_ptr<Channel> make_shm_channel(std::shared_ptr<device::Device> device, const ShmOptions& options) {
  return std::make_unique<ShmChannel>(std::move(device), options);
}

}  // namespace weightbus::channel
