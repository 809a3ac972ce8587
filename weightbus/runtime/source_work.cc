#include "weightbus/runtime/source_work.h"

#include <sodium.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "weightbus/plan/digest.h"

namespace weightbus::runtime {
namespace {

constexpr std::size_t kTokenBytes = 32;

std::string new_token() {
  std::string token(kTokenBytes, '\0');
  randombytes_buf(token.data(), token.size());
  return token;
}

}  // namespace

void parallel_for(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& job) {
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++)
      job(i);
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < threads && i < count; ++i)
    helpers.emplace_back(run);
  run();
  for (auto& helper : helpers)
    helper.join();
}

OwnedRegions::~OwnedRegions() {
  for (const auto& name : names_)
    device_->remove(name);
}

base::Result<device::Memory*> OwnedRegions::add(const std::string& name, std::uint64_t bytes) {
  device_->remove(name);
  WB_ASSIGN(auto memory, device_->allocate(name, bytes));
  names_.push_back(name);
  memory_.push_back(std::move(memory));
  return memory_.back().get();
}

std::string join_offer(const std::string& token, const std::string& descriptor) { return token + descriptor; }

base::Result<SplitOffer> split_offer(const std::string& offer) {
  if (offer.size() < kTokenBytes) return base::fail(base::ErrorCode::kCorrupted, "an offer without a token");
  return SplitOffer{offer.substr(0, kTokenBytes), offer.substr(kTokenBytes)};
}

SourceWork::SourceWork(OpenSourceMemory open, std::shared_ptr<device::Device> device, Channels channels,
                       unsigned threads)
    : open_(std::move(open)), device_(std::move(device)), channels_(std::move(channels)), threads_(threads) {}

device::Control& SourceWork::control_for(model::UpdateId update) {
  const std::lock_guard lock(mutex_);
  if (!control_ || control_update_ != update.value()) {
    control_ = std::make_shared<device::Control>();
    control_update_ = update.value();
    control_->cancelled = update.value() <= cancelled_to_;
  }
  return *control_;
}

void SourceWork::cancel(model::UpdateId update) {
  const std::lock_guard lock(mutex_);
  cancelled_to_ = std::max(cancelled_to_, update.value());
  if (control_ && control_update_ <= update.value()) control_->cancelled = true;
}

base::Result<protocol::SourceOpened> SourceWork::open(const protocol::DoOpenSource& action) {
  session_.reset();
  auto memory = open_(action.update, action.source, control_for(action.update));
  if (!memory) return base::fail(memory.error());
  auto session = std::make_unique<Session>(Session{action.update, std::move(*memory), {}});
  protocol::SourceOpened opened{session->memory.manifest, {}};
  const std::string token = new_token();
  std::string reasons;
  for (const auto& channel : channels_) {
    const auto viable = channel->viability();
    if (viable.usable) {
      auto served = channel->serve(
          {model::MemberId{"source"}, {session->memory.regions.begin(), session->memory.regions.end()}, token});
      if (!served) return base::fail(served.error().with(std::string(channel->name())));
      const auto& offer = (*served)->offer();
      opened.offers.push_back({offer.channel, join_offer(token, offer.descriptor)});
      session->served.push_back(std::move(*served));
    } else {
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", channel->name(), viable.reason);
    }
  }
  if (opened.offers.empty())
    return base::fail(base::ErrorCode::kUnsupported, "no channel can be used here: {}", reasons);
  session_ = std::move(session);
  return opened;
}

protocol::SourceOpenDone SourceWork::perform(const protocol::DoOpenSource& action) {
  return {action.update, open(action)};
}

protocol::SourceServeDone SourceWork::perform(const protocol::DoServe& action) {
  if (!session_ || session_->update != action.update) {
    return {action.update, base::fail(base::ErrorCode::kAborted, "the source is closed")};
  }
  for (auto& served : session_->served)
    served->set_part(action.part);
  return {action.update, {}};
}

protocol::SourceDigestDone SourceWork::perform(const protocol::DoDigestSource& action) {
  if (!session_ || session_->update != action.update) {
    return {action.update, base::fail(base::ErrorCode::kAborted, "the source is closed")};
  }
  const auto& part = *action.part;
  device::Control& control = control_for(action.update);
  std::vector<plan::Digest> digests(part.units.size());
  std::mutex mutex;
  std::optional<base::Error> failed;
  parallel_for(part.units.size(), threads_, [&](std::size_t i) {
    if (control.cancelled) return;
    auto result = digest(part.units[i], part.tensors[part.units[i].tensor]);
    if (result) {
      digests[i] = *result;
    } else {
      const std::lock_guard lock(mutex);
      failed = result.error().with(part.tensors[part.units[i].tensor].name);
    }
  });
  if (control.cancelled) return {action.update, base::fail(base::ErrorCode::kAborted, "cancelled")};
  if (failed) return {action.update, base::fail(*failed)};
  // A digest does not depend on the grain (plan/digest.h), so that of the plan is the version's too.
  return {action.update, protocol::SourceStaged{digests, digests}};
}

// As the receivers will see it: casts are applied before it is digested.
base::Result<plan::Digest> SourceWork::digest(const plan::DigestUnit& unit, const plan::PlannedTensor& tensor) const {
  const std::uint64_t seed = plan::digest_seed(tensor.name, tensor.shape, tensor.dtype, tensor.grain_bytes);
  const std::uint32_t element = model::dtype_size(tensor.dtype);
  const std::byte* data = session_->memory.regions[unit.from.region]->data();
  if (tensor.cast == model::Cast::kNone) {
    return plan::digest_box(data + unit.from.offset, unit.from.strides, element, unit.box, tensor.shape, seed,
                            tensor.grain_bytes);
  }
  const model::Dims dense = model::dense_strides(unit.box.extent);
  const std::uint64_t bytes = unit.box.volume() * element;
  plan::Bucket bucket{0, model::MemberId{""}, model::MemberId{""}, bytes, {{0, unit.box, unit.from, {0, 0, dense}, 0}}};
  std::vector<std::byte> packed(bytes);
  std::vector<const std::byte*> from;
  for (auto* region : session_->memory.regions)
    from.push_back(region->data());
  WB_TRY(device_->pack(bucket, {&tensor, 1}, from, packed.data()));
  return plan::digest_box(packed.data(), dense, element, unit.box, tensor.shape, seed, tensor.grain_bytes);
}

protocol::SourceReleaseDone SourceWork::perform(const protocol::DoReleaseSource& action) {
  session_.reset();
  return {action.update};
}

}  // namespace weightbus::runtime
