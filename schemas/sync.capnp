@0xa6b9d8e0f4573c12;
# What the coordinator and its agents say to one another, and the envelope that every control message travels in.
#
# Delivery
#   Frames may be lost, delayed, reordered and repeated. The sender of a request repeats it until it is answered or its
#   deadline is over; so every message here may arrive more than once, and a repeat changes nothing twice: it is answered
#   again, with the same content as long as the state is the same.
#
# Epochs and updates
#   An agent obeys the highest epoch that it has seen on its journal, and drops messages of older ones. A coordinator of
#   another journal than the agent's is refused until `weightbus adopt`. A message whose update is not the one that runs
#   at the receiver changes nothing; where its sender waits for an answer that the receiver can give (the update has ended
#   there), it is given: Aborted after an abort, Committed after a commit.
#
# Membership: Hello, Welcome, Rejected, Heartbeat, SetQuarantine carry no update.
# An update's messages, from OpenSource to CommitFailed and the Rank family, do. Retention and admin messages do not.

using Cxx = import "/capnp/c++.capnp";
using Common = import "common.capnp";
using Admin = import "admin.capnp";
$Cxx.namespace("weightbus::wire::proto");

struct Envelope {
  revision @0 :UInt16;      # of this protocol: 1. A receiver refuses one that it does not speak
  epoch @1 :Common.Epoch;   # the sender's
  model @2 :Text;           # namespace of versions and members
  hasUpdate @3 :Bool;
  update @4 :UInt64;        # never reused; only with hasUpdate
  from @5 :Text;            # member ids. A receiver checks `from` against the connection's key
  to @6 :Text;
  request @7 :UInt64;       # admin requests and their replies, unique for their sender; otherwise 0

  body :union {
    unset @8 :Void;         # never sent

    hello @9 :Hello;
    welcome @10 :Welcome;
    rejected @11 :Rejected;
    heartbeat @12 :Heartbeat;
    setQuarantine @13 :SetQuarantine;

    openSource @14 :OpenSource;
    sourceOpened @15 :SourceOpened;
    prepareSource @16 :PrepareSource;
    sourcePart @17 :SourcePartMessage;
    stageSource @18 :StageSource;
    sourceStaged @19 :SourceStaged;
    release @20 :Release;
    released @21 :Released;

    openSink @22 :OpenSink;
    sinkOpened @23 :SinkOpened;
    prepareSink @24 :PrepareSink;
    sinkPart @25 :SinkPartMessage;
    needPart @26 :NeedPart;
    prepared @27 :Prepared;
    stageSink @28 :StageSink;
    staged @29 :Staged;

    failed @30 :Failed;
    abort @31 :Abort;
    aborted @32 :Aborted;
    commit @33 :Commit;
    committed @34 :Committed;
    commitFailed @35 :CommitFailed;

    rankPause @36 :RankPause;
    rankPaused @37 :RankPaused;
    rankExchange @38 :RankExchange;
    rankExchanged @39 :RankExchanged;
    rankResume @40 :RankResume;
    rankResumed @41 :RankResumed;
    rankFailed @42 :RankFailed;

    retain @43 :Retain;
    retained @44 :Retained;
    digestLive @45 :DigestLive;
    liveDigests @46 :LiveDigests;

    publishRequest @47 :Admin.PublishRequest;
    rollbackRequest @48 :Admin.RollbackRequest;
    statusRequest @49 :Admin.StatusRequest;
    pinRequest @50 :Admin.PinRequest;
    abortRequest @51 :Admin.AbortRequest;
    evictRequest @52 :Admin.EvictRequest;
    adoptRequest @53 :Admin.AdoptRequest;
    verifyRequest @54 :Admin.VerifyRequest;
    diffRequest @55 :Admin.DiffRequest;
    updateAccepted @56 :Admin.UpdateAccepted;
    done @57 :Admin.Done;
    modelStatus @58 :Admin.ModelStatus;
    verifyReply @59 :Admin.VerifyReply;
    diffReply @60 :Admin.DiffReply;
    errorReply @61 :Admin.ErrorReply;
  }
}

# ------------------------------------------------------------------------------------------------ membership

struct Hello {
  # Agent -> coordinator. On every connection, repeated until Welcome or Rejected. It replaces what was known of the
  # member; a Hello of an older boot is dropped. The coordinator answers each one.
  member @0 :Common.Member;
  boot @1 :UInt64;                     # one start of one process; a restart draws another
  protocolRevision @2 :UInt32;         # the newest that it speaks
  software @3 :Text;                   # "weightbus 0.1.0"; for people
  knownEpoch @4 :Common.Epoch;         # highest that it has obeyed; a zero journal if none
  highestVersion @5 :UInt64;           # highest version number it has seen on that journal; 0 if none
  halves @6 :List(Common.Half);        # engine agents: live first, then the shadow; empty before an arena exists
  hasRunning @7 :Bool;
  running @8 :UInt64;                  # the update that it has not finished
  held @9 :List(Common.HeldVersion);   # its snapshots
  sink @10 :Common.SinkManifest;       # engine agents whose arena or engine exists; otherwise absent
}

struct Welcome {
  # Coordinator -> agent. Answer to Hello; holds until the next one.
  heartbeatIntervalMs @0 :UInt32;
  serveStaleMs @1 :UInt32;             # readiness ends this long after the last message of the coordinator
  quarantined @2 :Bool;                # must not report ready
  engine @3 :List(Common.Member);      # engine agents: every known rank of its engine
}

struct Rejected {
  # Coordinator -> agent. Hello refused for good: its revision, its journal, a name that is taken. The agent ends.
  error @0 :Common.Error;
}

struct Heartbeat {
  # Agent -> coordinator, once every heartbeat interval. Answered by Welcome, or by Rejected from a coordinator that
  # does not know the agent; not repeated: the next one replaces it. One of
  # another boot than the last Hello's is dropped.
  boot @0 :UInt64;
  bytesDone @1 :UInt64;                # of the running update, since its start
  readers @2 :UInt64;                  # attached clients
  halves @3 :List(Common.Half);        # engine agents: live first, then the shadow
}

struct SetQuarantine {
  # Coordinator -> engine agent, when the quarantine begins or ends. Not answered; the next Welcome says it again.
  quarantined @0 :Bool;
}

# ------------------------------------------------------------------------------------------------ the source role

struct OpenSource {
  # Coordinator -> source, in `announced`: open what the update reads, and keep it until the update ends. Answer:
  # SourceOpened or Failed. A repeat answers again and opens nothing twice.
  source @0 :Common.SourceSpec;
  deadlineMs @1 :UInt32;
}

struct SourceOpened {
  # Source -> coordinator.
  manifest @0 :Common.SourceManifest;
  offers @1 :List(Common.ChannelOffer);  # valid until the update ends
}

struct PrepareSource {
  # Coordinator -> source, in `accepted`: agree on the part. Answer: Prepared with the same hashes, NeedPart when the
  # part is not known, or Failed.
  planHash @0 :Common.Hash128;
  partHash @1 :Common.Hash128;
  deadlineMs @2 :UInt32;
}

struct SourcePartMessage {
  # Coordinator -> source: answer to NeedPart. The source keeps it for later updates, checks its hash, and goes on with
  # PrepareSource.
  part @0 :Common.SourcePart;
}

struct StageSource {
  # Coordinator -> source, in `staging`: serve the buckets and compute the digests. Answer: SourceStaged or Failed.
  deadlineMs @0 :UInt32;
}

struct SourceStaged {
  # Source -> coordinator. Digests as pairs of numbers (lane 0, lane 1), in the order of SourcePart.units.
  units @0 :List(UInt64);
  element @1 :List(UInt64);            # the same at element grain: the version's second digest
}

struct Release {
  # Coordinator -> source: staged everywhere; the memory is its owner's again. Answer: Released.
}

struct Released {
  # Source -> coordinator, after the last read.
}

# ------------------------------------------------------------------------------------------------ the sink role

struct OpenSink {
  # Coordinator -> engine agent, in `announced`: have an arena for these tensors. One that exists stays as it is.
  # Answer: SinkOpened or Failed.
  tensors @0 :List(Common.TensorSpec);  # the union over sources
  aliases @1 :List(Common.Alias);
  deadlineMs @2 :UInt32;
}

struct SinkOpened {
  # Engine agent -> coordinator.
  manifest @0 :Common.SinkManifest;
  halves @1 :List(Common.Half);         # live first, then the shadow
  way @2 :Common.CommitWay;             # the best that the sink allows
}

struct PrepareSink {
  # Coordinator -> engine agent, in `accepted`: reserve the shadow, map the sources, agree on the part. Answer: Prepared
  # with the same hashes, NeedPart, or Failed. Nothing is written yet.
  planHash @0 :Common.Hash128;
  partHash @1 :Common.Hash128;
  tag @2 :Common.Tag;                   # what the shadow will hold
  sources @3 :List(Common.SourcePeer);  # every source of its buckets
  deadlineMs @4 :UInt32;
}

struct SinkPartMessage {
  # Coordinator -> engine agent: answer to NeedPart. Kept for later updates, its hash checked.
  part @0 :Common.SinkPart;
}

enum SessionRole {
  # An engine agent may be both in one update: a source for a peer's catch-up, and a sink.
  unset @0;  # never sent
  source @1;
  sink @2;
}

struct NeedPart {
  # Source or sink -> coordinator: it does not have the part that Prepare names. Answer: the part.
  role @0 :SessionRole;
  planHash @1 :Common.Hash128;
}

struct Prepared {
  # Source or sink -> coordinator: ready to stage; the hashes are of the part that it holds.
  role @0 :SessionRole;
  planHash @1 :Common.Hash128;
  partHash @2 :Common.Hash128;
  channels @3 :List(Text);              # of a sink: the chosen channel for each source of PrepareSink, in its order
}

struct StageSink {
  # Coordinator -> engine agent, in `staging`: clear the shadow's tag, then fill it. Answer: Staged or Failed.
  deadlineMs @0 :UInt32;
}

struct Staged {
  # Engine agent -> coordinator: every write has drained. Digests of what was written, as pairs of numbers, in the order
  # of SinkPart.slots. An agent that voted Staged never aborts by itself.
  tag @0 :Common.Tag;
  slots @1 :List(UInt64);
  pullNs @2 :UInt64;                    # time of the pull
  digestNs @3 :UInt64;                  # time of the digests
  bytes @4 :UInt64;                     # written
}

# ------------------------------------------------------------------------------------------------ ends of an update

struct Failed {
  # Source or sink -> coordinator, instead of the answer to any request before Staged: it cannot. Before the decision
  # this aborts the update, or leaves the engine out. Repeated with each repeat of the request.
  role @0 :SessionRole;
  error @1 :Common.Error;
}

struct Abort {
  # Coordinator -> everyone in the update, before the decision only. Answer: Aborted, once all writes have drained. A
  # member that knows nothing of the update answers at once.
  reason @0 :Common.Error;
}

struct Aborted {
  # Source or sink -> coordinator: nothing of the update writes any more, and nothing of it is kept.
}

struct Commit {
  # Coordinator -> driver, after the decision: exchange these halves in, on all ranks of the engine. Repeated until
  # answered: Committed at once when every rank computes with its tag already; otherwise Committed or CommitFailed.
  version @0 :UInt64;
  ranks @1 :List(Common.RankTag);       # all ranks, the driver first
  pauseDeadlineMs @2 :UInt32;           # for all ranks to pause
}

struct Committed {
  # Driver -> coordinator: every rank computes with `version`.
  version @0 :UInt64;
  pauseNs @1 :UInt64;                   # from the first rank asked to pause to the last one resumed
  way @2 :Common.CommitWay;
}

struct CommitFailed {
  # Driver -> coordinator: not exchanged, or not on every rank. The engine is quarantined and catches up.
  error @0 :Common.Error;
}

# ------------------------------------------------------------------------------------------------ the ranks of one engine
#
# An attempt is the driver's own number for one try at one Commit; it only grows, over restarts too. A rank drops messages
# of an older attempt. A rank that is paused repeats RankPaused; a driver that does not know the attempt (any more) answers
# RankResume, so that no rank waits for ever.

struct RankPause {
  # Driver -> rank: close the launch gate before the next step. Answer: RankPaused or RankFailed.
  attempt @0 :UInt64;
  deadlineMs @1 :UInt32;
}

struct RankPaused {
  # Rank -> driver, repeated until RankExchange or RankResume.
  attempt @0 :UInt64;
}

struct RankExchange {
  # Driver -> rank, once all have paused. Answer: RankExchanged or RankFailed. A rank that computes with `tag` already
  # answers RankExchanged; one that is not paused (it was restarted) pauses first.
  attempt @0 :UInt64;
  tag @1 :Common.Tag;                   # of the half to exchange in; another is never exchanged
}

struct RankExchanged {
  # Rank -> driver.
  attempt @0 :UInt64;
}

struct RankResume {
  # Driver -> rank, once all have exchanged, or none will. Answer: RankResumed.
  attempt @0 :UInt64;
}

struct RankResumed {
  # Rank -> driver.
  attempt @0 :UInt64;
}

struct RankFailed {
  # Rank -> driver, instead of any of the three answers.
  attempt @0 :UInt64;
  error @1 :Common.Error;
}

# ------------------------------------------------------------------------------------------------ retention

struct Retain {
  # Coordinator -> engine agent, after a commit and whenever it changes: the whole list of versions to keep as snapshots.
  # Every other is retired. Answer: Retained. The newest one holds.
  keep @0 :List(UInt64);
  hasCapture @1 :Bool;
  capture @2 :UInt64;                   # the version to capture now from the live half; only if that is what is live
}

struct Retained {
  # Engine agent -> coordinator.
  held @0 :List(Common.HeldVersion);
  error @1 :Common.Error;               # of the capture; otherwise absent
}

struct DigestLive {
  # Coordinator -> engine agent: digest the live slots at element grain. Answer: LiveDigests.
}

struct LiveDigests {
  # Engine agent -> coordinator.
  live @0 :Common.Tag;                  # absent: no live version
  slots @1 :List(Common.SlotDigest);
}
