#include "weightbus/wire/attach.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/array.h>
#include <kj/exception.h>

#include <cstring>
#include <utility>

#include "attach.capnp.h"
#include "weightbus/base/checked_math.h"

namespace weightbus::wire {
namespace {

namespace schema = ::weightbus::schema::attach;
using base::ErrorCode;
using base::fail;
using base::Result;

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kWordBytes = sizeof(capnp::word);
constexpr std::uint32_t kMaxSegments = 16;
constexpr int kMaxDepth = 16;
constexpr std::uint64_t kTraversalFactor = 4;

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

capnp::Text::Reader text(const std::string& value) { return {value.data(), value.size()}; }
std::string text(capnp::Text::Reader value) { return {value.begin(), value.size()}; }

// ---------------------------------------------------------------- values to messages

template <class Builder>
void write_dims(Builder list, const model::Dims& dims) {
  for (unsigned i = 0; i < dims.size(); ++i)
    list.set(i, dims[i]);
}

void write(schema::Tag::Builder to, const protocol::Tag& tag) {
  to.setVersion(tag.version.value());
  to.setLayoutHigh(tag.layout.high);
  to.setLayoutLow(tag.layout.low);
  to.setUpdate(tag.update.value());
}

void write(schema::Region::Builder to, const model::Region& region) {
  to.setKind(static_cast<std::uint8_t>(region.kind));
  to.setHandle(capnp::Data::Reader(reinterpret_cast<const kj::byte*>(region.handle.data()), region.handle.size()));
  to.setBytes(region.bytes);
  to.setAllocationId(region.allocation_id);
  to.setDeviceUuid(text(region.device_uuid));
}

void write(schema::Slot::Builder to, const ArenaSlot& slot) {
  to.setTensor(text(slot.tensor));
  to.setParameter(text(slot.parameter));
  to.setDtype(static_cast<std::uint8_t>(slot.dtype));
  to.setKind(static_cast<std::uint8_t>(slot.kind));
  write_dims(to.initShape(static_cast<unsigned>(slot.shape.size())), slot.shape);
  write_dims(to.initOffset(static_cast<unsigned>(slot.box.offset.size())), slot.box.offset);
  write_dims(to.initExtent(static_cast<unsigned>(slot.box.extent.size())), slot.box.extent);
  write_dims(to.initStrides(static_cast<unsigned>(slot.at.strides.size())), slot.at.strides);
  to.setRegion(slot.at.region);
  to.setByteOffset(slot.at.offset);
}

void write(schema::ArenaInfo::Builder to, const ArenaInfo& info) {
  auto halves = to.initHalves(2);
  for (unsigned half = 0; half < 2; ++half) {
    auto regions = halves[half].initRegions(static_cast<unsigned>(info.halves[half].size()));
    for (unsigned i = 0; i < regions.size(); ++i)
      write(regions[i], info.halves[half][i]);
  }
  auto slots = to.initSlots(static_cast<unsigned>(info.slots.size()));
  for (unsigned i = 0; i < slots.size(); ++i)
    write(slots[i], info.slots[i]);
  to.setLive(static_cast<std::uint8_t>(info.live));
  if (info.tag) write(to.initTag(), *info.tag);
  to.setPaused(info.paused);
}

void write(schema::Message::Builder root, const AttachMessage& message) {
  const auto error = [](auto to, const base::Error& from) {
    to.setCode(static_cast<std::uint16_t>(from.code));
    to.setMessage(text(from.message));
  };
  std::visit(Overloaded{[&](const Attach& m) {
                          auto to = root.initAttach();
                          to.setPid(m.pid);
                          to.setKind(static_cast<schema::ClientKind>(m.kind));
                          to.setLease(m.lease);
                          to.setSoftware(text(m.software));
                        },
                        [&](const AttachRefused& m) { error(root.initRefused(), m.error); },
                        [&](const ArenaInfo& m) { write(root.initArena(), m); },
                        [&](const Pause& m) {
                          auto to = root.initPause();
                          to.setId(m.id);
                          to.setDeadlineMs(m.deadline_ms);
                        },
                        [&](const Paused& m) { root.initPaused().setId(m.id); },
                        [&](const Exchange& m) {
                          auto to = root.initExchange();
                          to.setId(m.id);
                          to.setLive(static_cast<std::uint8_t>(m.live));
                          write(to.initTag(), m.tag);
                        },
                        [&](const Exchanged& m) {
                          auto to = root.initExchanged();
                          to.setId(m.id);
                          to.setLive(static_cast<std::uint8_t>(m.live));
                          to.setDurationNs(m.duration_ns);
                        },
                        [&](const ExchangeFailed& m) {
                          auto to = root.initExchangeFailed();
                          to.setId(m.id);
                          error(to, m.error);
                        },
                        [&](const Resume& m) {
                          auto to = root.initResume();
                          to.setId(m.id);
                          to.setLive(static_cast<std::uint8_t>(m.live));
                          if (m.tag) write(to.initTag(), *m.tag);
                        }},
             message);
}

// ---------------------------------------------------------------- messages to values

Result<model::Dims> read_dims(capnp::List<std::int64_t>::Reader list) {
  if (list.size() > model::kMaxDims)
    return fail(ErrorCode::kInvalidArgument, "{} dimensions; at most {} are allowed", list.size(), model::kMaxDims);
  model::Dims dims;
  for (auto value : list)
    dims.push_back(value);
  return dims;
}

protocol::Tag read(schema::Tag::Reader from) {
  return {model::WeightVersion(from.getVersion()), model::Hash128{from.getLayoutHigh(), from.getLayoutLow()},
          model::UpdateId(from.getUpdate())};
}

Result<model::Region> read(schema::Region::Reader from) {
  const auto kind = from.getKind();
  if (kind < 1 || kind > static_cast<std::uint8_t>(model::RegionKind::kCudaIpc))
    return fail(ErrorCode::kInvalidArgument, "unknown region kind {}", kind);
  const auto handle = from.getHandle();
  return model::Region{static_cast<model::RegionKind>(kind), text(from.getDeviceUuid()),
                       std::string(reinterpret_cast<const char*>(handle.begin()), handle.size()), from.getBytes(),
                       from.getAllocationId()};
}

Result<ArenaSlot> read(schema::Slot::Reader from) {
  ArenaSlot slot;
  slot.tensor = text(from.getTensor());
  slot.parameter = text(from.getParameter());
  const auto dtype = from.getDtype();
  if (dtype < 1 || dtype > static_cast<std::uint8_t>(model::DType::kF64))
    return fail(ErrorCode::kInvalidArgument, "slot of {} has unknown dtype {}", slot.tensor, dtype);
  slot.dtype = static_cast<model::DType>(dtype);
  const auto kind = from.getKind();
  if (kind < 1 || kind > static_cast<std::uint8_t>(model::SlotKind::kConstant))
    return fail(ErrorCode::kInvalidArgument, "slot of {} has unknown kind {}", slot.tensor, kind);
  slot.kind = static_cast<model::SlotKind>(kind);
  WB_ASSIGN(slot.shape, read_dims(from.getShape()));
  WB_ASSIGN(slot.box.offset, read_dims(from.getOffset()));
  WB_ASSIGN(slot.box.extent, read_dims(from.getExtent()));
  WB_ASSIGN(slot.at.strides, read_dims(from.getStrides()));
  slot.at.region = from.getRegion();
  slot.at.offset = from.getByteOffset();
  return slot;
}

Result<ArenaInfo> read(schema::ArenaInfo::Reader from) {
  ArenaInfo info;
  const auto halves = from.getHalves();
  if (halves.size() != 2) return fail(ErrorCode::kInvalidArgument, "an arena of {} halves; it has two", halves.size());
  for (unsigned half = 0; half < 2; ++half) {
    for (auto region : halves[half].getRegions()) {
      WB_ASSIGN(auto value, read(region));
      info.halves[half].push_back(std::move(value));
    }
  }
  for (auto slot : from.getSlots()) {
    WB_ASSIGN(auto value, read(slot));
    info.slots.push_back(std::move(value));
  }
  info.live = from.getLive();
  if (from.hasTag()) info.tag = read(from.getTag());
  info.paused = from.getPaused();
  WB_TRY(validate_arena(info));
  return info;
}

Result<std::uint32_t> read_live(std::uint8_t live) {
  if (live > 1) return fail(ErrorCode::kInvalidArgument, "half {} does not exist; halves are 0 and 1", live);
  return live;
}

base::Error read_error(std::uint16_t code, capnp::Text::Reader message) {
  const bool known = code >= 1 && code <= static_cast<std::uint16_t>(ErrorCode::kInternal);
  return {known ? static_cast<ErrorCode>(code) : ErrorCode::kInternal, text(message)};
}

Result<AttachMessage> read(schema::Message::Reader root) {
  switch (root.which()) {
    case schema::Message::ATTACH: {
      const auto from = root.getAttach();
      const auto kind = from.getKind();
      if (kind != schema::ClientKind::ENGINE_RANK && kind != schema::ClientKind::OBSERVER)
        return fail(ErrorCode::kInvalidArgument, "unknown kind {} of client", static_cast<unsigned>(kind));
      return Attach{from.getPid(), static_cast<ClientKind>(kind), from.getLease(), text(from.getSoftware())};
    }
    case schema::Message::REFUSED: {
      const auto from = root.getRefused();
      return AttachRefused{read_error(from.getCode(), from.getMessage())};
    }
    case schema::Message::ARENA: {
      WB_ASSIGN(auto info, read(root.getArena()));
      return info;
    }
    case schema::Message::PAUSE: return Pause{root.getPause().getId(), root.getPause().getDeadlineMs()};
    case schema::Message::PAUSED: return Paused{root.getPaused().getId()};
    case schema::Message::EXCHANGE: {
      const auto from = root.getExchange();
      WB_ASSIGN(const auto live, read_live(from.getLive()));
      if (!from.hasTag()) return fail(ErrorCode::kInvalidArgument, "an exchange without a tag");
      return Exchange{from.getId(), live, read(from.getTag())};
    }
    case schema::Message::EXCHANGED: {
      const auto from = root.getExchanged();
      WB_ASSIGN(const auto live, read_live(from.getLive()));
      return Exchanged{from.getId(), live, from.getDurationNs()};
    }
    case schema::Message::EXCHANGE_FAILED: {
      const auto from = root.getExchangeFailed();
      return ExchangeFailed{from.getId(), read_error(from.getCode(), from.getMessage())};
    }
    case schema::Message::RESUME: {
      const auto from = root.getResume();
      WB_ASSIGN(const auto live, read_live(from.getLive()));
      Resume resume{from.getId(), live, std::nullopt};
      if (from.hasTag()) resume.tag = read(from.getTag());
      return resume;
    }
  }
  return fail(ErrorCode::kUnsupported, "unknown message {}", static_cast<unsigned>(root.which()));
}

std::uint32_t little_endian_32(const char* bytes) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

base::Status check_slot(const ArenaSlot& slot, const std::vector<model::Region>& regions) {
  const auto wrong = [&](const char* what) {
    return fail(ErrorCode::kInvalidArgument, "slot {} of tensor {}: {}", slot.parameter, slot.tensor, what);
  };
  if (slot.box.offset.size() != slot.box.extent.size() || !model::fits(slot.box, slot.shape))
    return wrong("its box does not fit the tensor's shape");
  if (slot.at.strides.size() != slot.box.rank()) return wrong("its strides and its box differ in dimensions");
  for (auto stride : slot.at.strides)
    if (stride < 0) return wrong("a stride is negative");
  if (!model::checked_volume(slot.box.extent)) return wrong("its size overflows");
  if (slot.at.region >= regions.size()) return wrong("its region does not exist");
  // The farthest element decides; computed here, since every factor may come from outside.
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < slot.box.rank(); ++i) {
    if (slot.box.extent[i] == 0) return {};
    const auto step = base::checked_mul<std::uint64_t>(static_cast<std::uint64_t>(slot.box.extent[i] - 1),
                                                       static_cast<std::uint64_t>(slot.at.strides[i]));
    const auto sum = step ? base::checked_add<std::uint64_t>(last, *step) : std::nullopt;
    if (!sum) return wrong("its size overflows");
    last = *sum;
  }
  const std::uint64_t element = model::dtype_size(slot.dtype);
  const auto start = base::checked_mul<std::uint64_t>(last, element);
  const auto span = start ? base::checked_add<std::uint64_t>(*start, element) : std::nullopt;
  const auto end = span ? base::checked_add<std::uint64_t>(*span, slot.at.offset) : std::nullopt;
  if (!end || *end > regions[slot.at.region].bytes) return wrong("it reaches past the end of its region");
  return {};
}

}  // namespace

base::Status validate_arena(const ArenaInfo& info) {
  const auto& [first, second] = info.halves;
  if (info.live > 1) return fail(ErrorCode::kInvalidArgument, "half {} does not exist; halves are 0 and 1", info.live);
  if (first.size() != second.size())
    return fail(ErrorCode::kInvalidArgument, "halves of {} and {} regions; they must be equal", first.size(),
                second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i].bytes == 0 || first[i].bytes != second[i].bytes || first[i].kind != second[i].kind)
      return fail(ErrorCode::kInvalidArgument,
                  "region {} has {} and {} bytes in the halves; they must be alike and not 0", i, first[i].bytes,
                  second[i].bytes);
  }
  for (const auto& slot : info.slots)
    WB_TRY(check_slot(slot, first));
  return {};
}

base::Result<std::string> encode_attach(const AttachMessage& message) {
  capnp::MallocMessageBuilder builder;
  auto root = builder.initRoot<schema::Message>();
  root.setRevision(kAttachRevision);
  write(root, message);
  // Copied into one segment, so that the receiver's bound on segments never meets a large table.
  capnp::MallocMessageBuilder single(static_cast<unsigned>(builder.sizeInWords() + 1));
  single.setRoot(root.asReader());
  const auto words = capnp::messageToFlatArray(single);
  const auto bytes = words.asBytes();
  if (bytes.size() > kMaxAttachFrameBytes)
    return fail(ErrorCode::kResourceExhausted, "an attach message of {} bytes; at most {} fit a frame", bytes.size(),
                kMaxAttachFrameBytes);
  std::string frame;
  frame.reserve(kLengthBytes + bytes.size());
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    frame.push_back(static_cast<char>((bytes.size() >> (8 * i)) & 0xff));
  frame.append(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  return frame;
}

base::Result<AttachMessage> decode_attach(std::string_view frame) {
  if (frame.empty() || frame.size() % kWordBytes != 0 || frame.size() > kMaxAttachFrameBytes)
    return fail(ErrorCode::kInvalidArgument, "an attach frame of {} bytes", frame.size());
  if (little_endian_32(frame.data()) >= kMaxSegments)
    return fail(ErrorCode::kInvalidArgument, "an attach frame of more than {} segments", kMaxSegments);
  // Cap'n Proto reads words: the frame is copied to where they are aligned.
  auto words = kj::heapArray<capnp::word>(frame.size() / kWordBytes);
  std::memcpy(words.begin(), frame.data(), frame.size());
  capnp::ReaderOptions options;
  options.traversalLimitInWords = kTraversalFactor * words.size();
  options.nestingLimit = kMaxDepth;
  try {
    capnp::FlatArrayMessageReader reader(words, options);
    const auto root = reader.getRoot<schema::Message>();
    if (root.getRevision() != kAttachRevision)
      return fail(ErrorCode::kUnsupported,
                  "attach protocol revision {}; this side speaks {}: use one release on a host", root.getRevision(),
                  kAttachRevision);
    return read(root);
  } catch (const kj::Exception& exception) {
    return fail(ErrorCode::kInvalidArgument, "a malformed attach frame: {}", exception.getDescription().cStr());
  }
}

base::Result<std::optional<std::string>> FrameCutter::next() {
  const std::size_t have = buffer_.size() - start_;
  if (have < kLengthBytes) return std::nullopt;
  const std::size_t length = little_endian_32(buffer_.data() + start_);
  if (length == 0 || length % kWordBytes != 0 || length > max_frame_bytes_)
    return fail(ErrorCode::kInvalidArgument, "a frame of {} bytes was announced; frames are multiples of {} up to {}",
                length, kWordBytes, max_frame_bytes_);
  if (have < kLengthBytes + length) return std::nullopt;
  std::string frame = buffer_.substr(start_ + kLengthBytes, length);
  start_ += kLengthBytes + length;
  // Compacted only when it halves the buffer: many small frames in one read stay linear.
  if (start_ * 2 >= buffer_.size()) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  return frame;
}

}  // namespace weightbus::wire
