#include "tests/fuzz_wire/target.h"

#include <cstdint>
#include <cstring>

#include "weightbus/base/assert.h"
#include "weightbus/wire/chunks.h"
#include "weightbus/wire/codec.h"

namespace weightbus::wire::testing {
namespace {

constexpr std::size_t kMaxInput = 32U << 20;

void try_message(std::string_view frame) {
  const auto decoded = decode(frame, kMaxInput);
  if (!decoded) return;
  const std::string encoded = encode(*decoded);
  const auto again = decode(encoded);
  WB_ASSERT(again, "what was decoded and encoded must decode");
  WB_ASSERT(encode(*again) == encoded, "a message must not change by being passed on");
}

void try_record(std::string_view frame) {
  const auto decoded = decode_record(frame, kMaxInput);
  if (!decoded) return;
  const std::string encoded = encode_record(*decoded);
  const auto again = decode_record(encoded);
  WB_ASSERT(again, "what was decoded and encoded must decode");
  WB_ASSERT(encode_record(*again) == encoded, "a record must not change by being passed on");
}

// Frames as 4 bytes of size and the content.
void try_frames(std::string_view input) {
  Reassembler reassembler(kMaxInput);
  while (input.size() >= 4) {
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, input.data(), sizeof(bytes));
    input.remove_prefix(sizeof(bytes));
    const std::string frame(input.substr(0, bytes));
    input.remove_prefix(frame.size());
    const auto added = reassembler.add(frame);
    WB_ASSERT(reassembler.pending_bytes() <= kMaxInput, "an incomplete message is bounded");
    if (added && *added) {
      WB_ASSERT((*added)->size() <= kMaxInput, "a message is bounded");
      try_message(**added);
    }
  }
}

}  // namespace

void try_input(std::string_view input) {
  if (input.empty()) return;
  const char kind = input.front();
  input.remove_prefix(1);
  if (kind == 0) try_message(input);
  if (kind == 1) try_record(input);
  if (kind == 2) try_frames(input);
}

std::string message_input(std::string_view frame) { return std::string(1, '\0').append(frame); }
std::string record_input(std::string_view frame) { return std::string(1, '\1').append(frame); }

std::string frames_input(const std::vector<std::string>& frames) {
  std::string input(1, '\2');
  for (const auto& frame : frames) {
    const auto bytes = static_cast<std::uint32_t>(frame.size());
    input.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    input.append(frame);
  }
  return input;
}

}  // namespace weightbus::wire::testing
