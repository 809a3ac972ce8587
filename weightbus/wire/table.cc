#include "weightbus/wire/table.h"

#include <fmt/format.h>

namespace weightbus::wire {
namespace {

using model::Dims;

std::size_t dims_words(const model::Box& box, const Dims& strides) {
  return box.offset.size() + box.extent.size() + strides.size();
}

class TableWriter {
 public:
  TableWriter(proto::Table::Builder to, std::size_t count, std::size_t words) : words_(to.initWords(checked(words))) {
    to.setCount(static_cast<std::uint32_t>(count));
  }
  void put(std::uint64_t word) { words_.set(next_++, word); }
  void put(std::uint32_t low, std::uint32_t high) { put(std::uint64_t{high} << 32 | low); }
  void put_head(std::uint32_t tensor, const model::Box& box, const Dims& strides, std::size_t second_strides = 0) {
    put(tensor, static_cast<std::uint32_t>(box.offset.size() | box.extent.size() << 8 | strides.size() << 16 |
                                           second_strides << 24));
  }
  void put(const Dims& dims) {
    for (auto value : dims)
      put(static_cast<std::uint64_t>(value));
  }
  void put(const model::Box& box) {
    put(box.offset);
    put(box.extent);
  }

 private:
  static unsigned checked(std::size_t words) {
    WB_ASSERT(words < (1ULL << 29), "a message never holds so many words");
    return static_cast<unsigned>(words);
  }
  NumberList::Builder words_;
  unsigned next_ = 0;
};

// Reads records in order. Anything wrong goes to Reading; reads after that return zeros.
class TableReader {
 public:
  struct Head {
    std::uint32_t tensor;
    std::uint32_t ranks;  // four times 8 bits
  };
  TableReader(Reading& in, proto::Table::Reader from, std::size_t record_bytes, const char* what)
      : in_(in), words_(from.getWords()), what_(what) {
    const std::uint32_t count = from.getCount();
    // Every record has at least three words, so a count past that lies.
    if (count > words_.size() / 3) {
      in_.fail(base::ErrorCode::kCorrupted,
               fmt::format("table of {} claims {} records in {} words", what, count, words_.size()));
    } else if (in_.admit(count, record_bytes, what)) {
      count_ = count;
    }
  }
  std::size_t count() const { return count_; }
  std::uint64_t take() {
    if (next_ < words_.size()) return words_[next_++];
    in_.fail(base::ErrorCode::kCorrupted, fmt::format("table of {} ends inside a record", what_));
    return 0;
  }
  // A word whose bits from `used` on must be zero.
  std::uint64_t take(unsigned used) {
    const std::uint64_t word = take();
    if (word >> used != 0) {
      in_.fail(base::ErrorCode::kCorrupted, fmt::format("table of {} sets bits that have no meaning", what_));
    }
    return word;
  }
  std::uint32_t take_low() { return static_cast<std::uint32_t>(take(32)); }
  Head take_head(bool second_strides) {
    const std::uint64_t word = take();
    const Head head{static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32)};
    const std::uint32_t rank = head.ranks & 0xff;
    // Equal ranks throughout: code that walks a box walks its strides with it.
    const std::uint32_t wanted = rank * (second_strides ? 0x01010101U : 0x00010101U);
    if (in_.ok() && (rank > model::kMaxDims || head.ranks != wanted)) {
      in_.fail(
          base::ErrorCode::kCorrupted,
          fmt::format("a record in the table of {} has dimensions {:#010x}: more than {}, or a box and strides that "
                      "differ in their number",
                      what_, head.ranks, model::kMaxDims));
    }
    return in_.ok() ? head : Head{0, 0};
  }
  Dims take_dims(const Head& head) {
    Dims dims;
    for (std::uint32_t i = head.ranks & 0xff; i > 0; --i)
      dims.push_back(static_cast<std::int64_t>(take()));
    return dims;
  }
  model::Box take_box(const Head& head) {
    Dims offset = take_dims(head);
    return model::Box{offset, take_dims(head)};
  }
  // After the last record.
  void finish() {
    if (in_.ok() && next_ != words_.size()) {
      in_.fail(base::ErrorCode::kCorrupted,
               fmt::format("table of {} has {} words after its last record", what_, words_.size() - next_));
    }
  }

 private:
  Reading& in_;
  NumberList::Reader words_;
  const char* what_;
  std::size_t count_ = 0;
  unsigned next_ = 0;
};

}  // namespace

void write_shards(proto::Table::Builder to, const std::vector<model::Shard>& from) {
  std::size_t words = 0;
  for (const auto& shard : from)
    words += 3 + dims_words(shard.box, shard.at.strides);
  TableWriter table(to, count_of(from), words);
  for (const auto& shard : from) {
    table.put_head(shard.tensor, shard.box, shard.at.strides);
    table.put(shard.at.region);
    table.put(shard.at.offset);
    table.put(shard.box);
    table.put(shard.at.strides);
  }
}

std::vector<model::Shard> read_shards(Reading& in, proto::Table::Reader from) {
  TableReader table(in, from, sizeof(model::Shard), "shards");
  std::vector<model::Shard> shards;
  shards.reserve(table.count());
  for (std::size_t i = 0; i < table.count() && in.ok(); ++i) {
    const auto head = table.take_head(false);
    model::Shard shard{head.tensor, {}, {}};
    shard.at.region = table.take_low();
    shard.at.offset = table.take();
    shard.box = table.take_box(head);
    shard.at.strides = table.take_dims(head);
    shards.push_back(shard);
  }
  table.finish();
  return shards;
}

void write_slots(proto::Table::Builder to, const std::vector<model::Slot>& from) {
  std::size_t words = 0;
  for (const auto& slot : from)
    words += 3 + dims_words(slot.box, slot.at.strides);
  TableWriter table(to, count_of(from), words);
  for (const auto& slot : from) {
    table.put_head(slot.tensor, slot.box, slot.at.strides);
    table.put(slot.at.region, static_cast<std::uint32_t>(slot.kind) | static_cast<std::uint32_t>(slot.cast) << 8 |
                                  std::uint32_t{slot.fill} << 16);
    table.put(slot.at.offset);
    table.put(slot.box);
    table.put(slot.at.strides);
  }
}

std::vector<model::Slot> read_slots(Reading& in, proto::Table::Reader from) {
  TableReader table(in, from, sizeof(model::Slot), "slots");
  std::vector<model::Slot> slots;
  slots.reserve(table.count());
  for (std::size_t i = 0; i < table.count() && in.ok(); ++i) {
    const auto head = table.take_head(false);
    model::Slot slot{head.tensor, {}, {}, model::SlotKind::kRaw, model::Cast::kNone, 0, {}};
    const std::uint64_t word = table.take(56);
    slot.at.region = static_cast<std::uint32_t>(word);
    slot.kind = in.enumerant<model::SlotKind>(word >> 32 & 0xff, "slot kind");
    slot.cast = in.enumerant<model::Cast>(word >> 40 & 0xff, "slot cast");
    slot.fill = static_cast<std::uint8_t>(word >> 48 & 0xff);
    slot.at.offset = table.take();
    slot.box = table.take_box(head);
    slot.at.strides = table.take_dims(head);
    slots.push_back(std::move(slot));
  }
  table.finish();
  return slots;
}

void write_units(proto::Table::Builder to, const std::vector<plan::DigestUnit>& from) {
  std::size_t words = 0;
  for (const auto& unit : from)
    words += 3 + dims_words(unit.box, unit.from.strides);
  TableWriter table(to, count_of(from), words);
  for (const auto& unit : from) {
    table.put_head(unit.tensor, unit.box, unit.from.strides);
    table.put(unit.from.region, unit.primary ? 1 : 0);
    table.put(unit.from.offset);
    table.put(unit.box);
    table.put(unit.from.strides);
  }
}

std::vector<plan::DigestUnit> read_units(Reading& in, proto::Table::Reader from) {
  TableReader table(in, from, sizeof(plan::DigestUnit), "digest units");
  std::vector<plan::DigestUnit> units;
  units.reserve(table.count());
  for (std::size_t i = 0; i < table.count() && in.ok(); ++i) {
    const auto head = table.take_head(false);
    plan::DigestUnit unit{head.tensor, {}, {}, false};
    const std::uint64_t word = table.take(33);
    unit.from.region = static_cast<std::uint32_t>(word);
    unit.primary = word >> 32 != 0;
    unit.from.offset = table.take();
    unit.box = table.take_box(head);
    unit.from.strides = table.take_dims(head);
    units.push_back(unit);
  }
  table.finish();
  return units;
}

void write_fragments(proto::Table::Builder to, const std::vector<plan::Fragment>& from) {
  std::size_t words = 0;
  for (const auto& fragment : from) {
    words += 5 + dims_words(fragment.box, fragment.from.strides) + fragment.to.strides.size();
  }
  TableWriter table(to, count_of(from), words);
  for (const auto& fragment : from) {
    table.put_head(fragment.tensor, fragment.box, fragment.from.strides, fragment.to.strides.size());
    table.put(fragment.from.region, fragment.to.region);
    table.put(fragment.from.offset);
    table.put(fragment.to.offset);
    table.put(fragment.slot);
    table.put(fragment.box);
    table.put(fragment.from.strides);
    table.put(fragment.to.strides);
  }
}

std::vector<plan::Fragment> read_fragments(Reading& in, proto::Table::Reader from) {
  TableReader table(in, from, sizeof(plan::Fragment), "fragments");
  std::vector<plan::Fragment> fragments;
  fragments.reserve(table.count());
  for (std::size_t i = 0; i < table.count() && in.ok(); ++i) {
    const auto head = table.take_head(true);
    plan::Fragment fragment{head.tensor, {}, {}, {}, 0};
    const std::uint64_t regions = table.take();
    fragment.from.region = static_cast<std::uint32_t>(regions);
    fragment.to.region = static_cast<std::uint32_t>(regions >> 32);
    fragment.from.offset = table.take();
    fragment.to.offset = table.take();
    fragment.slot = table.take_low();
    fragment.box = table.take_box(head);
    fragment.from.strides = table.take_dims(head);
    fragment.to.strides = table.take_dims(head);
    fragments.push_back(fragment);
  }
  table.finish();
  return fragments;
}

}  // namespace weightbus::wire
