// The long work of the sink role: mapping sources, filling a half, digesting what was written.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "weightbus/protocol/agent_output.h"
#include "weightbus/runtime/arena.h"
#include "weightbus/runtime/source_work.h"

namespace weightbus::runtime {

// Calls are made one at a time, from any thread; cancel() and bytes_done() at any moment.
class SinkWork {
 public:
  SinkWork(model::Member self, Channels channels, unsigned threads);

  protocol::SinkJoinDone perform(const protocol::DoJoin& action);
  protocol::SinkPullDone perform(const protocol::DoPull& action, const Arena& arena);
  void perform(const protocol::DoLeave& action);
  void cancel(const protocol::DoCancel& action);
  std::uint64_t bytes_done() const;
  // Payload received so far over each channel, for metrics.
  std::map<std::string, std::uint64_t> bytes_by_channel() const;

 private:
  struct Source {
    model::MemberId member;
    std::string channel;
    std::unique_ptr<channel::PullSession> session;
  };
  base::Result<std::vector<std::string>> join(const protocol::DoJoin& action);
  base::Result<Source> join_source(const protocol::SourcePeer& peer, std::uint32_t deadline_ms) const;
  base::Result<protocol::PullResult> pull(const protocol::DoPull& action, const Arena& arena);
  base::Status pull_all(const plan::SinkPart& part, std::span<std::byte* const> to, base::Duration deadline);

  model::Member self_;
  Channels channels_;
  unsigned threads_;
  std::vector<Source> sources_;
  mutable std::mutex mutex_;  // of those below
  std::shared_ptr<device::Control> control_ = std::make_shared<device::Control>();
  std::uint64_t cancelled_to_ = 0;
  std::map<std::string, std::uint64_t> by_channel_;
};

// The digest of each slot that the part names, as it lies in `regions`; in the order of part.slots.
std::vector<plan::Digest> digest_slots(const model::SinkManifest& manifest, const plan::SinkPart& part,
                                       std::span<const std::byte* const> regions, unsigned threads);
// The element-grain digest of every raw slot that is not empty.
std::vector<protocol::SlotDigest> digest_live(const model::SinkManifest& manifest,
                                              std::span<const std::byte* const> regions, unsigned threads);

}  // namespace weightbus::runtime
