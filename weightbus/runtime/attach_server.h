// AttachServer: the agent's end of the attach protocol (schemas/attach.capnp). It tells clients of the arena, and stops
// and exchanges them together: pause, exchange, resume.
//
// A client that dies at any moment counts as gone. One that lives but is not connected does not (it may still compute):
// a pause waits until it is back and has paused, or is dead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"
#include "weightbus/wire/attach.h"

namespace weightbus::runtime {

struct AttachEvent {
  enum class Kind : std::uint8_t { kAttached, kLeft, kRefused };
  Kind kind;
  std::uint64_t pid = 0;
  wire::ClientKind client = wire::ClientKind::kEngineRank;
  std::string reason;  // of kLeft and kRefused
};

struct AttachServerOptions {
  std::string path;  // of the socket, made with mode 0600; a lease file "<path>.lease" stands beside it
  // Called from the server's thread, never under a lock; it must not block for long.
  std::function<void(const AttachEvent&)> on_event = {};
};

struct PauseReport {
  std::size_t readers = 0;  // engine ranks that have paused
};
struct ExchangeReport {
  std::size_t readers = 0;       // engine ranks that have exchanged
  std::uint64_t slowest_ns = 0;  // longest mapping time of one of them
};

// Thread safe; pause() and exchange() block their caller and are made one at a time (others wait).
class AttachServer {
 public:
  // Listens. kConflict: a living agent listens at this path already. A socket left behind by a dead one is replaced.
  static base::Result<std::unique_ptr<AttachServer>> listen(AttachServerOptions options);
  // Closes every connection (clients go on with what they have and look for the next agent), and removes the socket.
  virtual ~AttachServer() = default;

  // What clients are told to map; before it they wait. Called again, every client is told; those that run adopt it
  // when their step has ended. kConflict: another live half of the same memory while clients may compute and no pause
  // is running, as only exchange() may do that. Whether `info.paused` is set does not matter.
  virtual base::Status set_arena(wire::ArenaInfo info) = 0;

  // Closes the launch gate of every engine rank and returns when no step is inside any of them. From then on (also with
  // an error) until resume(), nothing begins, and whoever attaches waits. kDeadlineExceeded names the processes that
  // have not paused. Repeating it waits anew. It may be called before set_arena(), so that clients which a restarted
  // agent finds do not begin before it knows what is live.
  virtual base::Result<PauseReport> pause(base::Duration deadline) = 0;

  // Has every engine rank map half `live`, which holds `tag`. Only within a pause() that succeeded (else kConflict).
  // Record `live` durably before: clients are told so from the first moment on. An error leaves the server's word at
  // the half before, which resume() makes true everywhere again; or call exchange() again.
  virtual base::Result<ExchangeReport> exchange(std::uint32_t live, const protocol::Tag& tag,
                                                base::Duration deadline) = 0;

  // Ends a pause, exchanged or not: clients map what is live now and go on. Without a pause it does nothing.
  virtual void resume() = 0;

  virtual bool paused() const = 0;
  virtual std::size_t readers() const = 0;  // attached engine ranks
  virtual std::vector<std::uint64_t> reader_pids() const = 0;
  // The running arena as clients are told; none before set_arena().
  virtual std::optional<wire::ArenaInfo> arena() const = 0;
};

}  // namespace weightbus::runtime
