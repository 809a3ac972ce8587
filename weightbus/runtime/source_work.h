// The long work of the source role: opening what an update reads, serving it on channels, digesting it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weightbus/channel/channel.h"
#include "weightbus/channel/selection.h"
#include "weightbus/protocol/agent_output.h"

namespace weightbus::runtime {

// Memory that an update reads. `keep` holds whatever owns it.
struct SourceMemory {
  model::SourceManifest manifest;
  std::vector<device::Memory*> regions;  // by region index
  std::shared_ptr<void> keep;
};
// Opens one, in a thread of the pool. May take long; ends soon after control.cancelled.
using OpenSourceMemory =
    std::function<base::Result<SourceMemory>(model::UpdateId, const protocol::SourceSpec&, device::Control&)>;

// Every way for bulk bytes that this process has; main() makes the list.
using Channels = std::vector<std::shared_ptr<channel::Channel>>;

// Calls are made one at a time, from any thread; cancel() at any moment.
class SourceWork {
 public:
  SourceWork(OpenSourceMemory open, std::shared_ptr<device::Device> device, Channels channels, unsigned threads);

  protocol::SourceOpenDone perform(const protocol::DoOpenSource& action);
  protocol::SourceServeDone perform(const protocol::DoServe& action);
  protocol::SourceDigestDone perform(const protocol::DoDigestSource& action);
  protocol::SourceReleaseDone perform(const protocol::DoReleaseSource& action);
  // Ends what runs for `update` soon.
  void cancel(model::UpdateId update);

 private:
  struct Session {
    model::UpdateId update;
    SourceMemory memory;
    std::vector<std::unique_ptr<channel::SourceSession>> served;  // ends before `memory`
  };
  base::Result<protocol::SourceOpened> open(const protocol::DoOpenSource& action);
  device::Control& control_for(model::UpdateId update);

  base::Result<plan::Digest> digest(const plan::DigestUnit& unit, const plan::PlannedTensor& tensor) const;

  OpenSourceMemory open_;
  std::shared_ptr<device::Device> device_;
  Channels channels_;
  unsigned threads_;
  std::unique_ptr<Session> session_;
  std::mutex mutex_;  // of the two below
  std::shared_ptr<device::Control> control_;
  std::uint64_t control_update_ = 0;
  std::uint64_t cancelled_to_ = 0;
};

// Named regions that are removed with their owner; mappings of them in other processes stay valid.
class OwnedRegions {
 public:
  explicit OwnedRegions(std::shared_ptr<device::Device> device) : device_(std::move(device)) {}
  ~OwnedRegions();
  OwnedRegions(const OwnedRegions&) = delete;
  OwnedRegions& operator=(const OwnedRegions&) = delete;
  // Makes a region; what a killed process left under the name is removed first.
  base::Result<device::Memory*> add(const std::string& name, std::uint64_t bytes);

 private:
  std::shared_ptr<device::Device> device_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<device::Memory>> memory_;
};

// An offer as it travels: the update's token, then the channel's own descriptor.
std::string join_offer(const std::string& token, const std::string& descriptor);
struct SplitOffer {
  std::string token;
  std::string descriptor;
};
base::Result<SplitOffer> split_offer(const std::string& offer);

// Runs job(0) ... job(count - 1) on up to `threads` threads, the caller's included.
void parallel_for(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& job);

}  // namespace weightbus::runtime
