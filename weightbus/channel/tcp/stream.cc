#include "weightbus/channel/tcp/stream.h"

#include <algorithm>

namespace weightbus::channel {
namespace {

// Below this a run is cheaper gathered with its neighbours than by a system call of its own.
constexpr std::uint64_t kDirectBytes = 64U << 10;

// The next stretch [begin, end) of a payload: one run of memory, or elements for the staging buffer.
struct Segment {
  std::uint64_t end;
  const device::CopyOp* run;  // null: through the staging buffer
};

bool goes_directly(const device::CopyOp& op) { return op.is_run() && op.bytes() >= kDirectBytes; }

// `index` is the operation that holds `begin`. The end always falls between two elements.
Segment next_segment(std::span<const device::CopyOp> ops, std::size_t index, std::uint64_t begin,
                     std::uint64_t staging) {
  if (goes_directly(ops[index])) return {ops[index].payload + ops[index].bytes(), &ops[index]};
  const std::uint64_t limit = begin + staging;
  std::uint64_t end = begin;
  for (; index < ops.size() && !goes_directly(ops[index]); ++index) {
    const auto& op = ops[index];
    end = op.payload + op.bytes();
    if (end <= limit) continue;
    return {op.payload + (limit - op.payload) / op.to_size * op.to_size, nullptr};
  }
  return {end, nullptr};
}

// Calls work(begin, segment) for each segment in order, until one fails.
template <class Work>
base::Status for_each_segment(std::span<const device::CopyOp> ops, std::uint64_t staging, const Work& work) {
  if (ops.empty()) return {};
  const std::uint64_t total = ops.back().payload + ops.back().bytes();
  std::size_t index = 0;
  for (std::uint64_t begin = 0; begin < total;) {
    while (begin >= ops[index].payload + ops[index].bytes())
      ++index;
    const Segment segment = next_segment(ops, index, begin, staging);
    WB_TRY(work(begin, segment));
    begin = segment.end;
  }
  return {};
}

}  // namespace

base::Status send_payload(int fd, std::span<const device::CopyOp> ops, std::span<const std::byte* const> from,
                          std::span<std::byte> staging, SocketLimits& limits) {
  const std::uint64_t total = ops.empty() ? 0 : ops.back().payload + ops.back().bytes();
  return for_each_segment(ops, staging.size(), [&](std::uint64_t begin, const Segment& segment) -> base::Status {
    const std::size_t size = segment.end - begin;
    const bool more = segment.end < total;
    if (segment.run) {
      return send_all(fd, from[segment.run->from_region] + segment.run->from_offset, size, more, limits);
    }
    std::byte* const buffer = staging.data();
    device::copy_piece(ops, {from}, {{&buffer, 1}, begin}, begin, segment.end);
    return send_all(fd, buffer, size, more, limits);
  });
}

base::Status receive_payload(int fd, std::span<const device::CopyOp> ops, std::span<std::byte* const> to,
                             std::span<std::byte> staging, SocketLimits& limits,
                             const std::function<void(std::uint64_t)>& progress) {
  return for_each_segment(ops, staging.size(), [&](std::uint64_t begin, const Segment& segment) -> base::Status {
    if (segment.run) {
      std::byte* place = to[segment.run->to_region] + segment.run->to_offset;
      for (std::uint64_t left = segment.end - begin; left > 0;) {
        WB_ASSIGN(const std::size_t received, receive_some(fd, place, left, limits));
        place += received;
        left -= received;
        progress(received);
      }
      return {};
    }
    const std::byte* const buffer = staging.data();
    WB_TRY(receive_all(fd, staging.data(), segment.end - begin, limits));
    device::copy_piece(ops, {{&buffer, 1}, begin}, {to}, begin, segment.end);
    progress(segment.end - begin);
    return {};
  });
}

}  // namespace weightbus::channel
