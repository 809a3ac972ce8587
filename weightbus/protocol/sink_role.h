// The sink role of an engine agent: an arena of two halves, and at most one update that fills the shadow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weightbus/protocol/agent_context.h"

namespace weightbus::protocol {

// Handles OpenSink, PrepareSink, SinkPartMessage, StageSink; begin_end() for Abort. Owns the tags of the halves: the
// shadow's tag is cleared, and saved so, before its first byte is written.
class SinkRole {
 public:
  // `manifest` of an arena that an earlier start of this process made, if context.state.has_arena.
  SinkRole(AgentContext& context, std::optional<model::SinkManifest> manifest);

  void open(model::UpdateId update, const OpenSink& request);
  void prepare(model::UpdateId update, const PrepareSink& request);
  void part(model::UpdateId update, const SinkPartMessage& message);
  void stage(model::UpdateId update, const StageSink& request);
  void begin_end(model::UpdateId update);
  // A coordinator of another journal took this agent over: its numbers have nothing to do with those seen so far.
  void forget();
  // The half is being read (a snapshot, a digest): staging into it waits until every lease has ended.
  void lease(std::uint32_t half) { ++leases_[half]; }
  void end_lease(std::uint32_t half);

  void done(const SinkOpenDone& event);
  void done(const SinkJoinDone& event);
  void done(const SinkPullDone& event);

  // The half (0 or 1) that holds `tag`, if one does.
  std::optional<std::uint32_t> find(const Tag& tag) const;
  // Makes `half` live. The record is saved with this output, before the exchange is performed.
  void make_live(std::uint32_t half);
  // Ends the session whose shadow has been exchanged in.
  void committed(const Tag& tag);

  const std::optional<model::SinkManifest>& manifest() const { return manifest_; }
  std::vector<Half> halves() const;  // live first; empty without an arena
  std::uint32_t live() const { return context_.state.live; }
  bool active(model::UpdateId update) const { return session_ && session_->update <= update; }
  std::optional<model::UpdateId> running() const;

 private:
  enum class Stage : std::uint8_t { kWanted, kJoining, kPrepared, kWaitingForLease, kPulling, kStaged, kLeaving };
  struct Session {
    model::UpdateId update;
    PrepareSink wanted;
    Stage stage = Stage::kWanted;
    std::shared_ptr<const plan::SinkPart> part;
    std::vector<std::string> channels;
    std::uint32_t deadline_ms = 0;
    std::uint32_t half = 0;  // that is filled, once it is
    std::optional<PullResult> result;
    std::optional<base::Error> failed;
  };

  std::uint32_t shadow() const { return 1 - context_.state.live; }
  Session* current(model::UpdateId update, const char* what);
  void fail(base::Error error);
  void join();
  void start_pull();
  void supersede(model::UpdateId update);
  void leave();
  void drop_session(bool aborted);
  void answer_opened(model::UpdateId update);

  AgentContext& context_;
  std::optional<model::SinkManifest> manifest_;
  model::Hash128 layout_;
  bool opening_ = false;
  std::optional<model::UpdateId> open_asked_by_;
  std::optional<base::Error> open_failed_;
  std::uint32_t leases_[2] = {0, 0};
  std::optional<Session> session_;
  std::uint64_t over_ = 0;
  std::shared_ptr<const plan::SinkPart> part_;
};

}  // namespace weightbus::protocol
