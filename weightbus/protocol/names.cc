// The names of messages and enumerants, for logs, metrics and --json output.
#include <variant>

#include "weightbus/protocol/messages.h"
#include "weightbus/protocol/types.h"

namespace weightbus::protocol {
namespace {

// One overload a message, so that a new one without a name does not compile.
struct NameOf {
  const char* operator()(const Hello&) const { return "hello"; }
  const char* operator()(const Welcome&) const { return "welcome"; }
  const char* operator()(const Rejected&) const { return "rejected"; }
  const char* operator()(const Heartbeat&) const { return "heartbeat"; }
  const char* operator()(const SetQuarantine&) const { return "set_quarantine"; }
  const char* operator()(const OpenSource&) const { return "open_source"; }
  const char* operator()(const SourceOpened&) const { return "source_opened"; }
  const char* operator()(const PrepareSource&) const { return "prepare_source"; }
  const char* operator()(const SourcePartMessage&) const { return "source_part_message"; }
  const char* operator()(const StageSource&) const { return "stage_source"; }
  const char* operator()(const SourceStaged&) const { return "source_staged"; }
  const char* operator()(const Release&) const { return "release"; }
  const char* operator()(const Released&) const { return "released"; }
  const char* operator()(const OpenSink&) const { return "open_sink"; }
  const char* operator()(const SinkOpened&) const { return "sink_opened"; }
  const char* operator()(const PrepareSink&) const { return "prepare_sink"; }
  const char* operator()(const SinkPartMessage&) const { return "sink_part_message"; }
  const char* operator()(const NeedPart&) const { return "need_part"; }
  const char* operator()(const Prepared&) const { return "prepared"; }
  const char* operator()(const StageSink&) const { return "stage_sink"; }
  const char* operator()(const Staged&) const { return "staged"; }
  const char* operator()(const Failed&) const { return "failed"; }
  const char* operator()(const Abort&) const { return "abort"; }
  const char* operator()(const Aborted&) const { return "aborted"; }
  const char* operator()(const Commit&) const { return "commit"; }
  const char* operator()(const Committed&) const { return "committed"; }
  const char* operator()(const CommitFailed&) const { return "commit_failed"; }
  const char* operator()(const RankPause&) const { return "rank_pause"; }
  const char* operator()(const RankPaused&) const { return "rank_paused"; }
  const char* operator()(const RankExchange&) const { return "rank_exchange"; }
  const char* operator()(const RankExchanged&) const { return "rank_exchanged"; }
  const char* operator()(const RankResume&) const { return "rank_resume"; }
  const char* operator()(const RankResumed&) const { return "rank_resumed"; }
  const char* operator()(const RankFailed&) const { return "rank_failed"; }
  const char* operator()(const Retain&) const { return "retain"; }
  const char* operator()(const Retained&) const { return "retained"; }
  const char* operator()(const DigestLive&) const { return "digest_live"; }
  const char* operator()(const LiveDigests&) const { return "live_digests"; }
  const char* operator()(const PublishRequest&) const { return "publish_request"; }
  const char* operator()(const RollbackRequest&) const { return "rollback_request"; }
  const char* operator()(const StatusRequest&) const { return "status_request"; }
  const char* operator()(const PinRequest&) const { return "pin_request"; }
  const char* operator()(const AbortRequest&) const { return "abort_request"; }
  const char* operator()(const EvictRequest&) const { return "evict_request"; }
  const char* operator()(const AdoptRequest&) const { return "adopt_request"; }
  const char* operator()(const VerifyRequest&) const { return "verify_request"; }
  const char* operator()(const DiffRequest&) const { return "diff_request"; }
  const char* operator()(const UpdateAccepted&) const { return "update_accepted"; }
  const char* operator()(const Done&) const { return "done"; }
  const char* operator()(const ModelStatus&) const { return "model_status"; }
  const char* operator()(const VerifyReply&) const { return "verify_reply"; }
  const char* operator()(const DiffReply&) const { return "diff_reply"; }
  const char* operator()(const ErrorReply&) const { return "error_reply"; }
};

}  // namespace

const char* body_name(const Body& body) noexcept { return std::visit(NameOf{}, body); }

const char* phase_name(Phase phase) noexcept {
  switch (phase) {
    case Phase::kQueued: return "queued";
    case Phase::kAnnounced: return "announced";
    case Phase::kPlanned: return "planned";
    case Phase::kAccepted: return "accepted";
    case Phase::kStaging: return "staging";
    case Phase::kStaged: return "staged";
    case Phase::kCommitting: return "committing";
    case Phase::kCommitted: return "committed";
    case Phase::kAborting: return "aborting";
    case Phase::kAborted: return "aborted";
  }
  return "unknown";
}

const char* update_kind_name(UpdateKind kind) noexcept {
  switch (kind) {
    case UpdateKind::kPush: return "push";
    case UpdateKind::kRollback: return "rollback";
    case UpdateKind::kCatchUp: return "catch_up";
  }
  return "unknown";
}

const char* commit_way_name(CommitWay way) noexcept {
  switch (way) {
    case CommitWay::kRemap: return "remap";
    case CommitWay::kSwap: return "swap";
    case CommitWay::kCopy: return "copy";
    case CommitWay::kDirect: return "direct";
  }
  return "unknown";
}

}  // namespace weightbus::protocol
