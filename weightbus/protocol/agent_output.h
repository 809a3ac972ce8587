// What an agent's state machine hands out. The loop carries it out in this order: save, then send, perform, observe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "weightbus/protocol/messages.h"
#include "weightbus/protocol/observation.h"

namespace weightbus::protocol {

// What an agent keeps over restarts of its process, saved whole (a rename) before anything that depends on it is sent.
struct AgentState {
  model::Epoch known_epoch;
  std::uint64_t highest_version = 0;
  // Engine agents. halves[live] is live; the other is the shadow.
  bool has_arena = false;
  std::uint32_t live = 0;
  Half halves[2];
  std::uint64_t attempts = 0;            // the driver's counter
  std::optional<Commit> pending_commit;  // the driver's Commit that is not answered yet
  std::uint64_t pending_update = 0;      // its update, or that of the last one: older ones are never obeyed again
  bool torn = false;                     // the driver's: some ranks may have exchanged and others not
  std::uint64_t paused_attempt = 0;      // the attempt that this rank's clients are paused for; 0: none
  std::uint64_t resumed_attempt = 0;     // the newest attempt that is over for this rank
  std::uint64_t over_update = 0;         // the newest update that has written here: a repeat of it writes no more
};

// Long work that the loop does beside the state machine; each is answered by one *Done event, also when it fails.
// Actions of one agent run one at a time in the order given, except Cancel (acts at once) and Capture/DigestLive
// (aside).

// Open what the update reads, map it, offer it on channels -> SourceOpenDone.
struct DoOpenSource {
  model::UpdateId update;
  SourceSpec source;
};
// Tell the channels what to serve -> SourceServeDone.
struct DoServe {
  model::UpdateId update;
  std::shared_ptr<const plan::SourcePart> part;
};
// Digest every unit, at plan grain and element grain -> SourceDigestDone.
struct DoDigestSource {
  model::UpdateId update;
  std::shared_ptr<const plan::SourcePart> part;
};
// Stop serving, drain, give the memory back -> SourceReleaseDone. Cancels DoOpenSource and DoDigestSource.
struct DoReleaseSource {
  model::UpdateId update;
};
// Make the arena -> SinkOpenDone.
struct DoOpenSink {
  std::vector<model::TensorSpec> tensors;
  std::vector<model::Alias> aliases;
};
// Map the sources that the part reads -> SinkJoinDone.
struct DoJoin {
  model::UpdateId update;
  std::shared_ptr<const plan::SinkPart> part;
  std::vector<SourcePeer> sources;
  std::uint32_t deadline_ms;
};
// Fill half `half` and digest what was written -> SinkPullDone, after the last write.
struct DoPull {
  model::UpdateId update;
  std::shared_ptr<const plan::SinkPart> part;
  std::uint32_t half;
  std::uint32_t deadline_ms;
};
// Stop a DoJoin or DoPull of this update soon; their Done event still comes. No Done of its own.
struct DoCancel {
  model::UpdateId update;
};
// Unmap the sources. No Done.
struct DoLeave {
  model::UpdateId update;
};
// Close the launch gates of all attached clients -> PauseDone.
struct DoPause {
  std::uint64_t attempt;
  std::uint32_t deadline_ms;
};
// Exchange the mapping in all attached clients; half `live` becomes live -> ExchangeDone.
struct DoExchange {
  std::uint64_t attempt;
  std::uint32_t live;
  Tag tag;
};
// Open the gates -> ResumeDone.
struct DoResume {
  std::uint64_t attempt;
  std::optional<model::WeightVersion> version;  // that is live now
};
// Keep these snapshots, drop the others, and if asked capture half `half` -> RetainDone.
struct DoRetain {
  std::vector<model::WeightVersion> keep;
  std::optional<model::WeightVersion> capture;
  std::uint32_t half;
};
// Digest the live half at element grain -> DigestLiveDone.
struct DoDigestLive {
  std::uint32_t half;
};

using AgentAction = std::variant<DoOpenSource, DoServe, DoDigestSource, DoReleaseSource, DoOpenSink, DoJoin, DoPull,
                                 DoCancel, DoLeave, DoPause, DoExchange, DoResume, DoRetain, DoDigestLive>;

struct SourceOpenDone {
  model::UpdateId update;
  base::Result<SourceOpened> result;
};
struct SourceServeDone {
  model::UpdateId update;
  base::Status result;
};
struct SourceDigestDone {
  model::UpdateId update;
  base::Result<SourceStaged> result;
};
struct SourceReleaseDone {
  model::UpdateId update;
};
struct SinkOpenDone {
  base::Result<model::SinkManifest> result;
};
struct SinkJoinDone {
  model::UpdateId update;
  base::Result<std::vector<std::string>> channels;  // one a source
};
struct PullResult {
  std::vector<plan::Digest> slots;
  StageTimes times;
};
struct SinkPullDone {
  model::UpdateId update;
  base::Result<PullResult> result;
};
struct PauseDone {
  std::uint64_t attempt;
  base::Status result;
};
struct ExchangeDone {
  std::uint64_t attempt;
  base::Status result;
};
struct ResumeDone {
  std::uint64_t attempt;
};
struct RetainDone {
  std::vector<HeldVersion> held;
  std::optional<base::Error> error;
};
struct DigestLiveDone {
  base::Result<std::vector<SlotDigest>> result;
};

using AgentEvent =
    std::variant<SourceOpenDone, SourceServeDone, SourceDigestDone, SourceReleaseDone, SinkOpenDone, SinkJoinDone,
                 SinkPullDone, PauseDone, ExchangeDone, ResumeDone, RetainDone, DigestLiveDone>;

struct AgentOutput {
  std::optional<AgentState> save;
  std::vector<Envelope> send;
  std::vector<AgentAction> perform;
  std::vector<Observation> observe;
  std::optional<base::Error> fatal;  // the process is to end, saying this
};

}  // namespace weightbus::protocol
