// The messages between an engine agent and the processes that map its arena, as values, and their codec.
// schemas/attach.capnp is the specification: who sends what when, and what a repeat does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/model/manifest.h"
#include "weightbus/model/region.h"
#include "weightbus/protocol/types.h"

namespace weightbus::wire {

inline constexpr std::uint32_t kAttachRevision = 1;
inline constexpr std::size_t kMaxAttachFrameBytes = 64U << 20;  // a table of 100,000 slots takes about 30 MiB

// The numeric values are part of the wire protocol: append only.
enum class ClientKind : std::uint8_t { kEngineRank = 1, kObserver = 2 };

struct Attach {
  std::uint64_t pid = 0;
  ClientKind kind = ClientKind::kEngineRank;
  std::uint64_t lease = 0;
  std::string software;
  friend bool operator==(const Attach&, const Attach&) = default;
};

struct AttachRefused {
  base::Error error;
  friend bool operator==(const AttachRefused&, const AttachRefused&) = default;
};

// One slot of an arena, as a client needs it: strides in elements, `offset` in bytes into region `region` of either
// half.
struct ArenaSlot {
  std::string tensor;
  std::string parameter;
  model::DType dtype = model::DType::kU8;
  model::SlotKind kind = model::SlotKind::kRaw;
  model::Dims shape;
  model::Box box;
  model::Placement at;
  friend bool operator==(const ArenaSlot&, const ArenaSlot&) = default;
};

struct ArenaInfo {
  std::array<std::vector<model::Region>, 2> halves;
  std::vector<ArenaSlot> slots;
  std::uint32_t live = 0;            // 0 or 1
  std::optional<protocol::Tag> tag;  // of the live half; none: it holds nothing yet
  bool paused = false;
  friend bool operator==(const ArenaInfo&, const ArenaInfo&) = default;
};

struct Pause {
  std::uint64_t id = 0;
  std::uint32_t deadline_ms = 0;
  friend bool operator==(const Pause&, const Pause&) = default;
};
struct Paused {
  std::uint64_t id = 0;
  friend bool operator==(const Paused&, const Paused&) = default;
};
struct Exchange {
  std::uint64_t id = 0;
  std::uint32_t live = 0;
  protocol::Tag tag;
  friend bool operator==(const Exchange&, const Exchange&) = default;
};
struct Exchanged {
  std::uint64_t id = 0;
  std::uint32_t live = 0;
  std::uint64_t duration_ns = 0;
  friend bool operator==(const Exchanged&, const Exchanged&) = default;
};
struct ExchangeFailed {
  std::uint64_t id = 0;
  base::Error error;
  friend bool operator==(const ExchangeFailed&, const ExchangeFailed&) = default;
};
struct Resume {
  std::uint64_t id = 0;
  std::uint32_t live = 0;
  std::optional<protocol::Tag> tag;
  friend bool operator==(const Resume&, const Resume&) = default;
};

using AttachMessage =
    std::variant<Attach, AttachRefused, ArenaInfo, Pause, Paused, Exchange, Exchanged, ExchangeFailed, Resume>;

// The message as one frame, length in front, ready for the socket. kResourceExhausted when it would be over
// kMaxAttachFrameBytes.
base::Result<std::string> encode_attach(const AttachMessage& message);

// A frame without its length, from outside: anything wrong is kInvalidArgument (kUnsupported: another revision).
// An ArenaInfo that it returns has passed validate_arena().
base::Result<AttachMessage> decode_attach(std::string_view frame);

// Two halves of equally many regions of equal, non-zero sizes; live is 0 or 1; every slot is a box of its shape whose
// bytes lie inside its region. The message names the first slot or region that is wrong.
base::Status validate_arena(const ArenaInfo& info);

// Cuts a byte stream into frames. After an error the stream is lost: close it.
class FrameCutter {
 public:
  explicit FrameCutter(std::size_t max_frame_bytes = kMaxAttachFrameBytes) : max_frame_bytes_(max_frame_bytes) {}
  void add(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole frame without its length; nullopt: more bytes are needed; kInvalidArgument: a length that breaks the
  // rules.
  base::Result<std::optional<std::string>> next();

 private:
  std::size_t max_frame_bytes_;
  std::string buffer_;
  std::size_t start_ = 0;
};

}  // namespace weightbus::wire
