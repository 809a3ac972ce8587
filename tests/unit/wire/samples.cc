#include "tests/unit/wire/samples.h"

#include <variant>

#include "tests/unit/wire/random_values.h"

namespace weightbus::wire::testing {

static_assert(field_count<protocol::Release>() == 0);
static_assert(field_count<protocol::Tag>() == 3);
static_assert(field_count<protocol::UpdateStatus>() == 16);
static_assert(field_count<protocol::Envelope>() == 7);

std::size_t body_kinds() { return std::variant_size_v<protocol::Body>; }
std::size_t record_kinds() { return std::variant_size_v<protocol::JournalRecord>; }

protocol::Envelope sample_envelope(std::size_t kind, std::uint64_t seed) {
  Random random(seed * 1000 + kind);
  auto epoch = random.make<model::Epoch>();
  auto model = random.make<model::ModelName>();
  auto update = random.make<std::optional<model::UpdateId>>();
  auto from = random.make<model::MemberId>();
  auto to = random.make<model::MemberId>();
  const auto request = random.make<std::uint64_t>();
  return {epoch,
          std::move(model),
          update,
          std::move(from),
          std::move(to),
          request,
          random.alternative<protocol::Body>(kind)};
}

protocol::JournalRecord sample_record(std::size_t kind, std::uint64_t seed) {
  Random random(seed * 1000 + kind);
  return random.alternative<protocol::JournalRecord>(kind);
}

plan::SinkPart large_sink_part(std::size_t fragments) {
  Random random(fragments);
  auto part = random.make<plan::SinkPart>();
  part.buckets.clear();
  for (std::size_t i = 0; i < fragments; ++i) {
    const auto row = static_cast<std::int64_t>(i);
    if (i % 1000 == 0) {
      part.buckets.push_back({static_cast<std::uint32_t>(i / 1000),
                              model::MemberId("source"),
                              model::MemberId("sink"),
                              4096ULL * 1000,
                              {}});
    }
    part.buckets.back().fragments.push_back({static_cast<std::uint32_t>(i % 7),
                                             {{row, 0}, {1, 2048}},
                                             {0, i * 4096, {2048, 1}},
                                             {1, i * 8192, {4096, 1}},
                                             static_cast<std::uint32_t>(i)});
  }
  return part;
}

bool same(const protocol::Envelope& a, const protocol::Envelope& b) { return equal(a, b); }
bool same(const protocol::JournalRecord& a, const protocol::JournalRecord& b) { return equal(a, b); }

}  // namespace weightbus::wire::testing
