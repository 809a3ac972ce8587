// Messages and journal records to and from frames; schemas/*.capnp is the specification. Pure and thread safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "weightbus/base/result.h"
#include "weightbus/protocol/journal.h"
#include "weightbus/protocol/messages.h"

namespace weightbus::wire {

// No message is larger, chunked or not.
inline constexpr std::size_t kMaxMessageBytes = 1ULL << 30;
// Longest text: names (members, tensors, paths), and text for people (errors, events), in bytes.
inline constexpr std::size_t kMaxNameBytes = 4096;
inline constexpr std::size_t kMaxTextBytes = 65536;

// The frame of a message; wire/chunks.h cuts one that is too large to be sent whole. Text for people is shortened to
// kMaxTextBytes and made valid UTF-8, so that a strange error message still arrives; names are taken as they are, and
// the receiver refuses a message with a bad one.
std::string encode(const protocol::Envelope& envelope);

// The message in a frame of at most `max_bytes`. Errors: kCorrupted (malformed, too large, too deep, bad text),
// kUnsupported (a revision, message kind or enumerant that is not known here). Each names the field.
// Whether the content makes sense (a manifest's boxes, a member's name) is the receiver's to judge.
base::Result<protocol::Envelope> decode(std::string_view frame, std::size_t max_bytes = kMaxMessageBytes);

// The same for what the coordinator journals.
std::string encode_record(const protocol::JournalRecord& record);
base::Result<protocol::JournalRecord> decode_record(std::string_view frame, std::size_t max_bytes = kMaxMessageBytes);

}  // namespace weightbus::wire
