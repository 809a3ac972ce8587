// Every alternative of protocol::Body with its member of the union in schemas/sync.capnp.
//   WB_BODY(type, Field, FIELD): `type` in both namespaces, protocol and proto.
#pragma once

#define WB_FOR_EACH_BODY(WB_BODY)                             \
  WB_BODY(Hello, Hello, HELLO)                                \
  WB_BODY(Welcome, Welcome, WELCOME)                          \
  WB_BODY(Rejected, Rejected, REJECTED)                       \
  WB_BODY(Heartbeat, Heartbeat, HEARTBEAT)                    \
  WB_BODY(SetQuarantine, SetQuarantine, SET_QUARANTINE)       \
  WB_BODY(OpenSource, OpenSource, OPEN_SOURCE)                \
  WB_BODY(SourceOpened, SourceOpened, SOURCE_OPENED)          \
  WB_BODY(PrepareSource, PrepareSource, PREPARE_SOURCE)       \
  WB_BODY(SourcePartMessage, SourcePart, SOURCE_PART)         \
  WB_BODY(StageSource, StageSource, STAGE_SOURCE)             \
  WB_BODY(SourceStaged, SourceStaged, SOURCE_STAGED)          \
  WB_BODY(Release, Release, RELEASE)                          \
  WB_BODY(Released, Released, RELEASED)                       \
  WB_BODY(OpenSink, OpenSink, OPEN_SINK)                      \
  WB_BODY(SinkOpened, SinkOpened, SINK_OPENED)                \
  WB_BODY(PrepareSink, PrepareSink, PREPARE_SINK)             \
  WB_BODY(SinkPartMessage, SinkPart, SINK_PART)               \
  WB_BODY(NeedPart, NeedPart, NEED_PART)                      \
  WB_BODY(Prepared, Prepared, PREPARED)                       \
  WB_BODY(StageSink, StageSink, STAGE_SINK)                   \
  WB_BODY(Staged, Staged, STAGED)                             \
  WB_BODY(Failed, Failed, FAILED)                             \
  WB_BODY(Abort, Abort, ABORT)                                \
  WB_BODY(Aborted, Aborted, ABORTED)                          \
  WB_BODY(Commit, Commit, COMMIT)                             \
  WB_BODY(Committed, Committed, COMMITTED)                    \
  WB_BODY(CommitFailed, CommitFailed, COMMIT_FAILED)          \
  WB_BODY(RankPause, RankPause, RANK_PAUSE)                   \
  WB_BODY(RankPaused, RankPaused, RANK_PAUSED)                \
  WB_BODY(RankExchange, RankExchange, RANK_EXCHANGE)          \
  WB_BODY(RankExchanged, RankExchanged, RANK_EXCHANGED)       \
  WB_BODY(RankResume, RankResume, RANK_RESUME)                \
  WB_BODY(RankResumed, RankResumed, RANK_RESUMED)             \
  WB_BODY(RankFailed, RankFailed, RANK_FAILED)                \
  WB_BODY(Retain, Retain, RETAIN)                             \
  WB_BODY(Retained, Retained, RETAINED)                       \
  WB_BODY(DigestLive, DigestLive, DIGEST_LIVE)                \
  WB_BODY(LiveDigests, LiveDigests, LIVE_DIGESTS)             \
  WB_BODY(PublishRequest, PublishRequest, PUBLISH_REQUEST)    \
  WB_BODY(RollbackRequest, RollbackRequest, ROLLBACK_REQUEST) \
  WB_BODY(StatusRequest, StatusRequest, STATUS_REQUEST)       \
  WB_BODY(PinRequest, PinRequest, PIN_REQUEST)                \
  WB_BODY(AbortRequest, AbortRequest, ABORT_REQUEST)          \
  WB_BODY(EvictRequest, EvictRequest, EVICT_REQUEST)          \
  WB_BODY(AdoptRequest, AdoptRequest, ADOPT_REQUEST)          \
  WB_BODY(VerifyRequest, VerifyRequest, VERIFY_REQUEST)       \
  WB_BODY(DiffRequest, DiffRequest, DIFF_REQUEST)             \
  WB_BODY(UpdateAccepted, UpdateAccepted, UPDATE_ACCEPTED)    \
  WB_BODY(Done, Done, DONE)                                   \
  WB_BODY(ModelStatus, ModelStatus, MODEL_STATUS)             \
  WB_BODY(VerifyReply, VerifyReply, VERIFY_REPLY)             \
  WB_BODY(DiffReply, DiffReply, DIFF_REPLY)                   \
  WB_BODY(ErrorReply, ErrorReply, ERROR_REPLY)

// The same for protocol::JournalRecord and schemas/journal.capnp.
#define WB_FOR_EACH_RECORD(WB_RECORD)                           \
  WB_RECORD(NumbersReserved, NumbersReserved, NUMBERS_RESERVED) \
  WB_RECORD(Decided, Decided, DECIDED)                          \
  WB_RECORD(Ended, Ended, ENDED)                                \
  WB_RECORD(Pinned, Pinned, PINNED)                             \
  WB_RECORD(Adopted, Adopted, ADOPTED)                          \
  WB_RECORD(Evicted, Evicted, EVICTED)
