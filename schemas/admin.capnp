@0xe3c40b91d27f8a65;
# What command lines and trainers ask the coordinator, and what it answers.
#
# Every request carries a number (Envelope.request) that its sender draws anew for each thing it wants, and sends again
# with each repeat. The reply carries the same number. A repeated request with the same sender and number is answered
# with the same update: it never starts a second one. A request that is refused is answered with ErrorReply.
# Envelope.model names the model; Envelope.epoch is zero in requests, the coordinator's in replies.
#
# Reports are for people and programs that watch: they are as of the moment of the answer, and change nothing.

using Cxx = import "/capnp/c++.capnp";
using Common = import "common.capnp";
$Cxx.namespace("weightbus::wire::proto");

# ------------------------------------------------------------------------------------------------ requests

struct PublishRequest {
  # Take the source's weights as a new version and bring every engine to it. Answer: UpdateAccepted, long before it ends;
  # `conflict` while another update runs, unless `queue`.
  source @0 :Common.SourceSpec;  # checkpoint or trainer
  queue @1 :Bool;                # wait for a running update instead of being refused
  dryRun @2 :Bool;               # plan, report in UpdateStatus.plan, and end without moving a byte
  require @3 :UInt32;            # 0: all engines; otherwise at least so many
  step @4 :UInt64;               # the trainer's step, for people; 0 if none
  deadlineMs @5 :UInt32;         # of the whole update; 0: the coordinator's setting
}

struct RollbackRequest {
  # Bring every engine to an older version. Aborts a running update before its decision; queues after it. Answer:
  # UpdateAccepted; `notFound` for an unknown version, `unavailable` for one that nobody holds.
  hasTo @0 :Bool;
  to @1 :UInt64;                 # the version before, unless given
}

struct StatusRequest {
  # Answer: ModelStatus.
}

struct PinRequest {
  # Keep a version from retirement, or stop keeping it. Answer: Done.
  version @0 :UInt64;
  pinned @1 :Bool;
}

struct AbortRequest {
  # Abort the running update. Answer: Done once it is aborting; `conflict` after its decision, `notFound` if none runs.
}

struct EvictRequest {
  # Leave a member out until it is started anew. Answer: Done.
  member @0 :Text;
}

struct AdoptRequest {
  # Take over members of another journal. Answer: Done; numbers go on above all that the members report.
}

struct VerifyRequest {
  # Digest what every engine serves. Answer: VerifyReply.
}

struct DiffRequest {
  # Compare the digests of two versions, tensor by tensor. Answer: DiffReply.
  from @0 :UInt64;
  to @1 :UInt64;
}

# ------------------------------------------------------------------------------------------------ replies

struct UpdateAccepted {
  update @0 :UInt64;
  target @1 :UInt64;             # the version that it brings
  queued @2 :Bool;
}

struct Done {
  # The answer to pin, abort, evict and adopt.
}

struct VerifyReply {
  engines @0 :List(EngineDigests);
}

struct EngineDigests {
  # One engine rank.
  member @0 :Text;
  engine @1 :Text;
  live @2 :Common.Tag;           # absent: no live version
  slots @3 :List(Common.SlotDigest);
}

struct DiffReply {
  # Tensor names.
  changed @0 :List(Text);
  added @1 :List(Text);
  removed @2 :List(Text);
  unchanged @3 :UInt64;          # how many
}

struct ErrorReply {
  error @0 :Common.Error;
}

# ------------------------------------------------------------------------------------------------ reports

struct PhaseTime {
  phase @0 :Common.Phase;
  durationNs @1 :UInt64;         # spent in it so far
}

struct EngineResult {
  engine @0 :Text;
  required @1 :Bool;
  instant @2 :Bool;              # its shadow held the target: no transfer
  committed @3 :Bool;
  bytesTotal @4 :UInt64;         # over its ranks
  bytesDone @5 :UInt64;
  pauseNs @6 :UInt64;
  channels @7 :Text;             # "shm", or "shm,tcp"
  way @8 :Text;                  # "remap"
  error @9 :Text;                # empty: none
}

struct PlanLink {
  source @0 :Text;               # member ids
  sink @1 :Text;
  channel @2 :Text;
  bytes @3 :UInt64;
  buckets @4 :UInt32;
}

struct PlanReport {
  hash @0 :Common.Hash128;
  bytes @1 :UInt64;
  tensors @2 :UInt64;
  arenaBytes @3 :UInt64;         # both halves, all ranks
  links @4 :List(PlanLink);
  warnings @5 :List(Text);
}

struct UpdateStatus {
  update @0 :UInt64;
  kind @1 :Common.UpdateKind;
  phase @2 :Common.Phase;
  hasBase @3 :Bool;
  base @4 :UInt64;               # the version committed before it
  target @5 :UInt64;
  startedUnixMs @6 :UInt64;
  step @7 :UInt64;
  source @8 :Text;               # "checkpoint /data/x", "snapshot of 3"
  phases @9 :List(PhaseTime);
  bytesTotal @10 :UInt64;
  bytesDone @11 :UInt64;
  digestsCompared @12 :UInt64;
  instant @13 :Bool;             # no engine needed a transfer
  engines @14 :List(EngineResult);
  error @15 :Common.Error;       # absent: none
  plan @16 :PlanReport;          # dry runs, and once planned; otherwise absent
}

struct VersionStatus {
  version @0 :UInt64;
  committed @1 :Bool;            # now
  available @2 :Bool;            # someone holds it
  pinned @3 :Bool;
  bytes @4 :UInt64;
  createdUnixMs @5 :UInt64;
  step @6 :UInt64;
  source @7 :Text;
  holders @8 :List(Text);        # "engine-0/tp0 live"
  rollbackCost @9 :Text;         # "instant", "transfer", "unavailable", "live"
}

struct MemberStatus {
  member @0 :Common.Member;
  connected @1 :Bool;
  quarantined @2 :Bool;
  heartbeatAgeMs @3 :UInt64;
  readers @4 :UInt64;
  live @5 :Common.Tag;           # absent: none
  shadow @6 :Common.Tag;         # absent: none
  software @7 :Text;
}

struct Event {
  sequence @0 :UInt64;           # grows by one with each event of a coordinator's start
  unixMs @1 :UInt64;
  text @2 :Text;
}

struct ModelStatus {
  # Coordinator -> command line: answer to StatusRequest.
  model @0 :Text;
  epoch @1 :Common.Epoch;
  needsAdopt @2 :Bool;
  hasCommitted @3 :Bool;
  committed @4 :UInt64;          # the committed version
  running @5 :UpdateStatus;      # absent: none
  recent @6 :List(UpdateStatus); # newest first, at most 32
  versions @7 :List(VersionStatus);
  members @8 :List(MemberStatus);
  events @9 :List(Event);        # the last 64
}
