// The hashes of parts, by which a member and the coordinator agree before anything moves.
#include "weightbus/model/hashing.h"
#include "weightbus/plan/plan.h"

namespace weightbus::plan {
namespace {

void add_tensors(base::Hasher& hasher, const std::vector<PlannedTensor>& tensors) {
  hasher.add(tensors.size());
  for (const auto& tensor : tensors) {
    hasher.add(tensor.name);
    hasher.add(tensor.source_dtype);
    hasher.add(tensor.dtype);
    hasher.add(tensor.cast);
    model::add(hasher, tensor.shape);
    hasher.add(tensor.grain_bytes);
  }
}

// Bucket by bucket, so that a part of many fragments is not laid out in memory a second time.
void add_buckets(base::Hasher& hasher, const std::vector<Bucket>& buckets) {
  hasher.add(buckets.size());
  for (const auto& bucket : buckets) {
    base::Hasher inner;
    inner.add(bucket.index);
    inner.add(bucket.source.value());
    inner.add(bucket.sink.value());
    inner.add(bucket.bytes);
    inner.add(bucket.fragments.size());
    for (const auto& fragment : bucket.fragments) {
      inner.add(fragment.tensor);
      model::add(inner, fragment.box);
      model::add(inner, fragment.from);
      model::add(inner, fragment.to);
      inner.add(fragment.slot);
    }
    hasher.add(inner.finish());
  }
}

}  // namespace

base::Hash128 SourcePart::hash() const {
  base::Hasher hasher;
  hasher.add("source part");
  hasher.add(plan_hash);
  add_tensors(hasher, tensors);
  hasher.add(units.size());
  for (const auto& unit : units) {
    hasher.add(unit.tensor);
    model::add(hasher, unit.box);
    model::add(hasher, unit.from);
    hasher.add(unit.primary);
  }
  add_buckets(hasher, buckets);
  return hasher.finish();
}

base::Hash128 SinkPart::hash() const {
  base::Hasher hasher;
  hasher.add("sink part");
  hasher.add(plan_hash);
  add_tensors(hasher, tensors);
  hasher.add(slots.size());
  for (const auto& slot : slots) {
    hasher.add(slot.slot);
    hasher.add(slot.tensor);
  }
  add_buckets(hasher, buckets);
  hasher.add(bytes);
  return hasher.finish();
}

}  // namespace weightbus::plan
