#include "weightbus/wire/codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <new>
#include <type_traits>
#include <variant>

#include "weightbus/wire/conversion.h"

namespace weightbus::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are written as memory holds them");

constexpr std::size_t kWordBytes = sizeof(capnp::word);
constexpr std::size_t kMaxSegments = 16;
// 32 KiB: segments double, so that 16 of them hold more than kMaxMessageBytes in all ordinary cases.
constexpr unsigned kFirstSegmentWords = 4096;
constexpr int kMaxDepth = 16;
// Of the frame's words, how many may be followed: pointers that share content must not multiply it.
constexpr std::uint64_t kTraversal = 4;

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

#define WB_COUNT(Type, Field, FIELD) +1
static_assert(std::variant_size_v<protocol::Body> == 0 WB_FOR_EACH_BODY(WB_COUNT), "bodies.h lacks a message");
static_assert(std::variant_size_v<protocol::JournalRecord> == 0 WB_FOR_EACH_RECORD(WB_COUNT),
              "bodies.h lacks a record");
#undef WB_COUNT

template <class Segments>
std::string join_segments(const Segments& segments) {
  std::vector<std::uint32_t> header{static_cast<std::uint32_t>(segments.size() - 1)};
  std::size_t words = 0;
  for (const auto& segment : segments) {
    header.push_back(static_cast<std::uint32_t>(segment.size()));
    words += segment.size();
  }
  if (header.size() % 2 != 0) header.push_back(0);
  const std::size_t header_bytes = header.size() * sizeof(header[0]);
  std::string frame;
  frame.reserve(header_bytes + words * kWordBytes);
  frame.append(reinterpret_cast<const char*>(header.data()), header_bytes);
  for (const auto& segment : segments) {
    frame.append(reinterpret_cast<const char*>(segment.begin()), segment.size() * kWordBytes);
  }
  return frame;
}

template <class Root>
std::string to_frame(capnp::MallocMessageBuilder& message) {
  const auto segments = message.getSegmentsForOutput();
  if (segments.size() <= kMaxSegments) return join_segments(segments);
  // Large objects leave the ends of segments unused, so a huge message may have needed more: lay it out anew as one.
  std::size_t words = 0;
  for (const auto& segment : segments)
    words += segment.size();
  WB_ASSERT(words < (1ULL << 29), "a message of 4 GiB");
  capnp::MallocMessageBuilder whole(static_cast<unsigned>(words) + 1);
  whole.setRoot(message.getRoot<Root>().asReader());
  return join_segments(whole.getSegmentsForOutput());
}

// The frame's own account of itself, before Cap'n Proto sees it.
base::Status check_frame(std::string_view frame, std::size_t max_bytes) {
  using base::ErrorCode;
  if (frame.size() > max_bytes) {
    return base::fail(ErrorCode::kCorrupted, "a frame of {} bytes; at most {} are allowed", frame.size(), max_bytes);
  }
  if (frame.size() < kWordBytes || frame.size() % kWordBytes != 0) {
    return base::fail(ErrorCode::kCorrupted, "a frame of {} bytes, which is no multiple of 8 above 0", frame.size());
  }
  const auto number = [&](std::size_t index) {
    std::uint32_t value = 0;
    std::memcpy(&value, frame.data() + index * sizeof(value), sizeof(value));
    return value;
  };
  if (number(0) >= kMaxSegments) {
    return base::fail(ErrorCode::kCorrupted, "a frame of {} segments; at most {} are allowed",
                      std::uint64_t{number(0)} + 1, kMaxSegments);
  }
  const std::size_t segments = number(0) + 1;
  std::uint64_t words = segments / 2 + 1;  // the table itself
  if (frame.size() < words * kWordBytes) {
    return base::fail(ErrorCode::kCorrupted, "a frame of {} bytes ends in its segment table", frame.size());
  }
  for (std::size_t i = 1; i <= segments; ++i)
    words += number(i);
  if (frame.size() != words * kWordBytes) {
    return base::fail(ErrorCode::kCorrupted, "a frame of {} bytes whose segments make up {}", frame.size(),
                      words * kWordBytes);
  }
  return {};
}

// Reads a frame whose root is `Root` with `convert(Reading&, Root::Reader)`.
template <class Root, class Convert>
auto read_frame(std::string_view frame, std::size_t max_bytes, Convert convert)
    -> base::Result<std::invoke_result_t<Convert, Reading&, typename Root::Reader>> {
  WB_TRY(check_frame(frame, max_bytes));
  try {
    // Cap'n Proto wants aligned words, and nobody else may change them while it reads.
    const std::size_t count = frame.size() / kWordBytes;
    auto words = kj::heapArray<capnp::word>(count);
    std::memcpy(words.begin(), frame.data(), frame.size());
    capnp::ReaderOptions options;
    options.traversalLimitInWords = kTraversal * count;
    options.nestingLimit = kMaxDepth;
    capnp::FlatArrayMessageReader message(words, options);
    Reading in(frame.size());
    auto value = convert(in, message.getRoot<Root>());
    if (in.error()) return base::fail(*in.error());
    return value;
  } catch (const kj::Exception& exception) {
    return base::fail(base::ErrorCode::kCorrupted, "a malformed frame of {} bytes: {}", frame.size(),
                      std::string_view(exception.getDescription().cStr()));
  } catch (const std::bad_alloc&) {
    return base::fail(base::ErrorCode::kResourceExhausted, "no memory to read a frame of {} bytes", frame.size());
  }
}

protocol::Body read_body(Reading& in, proto::Envelope::Body::Reader from) {
  switch (from.which()) {
#define WB_READ(Type, Field, FIELD) \
  case proto::Envelope::Body::FIELD: return read(in, WB_REQUIRED(in, from, Field));
    WB_FOR_EACH_BODY(WB_READ)
#undef WB_READ
    case proto::Envelope::Body::UNSET: break;
  }
  in.fail(base::ErrorCode::kUnsupported,
          fmt::format("a message of kind {}, which is not known here", static_cast<unsigned>(from.which())));
  return protocol::Done{};
}

protocol::Envelope read_envelope(Reading& in, proto::Envelope::Reader from) {
  // Before anything else: what another revision means by the other fields is not known.
  if (from.getRevision() != protocol::kProtocolRevision) {
    in.fail(base::ErrorCode::kUnsupported,
            fmt::format("a message of protocol revision {}; this build speaks {}: install the same version everywhere",
                        from.getRevision(), protocol::kProtocolRevision));
  }
  protocol::Envelope envelope{{},
                              model::ModelName(in.ok() ? in.name(from.getModel(), "Envelope.model") : std::string()),
                              std::nullopt,
                              model::MemberId(in.ok() ? in.name(from.getFrom(), "Envelope.from") : std::string()),
                              model::MemberId(in.ok() ? in.name(from.getTo(), "Envelope.to") : std::string()),
                              from.getRequest(),
                              protocol::Done{}};
  if (!in.ok()) return envelope;
  envelope.epoch = read(in, WB_REQUIRED(in, from, Epoch));
  if (from.getHasUpdate()) envelope.update = model::UpdateId(from.getUpdate());
  envelope.body = read_body(in, from.getBody());
  return envelope;
}

protocol::JournalRecord read_record(Reading& in, proto::JournalRecord::Reader from) {
  if (from.getRevision() != protocol::kJournalRevision) {
    in.fail(
        base::ErrorCode::kUnsupported,
        fmt::format("a journal record of revision {}; this build reads {}: start the version that wrote the journal, "
                    "or a newer one",
                    from.getRevision(), protocol::kJournalRevision));
    return protocol::Pinned{model::ModelName(""), model::WeightVersion(0), false};
  }
  switch (from.which()) {
#define WB_READ(Type, Field, FIELD) \
  case proto::JournalRecord::FIELD: return read(in, WB_REQUIRED(in, from, Field));
    WB_FOR_EACH_RECORD(WB_READ)
#undef WB_READ
    case proto::JournalRecord::UNSET: break;
  }
  in.fail(base::ErrorCode::kUnsupported,
          fmt::format("a journal record of kind {}, which is not known here", static_cast<unsigned>(from.which())));
  return protocol::Pinned{model::ModelName(""), model::WeightVersion(0), false};
}

}  // namespace

std::string encode(const protocol::Envelope& envelope) {
  capnp::MallocMessageBuilder message(kFirstSegmentWords);
  auto to = message.initRoot<proto::Envelope>();
  to.setRevision(protocol::kProtocolRevision);
  write(to.initEpoch(), envelope.epoch);
  to.setModel(name_of(envelope.model));
  if (envelope.update) {
    to.setHasUpdate(true);
    to.setUpdate(envelope.update->value());
  }
  to.setFrom(name_of(envelope.from));
  to.setTo(name_of(envelope.to));
  to.setRequest(envelope.request);
  auto body = to.getBody();
#define WB_WRITE(Type, Field, FIELD) [&](const protocol::Type& value) { write(body.init##Field(), value); },
  std::visit(Overloaded{WB_FOR_EACH_BODY(WB_WRITE)[](const std::monostate&){}}, envelope.body);
#undef WB_WRITE
  return to_frame<proto::Envelope>(message);
}

base::Result<protocol::Envelope> decode(std::string_view frame, std::size_t max_bytes) {
  return read_frame<proto::Envelope>(frame, max_bytes, read_envelope);
}

std::string encode_record(const protocol::JournalRecord& record) {
  capnp::MallocMessageBuilder message(kFirstSegmentWords);
  auto to = message.initRoot<proto::JournalRecord>();
  to.setRevision(protocol::kJournalRevision);
#define WB_WRITE(Type, Field, FIELD) [&](const protocol::Type& value) { write(to.init##Field(), value); },
  std::visit(Overloaded{WB_FOR_EACH_RECORD(WB_WRITE)[](const std::monostate&){}}, record);
#undef WB_WRITE
  return to_frame<proto::JournalRecord>(message);
}

base::Result<protocol::JournalRecord> decode_record(std::string_view frame, std::size_t max_bytes) {
  return read_frame<proto::JournalRecord>(frame, max_bytes, read_record);
}

}  // namespace weightbus::wire
