#include "weightbus/wire/chunks.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace weightbus::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are written as memory holds them");

constexpr std::uint64_t kMagic = 0x314b4e5548434257ULL;  // "WBCHUNK1"
constexpr std::size_t kCheckedHeaderBytes = 40;          // all but the checksum itself

// As it lies in the frame.
struct Header {
  std::uint64_t magic;
  std::uint64_t stream;
  std::uint64_t total_bytes;
  std::uint64_t message_hash;
  std::uint32_t index;
  std::uint32_t count;
  std::uint64_t checksum;
};
static_assert(sizeof(Header) == kChunkHeaderBytes);

std::uint64_t checksum(const Header& header, std::string_view payload) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), &header, kCheckedHeaderBytes);
  XXH3_64bits_update(state.get(), payload.data(), payload.size());
  return XXH3_64bits_digest(state.get());
}

std::uint64_t chunks_of(std::uint64_t bytes) { return bytes / kChunkPayloadBytes + (bytes % kChunkPayloadBytes != 0); }

bool is_chunk(std::string_view frame) {
  return frame.size() >= sizeof(kMagic) && std::memcmp(frame.data(), &kMagic, sizeof(kMagic)) == 0;
}

// Whether the header agrees with itself and with the size of what follows it.
bool is_consistent(const Header& header, std::size_t payload_bytes) {
  if (header.total_bytes <= kMaxFrameBytes || header.index >= header.count) return false;
  if (chunks_of(header.total_bytes) != header.count) return false;
  const std::uint64_t begin = std::uint64_t{header.index} * kChunkPayloadBytes;
  return payload_bytes == std::min<std::uint64_t>(kChunkPayloadBytes, header.total_bytes - begin);
}

}  // namespace

std::vector<std::string> to_frames(std::string message, std::uint64_t stream) {
  std::vector<std::string> frames;
  if (message.size() <= kMaxFrameBytes) {
    frames.push_back(std::move(message));
    return frames;
  }
  Header header{kMagic, stream, message.size(), XXH3_64bits(message.data(), message.size()), 0, 0, 0};
  header.count = static_cast<std::uint32_t>(chunks_of(message.size()));
  frames.reserve(header.count);
  for (std::size_t begin = 0; begin < message.size(); begin += kChunkPayloadBytes, ++header.index) {
    const std::string_view payload = std::string_view(message).substr(begin, kChunkPayloadBytes);
    header.checksum = checksum(header, payload);
    std::string& frame = frames.emplace_back();
    frame.reserve(kChunkHeaderBytes + payload.size());
    frame.append(reinterpret_cast<const char*>(&header), kChunkHeaderBytes);
    frame.append(payload);
  }
  return frames;
}

base::Result<std::optional<std::string>> Reassembler::add(std::string frame) {
  if (frame.size() > kMaxFrameBytes) {
    return base::fail(base::ErrorCode::kCorrupted, "a frame of {} bytes; at most {} are allowed", frame.size(),
                      kMaxFrameBytes);
  }
  // Whole messages may come between the chunks of another: heartbeats do not wait for a manifest.
  if (!is_chunk(frame)) return std::optional<std::string>(std::move(frame));
  auto added = add_chunk(frame);
  // A stale chunk belongs to no message that is held; everything else that is wrong ends the one that is.
  if (!added && added.error().code != base::ErrorCode::kStale) pending_.reset();
  return added;
}

base::Result<std::optional<std::string>> Reassembler::add_chunk(std::string_view frame) {
  using base::ErrorCode;
  if (frame.size() <= kChunkHeaderBytes) {
    return base::fail(ErrorCode::kCorrupted, "a chunk of {} bytes, which is a header at most", frame.size());
  }
  Header header;
  std::memcpy(&header, frame.data(), sizeof(header));
  const std::string_view payload = frame.substr(kChunkHeaderBytes);
  if (header.checksum != checksum(header, payload) || !is_consistent(header, payload.size())) {
    return base::fail(ErrorCode::kCorrupted, "a damaged chunk of {} bytes", frame.size());
  }
  if (header.total_bytes > max_bytes_) {
    return base::fail(ErrorCode::kResourceExhausted, "a message of {} bytes; at most {} are taken", header.total_bytes,
                      max_bytes_);
  }
  const bool same_stream = pending_ && pending_->stream == header.stream;
  if (!same_stream) {
    if (header.index != 0) {
      return base::fail(ErrorCode::kStale, "chunk {} of a message (stream {}) whose beginning is not here",
                        header.index, header.stream);
    }
    pending_ = Pending{header.stream, header.total_bytes, header.message_hash, header.count, 0, {}};
  }
  Pending& pending = *pending_;
  if (header.index != pending.next) {
    return base::fail(ErrorCode::kCorrupted, "chunk {} of a message (stream {}) where {} is next", header.index,
                      header.stream, pending.next);
  }
  if (header.total_bytes != pending.total_bytes || header.message_hash != pending.message_hash) {
    return base::fail(ErrorCode::kCorrupted, "chunks of two messages are mixed in stream {}", header.stream);
  }
  // Grows as chunks arrive: the stated total is a claim until then.
  pending.message.append(payload);
  if (++pending.next < pending.count) return std::optional<std::string>();
  std::string message = std::move(pending.message);
  const std::uint64_t expected = pending.message_hash;
  pending_.reset();
  if (XXH3_64bits(message.data(), message.size()) != expected) {
    return base::fail(ErrorCode::kCorrupted, "the chunks of a message of {} bytes do not make it up", message.size());
  }
  return std::optional<std::string>(std::move(message));
}

}  // namespace weightbus::wire
