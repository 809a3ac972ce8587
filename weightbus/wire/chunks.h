// Messages larger than a frame travel in chunks (schemas/common.capnp, "Chunks").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/wire/codec.h"

namespace weightbus::wire {

inline constexpr std::size_t kMaxFrameBytes = 4U << 20;
inline constexpr std::size_t kChunkHeaderBytes = 48;
inline constexpr std::size_t kChunkPayloadBytes = kMaxFrameBytes - kChunkHeaderBytes;

// The frames of a message, in the order in which they are to be sent on one connection: the message itself when it
// fits, otherwise chunks. `stream` differs from that of the message sent before on the connection, so count it up. A
// receiver refuses messages over its limit (kMaxMessageBytes unless set).
std::vector<std::string> to_frames(std::string message, std::uint64_t stream);

// Puts the frames of one connection together again. Holds at most one incomplete message, of at most `max_bytes`, and
// never more memory than twice what has arrived of it. Not thread safe.
class Reassembler {
 public:
  explicit Reassembler(std::size_t max_bytes = kMaxMessageBytes) noexcept : max_bytes_(max_bytes) {}

  // A frame that arrived. Returns the message that it completes, or nullopt when more chunks are to come. An error
  // means that the frame was dropped, and with it what had arrived of its message; the next message is not affected:
  // kCorrupted (malformed, mixed or damaged), kStale (a chunk whose message was dropped or never begun),
  // kResourceExhausted (larger than max_bytes).
  base::Result<std::optional<std::string>> add(std::string frame);

  // Bytes of the incomplete message.
  std::size_t pending_bytes() const noexcept { return pending_ ? pending_->message.size() : 0; }

 private:
  struct Pending {
    std::uint64_t stream = 0;
    std::uint64_t total_bytes = 0;
    std::uint64_t message_hash = 0;
    std::uint32_t count = 0;
    std::uint32_t next = 0;
    std::string message;
  };
  base::Result<std::optional<std::string>> add_chunk(std::string_view frame);

  std::size_t max_bytes_;
  std::optional<Pending> pending_;
};

}  // namespace weightbus::wire
