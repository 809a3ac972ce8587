#include "weightbus/plan/compiled_plan.h"

#include <algorithm>
#include <utility>

#include "weightbus/base/assert.h"
#include "weightbus/base/checked_math.h"
#include "weightbus/model/hashing.h"
#include "weightbus/plan/buckets.h"

namespace weightbus::plan {

using base::ErrorCode;
using base::fail;
using model::Box;

namespace {

constexpr std::uint64_t kMaxPairBuckets = 1U << 20;

}  // namespace

class CompiledPlan::LocalTensors {
 public:
  // `wanted`: numbers in the tables, in any order and repeated.
  LocalTensors(const Tables& tables, std::vector<std::uint32_t> wanted) : numbers_(std::move(wanted)) {
    std::sort(numbers_.begin(), numbers_.end());
    numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
    planned_.reserve(numbers_.size());
    for (const auto number : numbers_)
      planned_.push_back(tables.tensors[number].planned);
  }
  std::uint32_t at(std::uint32_t number) const {
    const auto found = std::lower_bound(numbers_.begin(), numbers_.end(), number);
    WB_ASSERT(found != numbers_.end() && *found == number, "a part names only its own tensors");
    return static_cast<std::uint32_t>(found - numbers_.begin());
  }
  std::vector<PlannedTensor> take() { return std::move(planned_); }

 private:
  std::vector<std::uint32_t> numbers_;
  std::vector<PlannedTensor> planned_;
};

CompiledPlan::CompiledPlan(std::vector<model::MemberId> sources, std::vector<model::MemberId> sinks,
                           std::uint64_t bucket_bytes, Tables tables)
    : sources_(std::move(sources)), sinks_(std::move(sinks)), bucket_bytes_(bucket_bytes), tables_(std::move(tables)) {}

base::Result<std::shared_ptr<const CompiledPlan>> CompiledPlan::make(std::vector<model::MemberId> sources,
                                                                     std::vector<model::MemberId> sinks,
                                                                     std::uint64_t bucket_bytes, Tables tables) {
  std::shared_ptr<CompiledPlan> plan(
      new CompiledPlan(std::move(sources), std::move(sinks), bucket_bytes, std::move(tables)));
  plan->tables_.index_members(plan->sources_.size(), plan->sinks_.size());
  WB_TRY(plan->check_sizes());
  plan->hash_ = plan->compute_hash();
  return plan;
}

base::Status CompiledPlan::check_sizes() {
  for (std::size_t sink = 0; sink < sinks_.size(); ++sink) {
    std::optional<std::uint64_t> sum = 0;
    for (const auto e : tables_.sink_entries[sink]) {
      const auto& slot_class = tables_.slot_classes[tables_.entries[e].slot_class];
      const auto bytes = tables_.volume(slot_class.box, slot_class.tensor) *
                         model::dtype_size(tables_.tensors[slot_class.tensor].planned.dtype);
      sum = sum ? base::checked_add(*sum, bytes) : sum;
    }
    if (!sum || *sum / bucket_bytes_ > kMaxPairBuckets) {
      return fail(ErrorCode::kInvalidArgument,
                  "'{}' would receive more than {} buckets of {} bytes; raise the bucket size", sinks_[sink].value(),
                  kMaxPairBuckets, bucket_bytes_);
    }
    const auto total = base::checked_add(bytes_, *sum);
    if (!total) return fail(ErrorCode::kInvalidArgument, "the plan moves more than 2^64 bytes");
    bytes_ = *total;
  }
  return {};
}

// Everything that both ends must agree on. Hashes of tensors are hashed, so that the memory stays small.
base::Hash128 CompiledPlan::compute_hash() const {
  base::Hasher all;
  all.add("weightbus plan 1");
  all.add(bucket_bytes_);
  all.add(sources_.size());
  for (const auto& id : sources_)
    all.add(id.value());
  all.add(sinks_.size());
  for (const auto& id : sinks_)
    all.add(id.value());
  const auto add_box = [&](base::Hasher& hasher, std::uint64_t at, std::uint32_t tensor) {
    const auto rank = tables_.tensors[tensor].planned.shape.size();
    for (std::size_t i = 0; i < 2 * rank; ++i)
      hasher.add(tables_.numbers[at + i]);
  };
  const auto add_place = [&](base::Hasher& hasher, const Place& at) {
    hasher.add(at.region);
    hasher.add(at.offset);
    hasher.add(at.strides);
  };
  for (const auto& strides : tables_.strides)
    model::add(all, strides);
  std::uint32_t slot_class = 0;
  for (std::uint32_t tensor = 0; tensor < tables_.tensors.size(); ++tensor) {
    base::Hasher hasher;
    const auto& planned = tables_.tensors[tensor].planned;
    hasher.add(planned.name);
    hasher.add(planned.source_dtype);
    hasher.add(planned.dtype);
    hasher.add(planned.cast);
    model::add(hasher, planned.shape);
    hasher.add(planned.grain_bytes);
    for (; slot_class < tables_.slot_classes.size() && tables_.slot_classes[slot_class].tensor == tensor;
         ++slot_class) {
      const auto entries = tables_.entries_of(slot_class);
      add_box(hasher, tables_.slot_classes[slot_class].box, tensor);
      hasher.add(entries.end - entries.begin);
      for (auto e = entries.begin; e < entries.end; ++e) {
        hasher.add(tables_.entries[e].sink);
        hasher.add(tables_.entries[e].slot);
        add_place(hasher, tables_.entries[e].at);
      }
      const auto pieces = tables_.pieces_of(slot_class);
      hasher.add(pieces.end - pieces.begin);
      for (auto p = pieces.begin; p < pieces.end; ++p) {
        const auto& piece = tables_.pieces[p];
        add_box(hasher, piece.box, tensor);
        add_box(hasher, tables_.shard_classes[piece.shard_class].box, tensor);
        const auto last = piece.choices == kOneHolder ? entries.begin + 1 : entries.end;
        for (auto e = entries.begin; e < last; ++e) {
          const auto& holder = tables_.holders[tables_.chosen_holder(p, e)];
          hasher.add(holder.source);
          add_place(hasher, holder.at);
        }
        for (const auto cell : tables_.cells_of(p))
          add_box(hasher, tables_.cells[cell].box, tensor);
      }
    }
    all.add(hasher.finish());
  }
  return all.finish();
}

std::vector<CompiledPlan::Uses> CompiledPlan::uses_of_source(std::size_t source) const {
  std::vector<Uses> by_sink(sinks_.size());
  for (const auto holder : tables_.source_holders[source]) {
    const auto shard_class = tables_.holders[holder].shard_class;
    for (auto at = tables_.shard_class_pieces_begin[shard_class];
         at < tables_.shard_class_pieces_begin[shard_class + 1]; ++at) {
      const auto piece = tables_.shard_class_pieces[at];
      const auto entries = tables_.entries_of(tables_.pieces[piece].slot_class);
      for (auto e = entries.begin; e < entries.end; ++e) {
        if (tables_.chosen_holder(piece, e) == holder) by_sink[tables_.entries[e].sink].push_back({e, piece});
      }
    }
  }
  for (auto& uses : by_sink) {
    std::sort(uses.begin(), uses.end(),
              [](const Use& a, const Use& b) { return a.entry != b.entry ? a.entry < b.entry : a.piece < b.piece; });
  }
  return by_sink;
}

std::vector<CompiledPlan::Uses> CompiledPlan::uses_of_sink(std::size_t sink) const {
  std::vector<Uses> by_source(sources_.size());
  for (const auto e : tables_.sink_entries[sink]) {
    const auto pieces = tables_.pieces_of(tables_.entries[e].slot_class);
    for (auto p = pieces.begin; p < pieces.end; ++p) {
      by_source[tables_.holders[tables_.chosen_holder(p, e)].source].push_back({e, p});
    }
  }
  return by_source;
}

void CompiledPlan::cut(Uses uses, const std::function<void()>& begin_bucket,
                       const std::function<void(const Use&, const Box&, std::uint64_t)>& part) const {
  // Sizes that are no multiple of 16 come last, so that they shift nobody.
  std::stable_partition(uses.begin(), uses.end(),
                        [&](const Use& use) { return tables_.piece_bytes(use.piece) % kBucketAlignment == 0; });
  const Use* current = nullptr;
  BucketCutter cutter(bucket_bytes_, begin_bucket,
                      [&](const Box& box, std::uint64_t bytes) { part(*current, box, bytes); });
  for (const auto& use : uses) {
    current = &use;
    const auto tensor = tables_.tensor_of_piece(use.piece);
    cutter.add(tables_.box(tables_.pieces[use.piece].box, tensor),
               model::dtype_size(tables_.tensors[tensor].planned.dtype));
  }
}

Fragment CompiledPlan::fragment(const Use& use, const Box& box, LocalTensors& local) const {
  const auto& entry = tables_.entries[use.entry];
  const auto& slot_class = tables_.slot_classes[entry.slot_class];
  const auto& holder = tables_.holders[tables_.chosen_holder(use.piece, use.entry)];
  const auto tensor = slot_class.tensor;
  const auto& planned = tables_.tensors[tensor].planned;
  const auto shard_box = tables_.box(tables_.shard_classes[holder.shard_class].box, tensor);
  const auto slot_box = tables_.box(slot_class.box, tensor);
  return Fragment{local.at(tensor), box,
                  tables_.placement(holder.at, shard_box, box, model::dtype_size(planned.source_dtype)),
                  tables_.placement(entry.at, slot_box, box, model::dtype_size(planned.dtype)), entry.slot};
}

void CompiledPlan::append_buckets(std::size_t source, std::size_t sink, Uses uses, LocalTensors& local,
                                  std::vector<Bucket>& buckets) const {
  std::uint32_t index = 0;
  cut(
      std::move(uses),
      [&] {
        buckets.push_back(Bucket{index++, sources_[source], sinks_[sink], 0, {}});
      },
      [&](const Use& use, const Box& box, std::uint64_t bytes) {
        buckets.back().bytes += bytes;
        buckets.back().fragments.push_back(fragment(use, box, local));
      });
}

SourcePart CompiledPlan::source_part(std::size_t source) const {
  WB_ASSERT(source < sources_.size(), "no such source");
  auto by_sink = uses_of_source(source);
  std::vector<std::uint32_t> wanted;
  for (const auto u : tables_.source_units[source])
    wanted.push_back(tables_.cells[tables_.units[u].cell].tensor);
  LocalTensors local(tables_, std::move(wanted));
  SourcePart part;
  part.plan_hash = hash_;
  part.units.reserve(tables_.source_units[source].size());
  for (const auto u : tables_.source_units[source]) {
    const auto& unit = tables_.units[u];
    const auto& cell = tables_.cells[unit.cell];
    const auto& holder = tables_.holders[unit.holder];
    const auto& tensor = tables_.tensors[cell.tensor];
    const auto box = tables_.box(cell.box, cell.tensor);
    const auto whole = tables_.box(tables_.shard_classes[holder.shard_class].box, cell.tensor);
    part.units.push_back({local.at(cell.tensor), box,
                          tables_.placement(holder.at, whole, box, model::dtype_size(tensor.planned.source_dtype)),
                          tensor.primary && u == cell.units});
  }
  for (std::size_t sink = 0; sink < sinks_.size(); ++sink) {
    append_buckets(source, sink, std::move(by_sink[sink]), local, part.buckets);
  }
  part.tensors = local.take();
  return part;
}

SinkPart CompiledPlan::sink_part(std::size_t sink) const {
  WB_ASSERT(sink < sinks_.size(), "no such sink");
  auto by_source = uses_of_sink(sink);
  std::vector<std::uint32_t> wanted;
  for (const auto e : tables_.sink_entries[sink])
    wanted.push_back(tables_.slot_classes[tables_.entries[e].slot_class].tensor);
  LocalTensors local(tables_, std::move(wanted));
  SinkPart part;
  part.plan_hash = hash_;
  for (const auto e : tables_.sink_entries[sink]) {
    const auto& entry = tables_.entries[e];
    part.slots.push_back({entry.slot, local.at(tables_.slot_classes[entry.slot_class].tensor)});
  }
  for (std::size_t source = 0; source < sources_.size(); ++source) {
    append_buckets(source, sink, std::move(by_source[source]), local, part.buckets);
  }
  for (const auto& bucket : part.buckets)
    part.bytes += bucket.bytes;
  part.tensors = local.take();
  return part;
}

std::vector<Link> CompiledPlan::links() const {
  std::vector<std::uint64_t> piece_bytes(tables_.pieces.size());
  for (std::uint32_t p = 0; p < tables_.pieces.size(); ++p)
    piece_bytes[p] = tables_.piece_bytes(p);
  std::vector<Link> links;
  for (std::size_t sink = 0; sink < sinks_.size(); ++sink) {
    std::vector<std::uint64_t> bytes(sources_.size(), 0);
    for (const auto e : tables_.sink_entries[sink]) {
      const auto pieces = tables_.pieces_of(tables_.entries[e].slot_class);
      for (auto p = pieces.begin; p < pieces.end; ++p) {
        bytes[tables_.holders[tables_.chosen_holder(p, e)].source] += piece_bytes[p];
      }
    }
    // Most pairs fit into one bucket; only the others are cut to be counted.
    const auto most = bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
    std::vector<Uses> by_source;
    if (most > bucket_bytes_) by_source = uses_of_sink(sink);
    for (std::size_t source = 0; source < sources_.size(); ++source) {
      if (bytes[source] == 0) continue;
      Link link{static_cast<std::uint32_t>(source), static_cast<std::uint32_t>(sink), bytes[source], 1};
      if (bytes[source] > bucket_bytes_) {
        link.buckets = 0;
        cut(
            std::move(by_source[source]), [&] { ++link.buckets; }, [](const Use&, const Box&, std::uint64_t) {});
      }
      links.push_back(link);
    }
  }
  std::stable_sort(links.begin(), links.end(), [](const Link& a, const Link& b) { return a.source < b.source; });
  return links;
}

base::Status CompiledPlan::check_unit_digests(const std::vector<std::vector<Digest>>& digests) const {
  if (digests.size() != sources_.size()) {
    return fail(ErrorCode::kInvalidArgument, "digests of {} sources were given, the plan has {}", digests.size(),
                sources_.size());
  }
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    if (digests[s].size() != tables_.source_units[s].size()) {
      return fail(ErrorCode::kInvalidArgument, "'{}' reported {} digests for {} units", sources_[s].value(),
                  digests[s].size(), tables_.source_units[s].size());
    }
  }
  return {};
}

Digest CompiledPlan::expected(std::uint32_t entry, const std::vector<std::vector<Digest>>& unit_digests) const {
  Digest sum;
  const auto pieces = tables_.pieces_of(tables_.entries[entry].slot_class);
  for (auto p = pieces.begin; p < pieces.end; ++p) {
    const auto source = tables_.holders[tables_.chosen_holder(p, entry)].source;
    for (const auto cell : tables_.cells_of(p)) {
      const auto range = tables_.units_of(cell);
      const auto begin = tables_.units.begin() + range.begin;
      const auto unit = std::lower_bound(begin, tables_.units.begin() + range.end, source,
                                         [](const Unit& u, std::uint32_t value) { return u.source < value; });
      WB_ASSERT(unit != tables_.units.begin() + range.end && unit->source == source, "every use has its unit");
      sum = sum + unit_digests[source][unit->index];
    }
  }
  return sum;
}

base::Result<std::vector<Mismatch>> CompiledPlan::compare(const std::vector<std::vector<Digest>>& unit_digests,
                                                          std::size_t sink,
                                                          std::span<const Digest> slot_digests) const {
  WB_TRY(check_unit_digests(unit_digests));
  if (sink >= sinks_.size()) return fail(ErrorCode::kInvalidArgument, "the plan has no sink {}", sink);
  const auto& entries = tables_.sink_entries[sink];
  if (slot_digests.size() != entries.size()) {
    return fail(ErrorCode::kInvalidArgument, "'{}' reported {} digests for {} slots", sinks_[sink].value(),
                slot_digests.size(), entries.size());
  }
  std::vector<Mismatch> mismatches;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (expected(entries[i], unit_digests) == slot_digests[i]) continue;
    const auto& slot_class = tables_.slot_classes[tables_.entries[entries[i]].slot_class];
    mismatches.push_back({sinks_[sink], tables_.tensors[slot_class.tensor].planned.name,
                          tables_.box(slot_class.box, slot_class.tensor)});
  }
  return mismatches;
}

base::Result<std::vector<std::pair<std::string, Digest>>> CompiledPlan::version_digest(
    const std::vector<std::vector<Digest>>& element_digests) const {
  WB_TRY(check_unit_digests(element_digests));
  std::vector<std::pair<std::string, Digest>> result;
  for (std::uint32_t cell = 0; cell < tables_.cells.size(); ++cell) {
    const auto& tensor = tables_.tensors[tables_.cells[cell].tensor];
    if (!tensor.primary) continue;
    const auto& unit = tables_.units[tables_.cells[cell].units];
    if (result.empty() || result.back().first != tensor.planned.name)
      result.emplace_back(tensor.planned.name, Digest{});
    result.back().second = result.back().second + element_digests[unit.source][unit.index];
  }
  return result;
}

}  // namespace weightbus::plan
