#include "weightbus/runtime/sink_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "weightbus/plan/digest.h"
#include "weightbus/runtime/clock.h"

namespace weightbus::runtime {

SinkWork::SinkWork(model::Member self, Channels channels, unsigned threads)
    : self_(std::move(self)), channels_(std::move(channels)), threads_(threads) {}

void SinkWork::cancel(const protocol::DoCancel& action) {
  const std::lock_guard lock(mutex_);
  cancelled_to_ = std::max(cancelled_to_, action.update.value());
  control_->cancelled = true;
}

std::uint64_t SinkWork::bytes_done() const {
  const std::lock_guard lock(mutex_);
  return control_->bytes_done;
}

std::map<std::string, std::uint64_t> SinkWork::bytes_by_channel() const {
  const std::lock_guard lock(mutex_);
  return by_channel_;
}

void SinkWork::perform(const protocol::DoLeave&) { sources_.clear(); }

// ---------------------------------------------------------------- joining

protocol::SinkJoinDone SinkWork::perform(const protocol::DoJoin& action) {
  {
    const std::lock_guard lock(mutex_);
    control_ = std::make_shared<device::Control>();
    control_->cancelled = action.update.value() <= cancelled_to_;
  }
  auto channels = join(action);
  if (!channels) sources_.clear();
  return {action.update, std::move(channels)};
}

base::Result<std::vector<std::string>> SinkWork::join(const protocol::DoJoin& action) {
  sources_.clear();
  std::vector<std::string> names;
  for (const auto& peer : action.sources) {
    const bool read = std::any_of(action.part->buckets.begin(), action.part->buckets.end(),
                                  [&](const plan::Bucket& bucket) { return bucket.source == peer.member; });
    if (!read) {
      names.emplace_back();
      continue;
    }
    auto source = join_source(peer, action.deadline_ms);
    if (!source) return base::fail(source.error().with("joining " + peer.member.value()));
    names.push_back(source->channel);
    sources_.push_back(std::move(*source));
  }
  return names;
}

base::Result<SinkWork::Source> SinkWork::join_source(const protocol::SourcePeer& peer,
                                                     std::uint32_t deadline_ms) const {
  std::vector<std::string> offered;
  for (const auto& offer : peer.offers)
    offered.push_back(offer.channel);
  std::vector<channel::SinkChannel> here;
  for (const auto& own : channels_)
    here.push_back({std::string(own->name()), own->viability().usable, own->viability().reason});
  WB_ASSIGN(const std::string name, channel::select_channel({peer.member, peer.host, peer.device_uuid},
                                                            {self_.id, self_.host, self_.device_uuid}, offered, here));
  const auto offer =
      std::find_if(peer.offers.begin(), peer.offers.end(), [&](const auto& o) { return o.channel == name; });
  const auto own = std::find_if(channels_.begin(), channels_.end(), [&](const auto& c) { return c->name() == name; });
  WB_ASSIGN(const SplitOffer split, split_offer(offer->descriptor));
  WB_ASSIGN(auto session,
            (*own)->join({peer.member, self_.id, {name, split.descriptor}, split.token, base::Millis(deadline_ms)}));
  return Source{peer.member, name, std::move(session)};
}

// ---------------------------------------------------------------- pulling

protocol::SinkPullDone SinkWork::perform(const protocol::DoPull& action, const Arena& arena) {
  return {action.update, pull(action, arena)};
}

base::Result<protocol::PullResult> SinkWork::pull(const protocol::DoPull& action, const Arena& arena) {
  const base::Instant began = now();
  const auto to = arena.half(action.half);
  WB_TRY(pull_all(*action.part, to, base::Millis(action.deadline_ms)));
  const base::Instant pulled = now();
  protocol::PullResult result;
  result.slots = digest_slots(arena.manifest(), *action.part, arena.half_const(action.half), threads_);
  result.times = {static_cast<std::uint64_t>((pulled - began).count()),
                  static_cast<std::uint64_t>((now() - pulled).count()), action.part->bytes};
  const std::lock_guard lock(mutex_);
  if (control_->cancelled) return base::fail(base::ErrorCode::kAborted, "cancelled");
  return result;
}

base::Status SinkWork::pull_all(const plan::SinkPart& part, std::span<std::byte* const> to, base::Duration deadline) {
  std::shared_ptr<device::Control> control;
  {
    const std::lock_guard lock(mutex_);
    control = control_;
  }
  std::mutex mutex;
  std::optional<base::Error> failed;
  parallel_for(sources_.size(), std::max(1U, threads_), [&](std::size_t i) {
    Source& source = sources_[i];
    // Buckets stand by source: one run of them belongs to each.
    const auto mine = [&](const plan::Bucket& bucket) { return bucket.source == source.member; };
    const auto first = std::find_if(part.buckets.begin(), part.buckets.end(), mine);
    const auto last = std::find_if_not(first, part.buckets.end(), mine);
    std::uint64_t bytes = 0;
    for (auto it = first; it != last; ++it)
      bytes += it->bytes;
    auto status = source.session->pull({first, last}, part.tensors, to, deadline, *control);
    const std::lock_guard lock(mutex);
    if (!status && !failed) {
      failed = status.error().with(fmt::format("reading {} over {}", source.member.value(), source.channel));
      control->cancelled = true;  // the others need not go on
    }
    if (status) {
      const std::lock_guard counters(mutex_);
      by_channel_[source.channel] += bytes;
    }
  });
  if (failed) return base::fail(*failed);
  return {};
}

// ---------------------------------------------------------------- digests

std::vector<plan::Digest> digest_slots(const model::SinkManifest& manifest, const plan::SinkPart& part,
                                       std::span<const std::byte* const> regions, unsigned threads) {
  std::vector<plan::Digest> digests(part.slots.size());
  parallel_for(part.slots.size(), threads, [&](std::size_t i) {
    const auto& slot = manifest.slots[part.slots[i].slot];
    const auto& tensor = part.tensors[part.slots[i].tensor];
    const std::uint64_t seed = plan::digest_seed(tensor.name, tensor.shape, tensor.dtype, tensor.grain_bytes);
    digests[i] = plan::digest_box(regions[slot.at.region] + slot.at.offset, slot.at.strides,
                                  model::dtype_size(tensor.dtype), slot.box, tensor.shape, seed, tensor.grain_bytes);
  });
  return digests;
}

std::vector<protocol::SlotDigest> digest_live(const model::SinkManifest& manifest,
                                              std::span<const std::byte* const> regions, unsigned threads) {
  std::vector<const model::Slot*> slots;
  for (const auto& slot : manifest.slots) {
    if (slot.kind == model::SlotKind::kRaw && !slot.box.empty()) slots.push_back(&slot);
  }
  std::vector<protocol::SlotDigest> digests(slots.size(), {{"", model::DType::kU8, {}}, {}, {}});
  parallel_for(slots.size(), threads, [&](std::size_t i) {
    const auto& tensor = manifest.tensors[slots[i]->tensor];
    const std::uint32_t element = model::dtype_size(tensor.dtype);
    const std::uint64_t seed = plan::digest_seed(tensor.name, tensor.shape, tensor.dtype, element);
    digests[i] = {tensor, slots[i]->box,
                  plan::digest_box(regions[slots[i]->at.region] + slots[i]->at.offset, slots[i]->at.strides, element,
                                   slots[i]->box, tensor.shape, seed, element)};
  });
  return digests;
}

}  // namespace weightbus::runtime
