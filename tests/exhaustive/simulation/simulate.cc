#include "simulation/simulate.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <tuple>

#include "weightbus/base/prng.h"

namespace weightbus::testing {
namespace {

using model::Box;
using model::Dims;
using model::DType;

std::uint64_t element_value(const std::string& name, std::uint64_t index, DType dtype) {
  const auto value = base::splitmix64(base::hash128(name.data(), name.size()).low + index);
  // As a 16-bit float widened, so that narrowing it is exact.
  return dtype == DType::kF32 ? (value & 0xffff) << 16 : value;
}

// Calls use(coordinates within the tensor) for each element of a box, row-major.
void for_each(const Box& box, const std::function<void(const Dims&)>& use) {
  if (box.empty()) return;
  Dims at = box.offset;
  while (true) {
    use(at);
    std::size_t d = box.rank();
    while (d > 0) {
      --d;
      if (++at[d] < box.offset[d] + box.extent[d]) break;
      at[d] = box.offset[d];
      if (d == 0) return;
    }
    if (box.rank() == 0) return;
  }
}

std::uint64_t flat(const Dims& at, const Dims& shape) {
  std::uint64_t index = 0;
  for (std::size_t d = 0; d < shape.size(); ++d)
    index = index * static_cast<std::uint64_t>(shape[d]) + static_cast<std::uint64_t>(at[d]);
  return index;
}

std::uint64_t address(const model::Placement& place, const Box& box, const Dims& at, std::uint32_t element_bytes) {
  std::int64_t element = 0;
  for (std::size_t d = 0; d < box.rank(); ++d)
    element += (at[d] - box.offset[d]) * place.strides[d];
  return place.offset + static_cast<std::uint64_t>(element) * element_bytes;
}

model::Placement place_box(std::vector<std::uint64_t>& regions, const Box& box, std::uint32_t element_bytes,
                           bool transposed, std::int64_t pad) {
  Dims strides = Dims::filled(box.rank(), 1);
  std::int64_t next = 1;
  for (std::size_t i = 0; i < box.rank(); ++i) {
    const auto d = transposed ? i : box.rank() - 1 - i;
    strides[d] = next;
    next *= std::max<std::int64_t>(box.extent[d], 1);
    if (i == 0) next += pad;
  }
  const std::uint64_t offset = 3;  // addresses need no alignment
  regions.push_back(offset + *model::span_bytes(box, strides, element_bytes) + 5);
  return {static_cast<std::uint32_t>(regions.size() - 1), offset, strides};
}

std::uint64_t cast_value(std::uint64_t value, model::Cast cast) {
  if (cast == model::Cast::kBF16ToF32) return value << 16;
  if (cast == model::Cast::kF32ToBF16) return value >> 16;
  return value;
}

std::uint64_t load(const std::byte* from, std::uint32_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  return value;
}

class Check {
 public:
  Check(Fleet& fleet, std::uint64_t bucket_bytes) : fleet_(fleet), bucket_bytes_(bucket_bytes) {}

  std::string run() {
    fill(fleet_);
    for (const auto& rank : fleet_.sources) {
      if (auto status = model::validate(rank.manifest); !status) return rank.id + ": " + status.error().message;
    }
    for (const auto& rank : fleet_.sinks) {
      if (auto status = model::validate(rank.manifest); !status) return rank.id + ": " + status.error().message;
    }
    const auto sources = fleet_.plan_sources();
    const auto sinks = fleet_.plan_sinks();
    auto planned = plan::plan(sources, sinks, {bucket_bytes_});
    if (!planned) return planned.error().message;
    plan_ = *planned;
    for (std::size_t s = 0; s < fleet_.sources.size(); ++s)
      source_parts_.push_back(plan_->source_part(s));
    for (std::size_t s = 0; s < fleet_.sinks.size(); ++s)
      sink_parts_.push_back(plan_->sink_part(s));
    for (const auto& step :
         {&Check::parts_agree, &Check::copies_are_exact, &Check::digests_agree, &Check::damage_is_found}) {
      if (auto problem = (this->*step)(); !problem.empty()) return problem;
    }
    return "";
  }

 private:
  std::string parts_agree() {
    std::map<std::tuple<std::string, std::string, std::uint32_t>, const plan::Bucket*> sent;
    for (const auto& part : source_parts_) {
      for (const auto& bucket : part.buckets) {
        sent[{bucket.source.value(), bucket.sink.value(), bucket.index}] = &bucket;
      }
    }
    std::size_t received = 0;
    std::uint64_t total = 0;
    for (const auto& part : sink_parts_) {
      std::pair<std::string, std::uint32_t> expected{"", 0};
      std::uint64_t part_bytes = 0;
      for (const auto& bucket : part.buckets) {
        ++received;
        part_bytes += bucket.bytes;
        if (bucket.source.value() != expected.first) expected = {bucket.source.value(), 0};
        if (bucket.index != expected.second++) return "bucket indexes are not consecutive";
        const auto other = sent.find({bucket.source.value(), bucket.sink.value(), bucket.index});
        if (other == sent.end()) return "a sink expects a bucket that its source does not send";
        if (auto problem = same_bucket(bucket, *other->second, part); !problem.empty()) return problem;
      }
      if (part_bytes != part.bytes) return "the part's bytes are not the sum over its buckets";
      total += part_bytes;
    }
    if (received != sent.size()) return "a source sends a bucket that nobody expects";
    if (total != plan_->bytes()) return "the plan's bytes are not the sum over its parts";
    std::uint64_t linked = 0;
    std::uint64_t link_buckets = 0;
    for (const auto& link : plan_->links()) {
      linked += link.bytes;
      link_buckets += link.buckets;
    }
    return linked == total && link_buckets == received ? "" : "links() disagrees with the parts";
  }

  std::string same_bucket(const plan::Bucket& a, const plan::Bucket& b, const plan::SinkPart& part) {
    if (a.bytes != b.bytes || a.fragments.size() != b.fragments.size()) return "ends disagree about a bucket";
    if (a.bytes > bucket_bytes_ || a.bytes == 0) return fmt::format("a bucket of {} bytes", a.bytes);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < a.fragments.size(); ++i) {
      const auto& x = a.fragments[i];
      const auto& y = b.fragments[i];
      if (x.box != y.box || x.from != y.from || x.to != y.to || x.slot != y.slot)
        return "ends disagree about a fragment";
      bytes += x.box.volume() * model::dtype_size(part.tensors[x.tensor].dtype);
    }
    return bytes == a.bytes ? "" : "a bucket's bytes are not those of its fragments";
  }

  std::string copies_are_exact() {
    for (std::size_t s = 0; s < fleet_.sinks.size(); ++s) {
      auto& sink = fleet_.sinks[s];
      std::vector<std::vector<int>> writes;
      for (const auto& region : sink.regions)
        writes.emplace_back(region.size(), 0);
      for (const auto& bucket : sink_parts_[s].buckets) {
        const auto& source = source_named(bucket.source.value());
        for (const auto& fragment : bucket.fragments)
          copy(fragment, sink_parts_[s], source, sink, writes);
      }
      if (auto problem = check_memory(sink, writes); !problem.empty()) return problem;
    }
    return "";
  }

  const SourceRank& source_named(const std::string& id) const {
    for (const auto& source : fleet_.sources) {
      if (source.id == id) return source;
    }
    WB_ASSERT(false, "a bucket names a source of the plan");
  }

  void copy(const plan::Fragment& fragment, const plan::SinkPart& part, const SourceRank& source, SinkRank& sink,
            std::vector<std::vector<int>>& writes) {
    const auto& tensor = part.tensors[fragment.tensor];
    const auto from_bytes = model::dtype_size(tensor.source_dtype);
    const auto to_bytes = model::dtype_size(tensor.dtype);
    for_each(fragment.box, [&](const Dims& at) {
      const auto from = address(fragment.from, fragment.box, at, from_bytes);
      const auto to = address(fragment.to, fragment.box, at, to_bytes);
      const auto value = cast_value(load(&source.regions[fragment.from.region].at(from), from_bytes), tensor.cast);
      (void)source.regions[fragment.from.region].at(from + from_bytes - 1);
      (void)sink.regions[fragment.to.region].at(to + to_bytes - 1);
      std::memcpy(&sink.regions[fragment.to.region][to], &value, to_bytes);
      for (std::uint32_t i = 0; i < to_bytes; ++i)
        ++writes[fragment.to.region][to + i];
    });
  }

  std::string check_memory(const SinkRank& sink, std::vector<std::vector<int>>& writes) {
    for (const auto& slot : sink.manifest.slots) {
      if (slot.kind != model::SlotKind::kRaw) continue;
      const auto& tensor = sink.manifest.tensors[slot.tensor];
      const auto bytes = model::dtype_size(tensor.dtype);
      std::string problem;
      for_each(slot.box, [&](const Dims& at) {
        const auto to = address(slot.at, slot.box, at, bytes);
        const auto mask = bytes == 8 ? ~0ULL : (1ULL << (8 * bytes)) - 1;
        const auto expected = expected_value(tensor, slot.cast, at) & mask;
        if (load(&sink.regions[slot.at.region][to], bytes) != expected)
          problem = "wrong content in '" + tensor.name + "'";
        for (std::uint32_t i = 0; i < bytes; ++i) {
          if (--writes[slot.at.region][to + i] != 0) problem = "'" + tensor.name + "' is not written exactly once";
        }
      });
      if (!problem.empty()) return problem + " at " + sink.id + " " + to_string(slot.box);
    }
    for (const auto& region : writes) {
      for (auto count : region) {
        if (count != 0) return "a byte outside every slot was written at " + sink.id;
      }
    }
    return "";
  }

  std::uint64_t expected_value(const model::TensorSpec& tensor, model::Cast cast, const Dims& at) const {
    const auto found = fleet_.content.find(tensor.name);
    const auto source_dtype = cast == model::Cast::kF32ToBF16   ? DType::kF32
                              : cast == model::Cast::kBF16ToF32 ? DType::kBF16
                                                                : tensor.dtype;
    auto value = element_value(found == fleet_.content.end() ? tensor.name : found->second, flat(at, tensor.shape),
                               source_dtype);
    if (source_dtype == DType::kBF16) value &= 0xffff;
    return cast_value(value, cast);
  }

  plan::Digest digest(const std::byte* data, const Dims& strides, const Box& box, const plan::PlannedTensor& tensor) {
    const auto seed = plan::digest_seed(tensor.name, tensor.shape, tensor.dtype, tensor.grain_bytes);
    return plan::digest_box(data, strides, model::dtype_size(tensor.dtype), box, tensor.shape, seed,
                            tensor.grain_bytes);
  }

  plan::Digest unit_digest(const SourceRank& source, const plan::DigestUnit& unit, const plan::PlannedTensor& tensor) {
    const auto from_bytes = model::dtype_size(tensor.source_dtype);
    const auto bytes = model::dtype_size(tensor.dtype);
    if (tensor.cast == model::Cast::kNone) {
      return digest(source.regions[unit.from.region].data() + unit.from.offset, unit.from.strides, unit.box, tensor);
    }
    std::vector<std::byte> packed;
    for_each(unit.box, [&](const Dims& at) {
      const auto value =
          cast_value(load(&source.regions[unit.from.region][address(unit.from, unit.box, at, from_bytes)], from_bytes),
                     tensor.cast);
      packed.resize(packed.size() + bytes);
      std::memcpy(packed.data() + packed.size() - bytes, &value, bytes);
    });
    return digest(packed.data(), model::dense_strides(unit.box.extent), unit.box, tensor);
  }

  std::string digests_agree() {
    for (std::size_t s = 0; s < fleet_.sources.size(); ++s) {
      auto& digests = unit_digests_.emplace_back();
      for (const auto& unit : source_parts_[s].units) {
        const auto& tensor = source_parts_[s].tensors[unit.tensor];
        if (auto problem = check_grain(unit.box, tensor); !problem.empty()) return problem;
        digests.push_back(unit_digest(fleet_.sources[s], unit, tensor));
        if (unit.primary) primary_volume_[tensor.name] += unit.box.volume();
      }
    }
    for (std::size_t s = 0; s < fleet_.sinks.size(); ++s) {
      slot_digests_.push_back(sink_digests(s));
      const auto mismatches = plan_->compare(unit_digests_, s, slot_digests_.back());
      if (!mismatches) return mismatches.error().message;
      if (!mismatches->empty()) return "an exact copy does not compare equal: " + mismatches->front().tensor;
    }
    return version_digest_is_whole();
  }

  std::string check_grain(const Box& box, const plan::PlannedTensor& tensor) {
    if (box.rank() == 0) return "";
    const auto last = box.rank() - 1;
    const auto bytes = model::dtype_size(tensor.dtype);
    const bool divides =
        box.offset[last] * bytes % tensor.grain_bytes == 0 && box.extent[last] * bytes % tensor.grain_bytes == 0;
    return divides ? ""
                   : fmt::format("the grain {} does not divide {} of '{}'", tensor.grain_bytes, to_string(box),
                                 tensor.name);
  }

  std::vector<plan::Digest> sink_digests(std::size_t s) {
    std::vector<plan::Digest> digests;
    const auto& sink = fleet_.sinks[s];
    for (const auto& row : sink_parts_[s].slots) {
      const auto& slot = sink.manifest.slots[row.slot];
      digests.push_back(digest(sink.regions[slot.at.region].data() + slot.at.offset, slot.at.strides, slot.box,
                               sink_parts_[s].tensors[row.tensor]));
    }
    return digests;
  }

  // Where the primary units are the whole tensor, the version digest is that of the tensor uncut.
  std::string version_digest_is_whole() {
    const auto versions = plan_->version_digest(unit_digests_);
    if (!versions) return versions.error().message;
    for (const auto& [name, expected] : *versions) {
      const plan::PlannedTensor* tensor = nullptr;
      for (const auto& part : sink_parts_) {
        for (const auto& candidate : part.tensors) {
          if (candidate.name == name && (!tensor || candidate.cast < tensor->cast)) tensor = &candidate;
        }
      }
      if (!tensor) return "the version digest names a tensor that no sink has";
      const auto whole = Box::whole(tensor->shape);
      if (primary_volume_[name] > whole.volume()) return "primary units overlap";
      if (primary_volume_[name] != whole.volume()) continue;
      std::vector<std::byte> data;
      const auto bytes = model::dtype_size(tensor->dtype);
      for_each(whole, [&](const Dims& at) {
        const auto value = expected_value({name, tensor->dtype, tensor->shape}, tensor->cast, at);
        data.resize(data.size() + bytes);
        std::memcpy(data.data() + data.size() - bytes, &value, bytes);
      });
      if (digest(data.data(), model::dense_strides(tensor->shape), whole, *tensor) != expected) {
        return "the version digest of '" + name + "' is not that of its content";
      }
    }
    return "";
  }

  std::string damage_is_found() {
    for (std::size_t s = 0; s < fleet_.sinks.size(); ++s) {
      if (sink_parts_[s].slots.empty()) continue;
      const auto row = sink_parts_[s].slots.size() / 2;
      auto& sink = fleet_.sinks[s];
      const auto& slot = sink.manifest.slots[sink_parts_[s].slots[row].slot];
      sink.regions[slot.at.region][slot.at.offset] ^= std::byte{0x80};
      const auto mismatches = plan_->compare(unit_digests_, s, sink_digests(s));
      sink.regions[slot.at.region][slot.at.offset] ^= std::byte{0x80};
      if (!mismatches || mismatches->size() != 1 || mismatches->front().box != slot.box)
        return "a damaged byte was missed";
    }
    return "";
  }

  Fleet& fleet_;
  std::uint64_t bucket_bytes_;
  std::shared_ptr<const plan::ReshardPlan> plan_;
  std::vector<plan::SourcePart> source_parts_;
  std::vector<plan::SinkPart> sink_parts_;
  std::vector<std::vector<plan::Digest>> unit_digests_;
  std::vector<std::vector<plan::Digest>> slot_digests_;
  std::map<std::string, std::uint64_t> primary_volume_;
};

}  // namespace

std::vector<plan::PlanSource> Fleet::plan_sources() const {
  std::vector<plan::PlanSource> result;
  for (const auto& rank : sources)
    result.push_back({model::MemberId(rank.id), model::HostId(rank.host), "", &rank.manifest});
  return result;
}

std::vector<plan::PlanSink> Fleet::plan_sinks() const {
  std::vector<plan::PlanSink> result;
  for (const auto& rank : sinks)
    result.push_back({model::MemberId(rank.id), model::HostId(rank.host), "", &rank.manifest});
  return result;
}

std::uint32_t tensor_index(std::vector<model::TensorSpec>& tensors, const std::string& name, DType dtype,
                           const Dims& shape) {
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return i;
  }
  tensors.push_back({name, dtype, shape});
  return static_cast<std::uint32_t>(tensors.size() - 1);
}

void add_shard(SourceRank& rank, const std::string& name, DType dtype, const Dims& shape, const Box& box,
               bool transposed, std::int64_t pad) {
  const auto tensor = tensor_index(rank.manifest.tensors, name, dtype, shape);
  rank.manifest.shards.push_back(
      {tensor, box, place_box(rank.manifest.region_bytes, box, model::dtype_size(dtype), transposed, pad)});
}

void add_slot(SinkRank& rank, const std::string& name, DType dtype, const Dims& shape, const Box& box, model::Cast cast,
              bool transposed, std::int64_t pad) {
  const auto tensor = tensor_index(rank.manifest.tensors, name, dtype, shape);
  const auto at = place_box(rank.manifest.region_bytes, box, model::dtype_size(dtype), transposed, pad);
  rank.manifest.slots.push_back({tensor, box, at, model::SlotKind::kRaw, cast, 0, name});
}

void fill(Fleet& fleet) {
  for (auto& rank : fleet.sources) {
    rank.regions.clear();
    for (auto bytes : rank.manifest.region_bytes)
      rank.regions.emplace_back(bytes, std::byte{0xaa});
    for (const auto& shard : rank.manifest.shards) {
      const auto& tensor = rank.manifest.tensors[shard.tensor];
      const auto found = fleet.content.find(tensor.name);
      const auto& name = found == fleet.content.end() ? tensor.name : found->second;
      const auto bytes = model::dtype_size(tensor.dtype);
      for_each(shard.box, [&](const Dims& at) {
        const auto value = element_value(name, flat(at, tensor.shape), tensor.dtype);
        std::memcpy(&rank.regions[shard.at.region].at(address(shard.at, shard.box, at, bytes)), &value, bytes);
      });
    }
  }
  for (auto& rank : fleet.sinks) {
    rank.regions.clear();
    for (auto bytes : rank.manifest.region_bytes)
      rank.regions.emplace_back(bytes, std::byte{0xee});
  }
}

std::string check_plan(Fleet& fleet, std::uint64_t bucket_bytes) { return Check(fleet, bucket_bytes).run(); }

}  // namespace weightbus::testing
