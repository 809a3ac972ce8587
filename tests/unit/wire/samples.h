// Random messages and records as the tests and the fuzz corpus use them; random_values.h makes them in one file, since
// finding the fields of everything takes the compiler a while.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weightbus/protocol/journal.h"
#include "weightbus/protocol/messages.h"

namespace weightbus::wire::testing {

// How many alternatives Body and JournalRecord have.
std::size_t body_kinds();
std::size_t record_kinds();

// A message of this kind whose every field is random.
protocol::Envelope sample_envelope(std::size_t kind, std::uint64_t seed);
protocol::JournalRecord sample_record(std::size_t kind, std::uint64_t seed);

// A sink's part with so many fragments of rank 2, in buckets of 1000.
plan::SinkPart large_sink_part(std::size_t fragments);

// Whether every field is equal.
bool same(const protocol::Envelope& a, const protocol::Envelope& b);
bool same(const protocol::JournalRecord& a, const protocol::JournalRecord& b);

}  // namespace weightbus::wire::testing
