// Every control message as a value. schemas/sync.capnp and admin.capnp are the wire specification of the same messages;
// wire/ converts. Each says who sends it, when, and what a repeat does: all are idempotent, since the sender repeats a
// request until it is answered or its deadline is over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/model/ids.h"
#include "weightbus/model/manifest.h"
#include "weightbus/model/roster.h"
#include "weightbus/plan/plan.h"
#include "weightbus/protocol/status.h"
#include "weightbus/protocol/types.h"

namespace weightbus::protocol {

// ---------------------------------------------------------------- membership: agent <-> coordinator

// Agent -> coordinator: on every connection, and repeated until Welcome or Rejected. Says who it is and what it holds.
struct Hello {
  model::Member member;
  model::BootId boot;
  std::uint32_t protocol_revision = kProtocolRevision;
  std::string software;                     // "weightbus 0.1.0"
  model::Epoch known_epoch;                 // highest it has obeyed; a zero journal if none
  std::uint64_t highest_version = 0;        // highest version number it has seen on that journal
  std::vector<Half> halves;                 // engine agents: live first, then the shadow; empty before an arena exists
  std::optional<model::UpdateId> running;   // the update it has not finished
  std::vector<HeldVersion> held;            // snapshots
  std::optional<model::SinkManifest> sink;  // engine agents whose arena or engine exists
};

// Coordinator -> agent: answer to Hello.
struct Welcome {
  std::uint32_t heartbeat_interval_ms = 0;
  std::uint32_t serve_stale_ms = 0;   // readiness ends this long after the last message of the coordinator
  bool quarantined = false;           // must not report ready
  std::vector<model::Member> engine;  // engine agents: every known rank of its engine
};

// Coordinator -> agent: Hello (or a heartbeat of an unknown member) is refused. `stale`: say Hello again at once;
// `conflict`, `unavailable` (another journal, a taken place): again in a second; any other reason is for good, and the
// agent ends.
struct Rejected {
  base::Error error;
};

// Agent -> coordinator, every heartbeat interval: alive, and how far.
struct Heartbeat {
  model::BootId boot;
  std::uint64_t bytes_done = 0;  // of the running update
  std::uint64_t readers = 0;     // attached clients
  std::vector<Half> halves;      // engine agents: live first, then the shadow
};

// Coordinator -> engine agent: the quarantine begins or ends; repeated in each Welcome.
struct SetQuarantine {
  bool quarantined;
};

// ---------------------------------------------------------------- source role: coordinator <-> shard agent, or engine
// agent

// Coordinator -> source, in `announced`: open what the update reads. Repeat: answers again.
struct OpenSource {
  SourceSpec source;
  std::uint32_t deadline_ms = 0;
};
// Source -> coordinator.
struct SourceOpened {
  model::SourceManifest manifest;
  std::vector<ChannelOffer> offers;
};
// Coordinator -> source, in `accepted`: agree on the part. Answer: NeedPart, or Prepared with the same hashes.
struct PrepareSource {
  base::Hash128 plan_hash;
  base::Hash128 part_hash;
  std::uint32_t deadline_ms = 0;
};
// Coordinator -> source: answer to NeedPart.
struct SourcePartMessage {
  plan::SourcePart part;
};
// Coordinator -> source, in `staging`: serve the buckets and compute the digests.
struct StageSource {
  std::uint32_t deadline_ms = 0;
};
// Source -> coordinator: digests in the order of SourcePart::units; `element` are the same at element grain.
struct SourceStaged {
  std::vector<plan::Digest> units;
  std::vector<plan::Digest> element;
};
// Coordinator -> source: staged everywhere; the memory is the owner's again. Answer: Released, after the last read.
struct Release {};
struct Released {};

// ---------------------------------------------------------------- sink role: coordinator <-> engine agent

// Coordinator -> engine agent, in `announced`: have an arena for these tensors. One that exists stays as it is.
struct OpenSink {
  std::vector<model::TensorSpec> tensors;  // the union over sources
  std::vector<model::Alias> aliases;
  std::uint32_t deadline_ms = 0;
};
// Engine agent -> coordinator.
struct SinkOpened {
  model::SinkManifest manifest;
  std::vector<Half> halves;
  CommitWay way = CommitWay::kRemap;
};
// Coordinator -> engine agent, in `accepted`: reserve the shadow, map the sources, agree on the part.
struct PrepareSink {
  base::Hash128 plan_hash;
  base::Hash128 part_hash;
  Tag tag;                          // what the shadow will hold
  std::vector<SourcePeer> sources;  // every source of its buckets
  std::uint32_t deadline_ms = 0;
};
// Coordinator -> engine agent: answer to NeedPart.
struct SinkPartMessage {
  plan::SinkPart part;
};
// Either role -> coordinator: I do not have the part with this hash.
struct NeedPart {
  SessionRole role;
  base::Hash128 plan_hash;
};
// Either role -> coordinator: ready to stage. `channels`: of a sink, the chosen channel for each source.
struct Prepared {
  SessionRole role;
  base::Hash128 plan_hash;
  base::Hash128 part_hash;
  std::vector<std::string> channels;
};
// Coordinator -> engine agent, in `staging`: fill the shadow.
struct StageSink {
  std::uint32_t deadline_ms = 0;
};
// Engine agent -> coordinator: every write has drained; digests of what was written, in the order of SinkPart::slots.
struct Staged {
  Tag tag;
  std::vector<plan::Digest> slots;
  StageTimes times;
};

// ---------------------------------------------------------------- ends of an update

// Either role -> coordinator: it cannot. Before the decision this aborts the update (or drops the engine).
struct Failed {
  SessionRole role;
  base::Error error;
};
// Coordinator -> everyone in the update, before the decision. Answer: Aborted, once all writes have drained.
struct Abort {
  base::Error reason;
};
struct Aborted {};

// Coordinator -> driver, after the decision: exchange these halves in, on all ranks of the engine.
struct Commit {
  model::WeightVersion version;
  std::vector<RankTag> ranks;  // all ranks, the driver first, each with the tag of the half that it is to exchange in
  std::uint32_t pause_deadline_ms = 0;
};
// Driver -> coordinator: every rank computes with `version`.
struct Committed {
  model::WeightVersion version;
  std::uint64_t pause_ns = 0;  // from the first rank asked to pause to the last one resumed
  CommitWay way = CommitWay::kRemap;
};
// Driver -> coordinator: not exchanged, or not on every rank; the engine is to be quarantined.
struct CommitFailed {
  base::Error error;
};

// ---------------------------------------------------------------- driver <-> ranks of one engine (agents among
// themselves)
//
// An attempt is the driver's own number for one try at one Commit; it only grows, over restarts too. A rank that is
// paused repeats RankPaused; a driver that does not know the attempt (any more) answers RankResume, so that no rank
// waits for ever.

// Driver -> rank: close the launch gate before the next step. Answer: RankPaused, or RankFailed.
struct RankPause {
  std::uint64_t attempt = 0;
  std::uint32_t deadline_ms = 0;
};
struct RankPaused {
  std::uint64_t attempt = 0;
};
// Driver -> rank, once all have paused. Answer: RankExchanged, or RankFailed. A rank that already computes with `tag`
// answers RankExchanged; one that is not paused (it was restarted) pauses first.
struct RankExchange {
  std::uint64_t attempt = 0;
  Tag tag;
};
struct RankExchanged {
  std::uint64_t attempt = 0;
};
// Driver -> rank, once all have exchanged (or none will). Answer: RankResumed.
struct RankResume {
  std::uint64_t attempt = 0;
};
struct RankResumed {
  std::uint64_t attempt = 0;
};
struct RankFailed {
  std::uint64_t attempt = 0;
  base::Error error;
};

// ---------------------------------------------------------------- retention

// Coordinator -> engine agent, after a commit and whenever it changes: which versions to keep as snapshots, and which
// of them to capture now from the live half. Everything else is retired. Answer: Retained.
struct Retain {
  std::vector<model::WeightVersion> keep;
  std::optional<model::WeightVersion> capture;
};
struct Retained {
  std::vector<HeldVersion> held;
  std::optional<base::Error> error;  // of the capture
};

// Coordinator -> engine agent: digest the live slots at element grain (for `weightbus verify`). Answer: LiveDigests.
struct DigestLive {};
struct LiveDigests {
  std::optional<Tag> live;
  std::vector<SlotDigest> slots;
};

// ---------------------------------------------------------------- command line (or trainer) <-> coordinator

// Replies carry the request's `request` number. A repeated request with the same sender and number is answered with the
// same update; it never starts a second one.
struct PublishRequest {
  SourceSpec source;
  bool queue = false;             // wait for a running update instead of being refused
  bool dry_run = false;           // plan, report, and end
  std::uint32_t require = 0;      // 0: all engines; else at least so many
  std::uint64_t step = 0;         // the trainer's step, for people; 0 if none
  std::uint32_t deadline_ms = 0;  // of the whole update; 0: the coordinator's setting
};
struct RollbackRequest {
  std::optional<model::WeightVersion> to;  // the version before, unless given
};
struct StatusRequest {};
struct PinRequest {
  model::WeightVersion version;
  bool pinned;
};
struct AbortRequest {};
struct EvictRequest {
  model::MemberId member;
};
struct AdoptRequest {};
struct VerifyRequest {};
struct DiffRequest {
  model::WeightVersion from;
  model::WeightVersion to;
};

struct UpdateAccepted {
  model::UpdateId update;
  model::WeightVersion target;
  bool queued = false;
};
struct Done {};  // pin, abort, evict, adopt
struct VerifyReply {
  std::vector<EngineDigests> engines;  // one a rank
};
struct DiffReply {
  std::vector<std::string> changed;
  std::vector<std::string> added;
  std::vector<std::string> removed;
  std::uint64_t unchanged = 0;
};
struct ErrorReply {
  base::Error error;
};

using Body =
    std::variant<Hello, Welcome, Rejected, Heartbeat, SetQuarantine, OpenSource, SourceOpened, PrepareSource,
                 SourcePartMessage, StageSource, SourceStaged, Release, Released, OpenSink, SinkOpened, PrepareSink,
                 SinkPartMessage, NeedPart, Prepared, StageSink, Staged, Failed, Abort, Aborted, Commit, Committed,
                 CommitFailed, RankPause, RankPaused, RankExchange, RankExchanged, RankResume, RankResumed, RankFailed,
                 Retain, Retained, DigestLive, LiveDigests, PublishRequest, RollbackRequest, StatusRequest, PinRequest,
                 AbortRequest, EvictRequest, AdoptRequest, VerifyRequest, DiffRequest, UpdateAccepted, Done,
                 ModelStatus, VerifyReply, DiffReply, ErrorReply>;

// The lower-case name of a body's type, for logs and metrics ("prepare_sink").
const char* body_name(const Body& body) noexcept;

// What every message carries. A message of an older epoch, or of another update, changes nothing.
struct Envelope {
  model::Epoch epoch;  // the sender's; zero journal before Welcome and from command lines
  model::ModelName model;
  std::optional<model::UpdateId> update;  // absent for membership, retention and admin messages
  model::MemberId from;
  model::MemberId to;
  std::uint64_t request = 0;  // admin requests and their replies; otherwise 0
  Body body;
};

}  // namespace weightbus::protocol
