// The source role: a member whose memory an update reads. A shard agent has only this one; an engine agent has it too,
// for catch-up from its live half and for rollback from its snapshots.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "weightbus/protocol/agent_context.h"

namespace weightbus::protocol {

// Handles OpenSource, PrepareSource, SourcePartMessage, StageSource, Release; begin_end() for Abort.
// Every request may repeat; a session answers again what it answered before.
class SourceRole {
 public:
  explicit SourceRole(AgentContext& context) : context_(context) {}

  void open(model::UpdateId update, const OpenSource& request);
  void prepare(model::UpdateId update, const PrepareSource& request);
  void part(model::UpdateId update, const SourcePartMessage& message);
  void stage(model::UpdateId update);
  void release(model::UpdateId update);
  // Starts to end the session of `update` or an older one; update numbers up to it are over for this role.
  void begin_end(model::UpdateId update);

  void done(const SourceOpenDone& event);
  void done(const SourceServeDone& event);
  void done(const SourceDigestDone& event);
  void done(const SourceReleaseDone& event);

  // Whether memory of `update` (or an older one) may still be read.
  bool active(model::UpdateId update) const { return session_ && session_->update <= update; }
  std::optional<model::UpdateId> running() const;
  // The snapshot that the open session reads: not to be retired meanwhile.
  std::optional<model::WeightVersion> snapshot() const;
  // See SinkRole::forget().
  void forget();

 private:
  enum class Stage : std::uint8_t { kOpening, kOpen, kServing, kPrepared, kDigesting, kStaged, kReleasing };
  struct Session {
    model::UpdateId update;
    SourceSpec spec;
    Stage stage = Stage::kOpening;
    bool answer_released = false;  // ended by Release, not by Abort
    std::optional<SourceOpened> opened;
    std::optional<PrepareSource> wanted;
    std::shared_ptr<const plan::SourcePart> part;
    std::optional<SourceStaged> staged;
    std::optional<base::Error> failed;
  };

  Session* current(model::UpdateId update, const char* what);
  void fail(Session& session, base::Error error);
  void start_serving(Session& session);
  void end(bool answer_released);

  AgentContext& context_;
  std::optional<Session> session_;
  std::uint64_t over_ = 0;                        // updates up to this are over
  std::shared_ptr<const plan::SourcePart> part_;  // the last part, kept over updates: plans are cached
};

}  // namespace weightbus::protocol
