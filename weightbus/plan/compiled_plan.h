// ReshardPlan over the tables: expands the parts of members, compares digests.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "weightbus/plan/plan.h"
#include "weightbus/plan/tables.h"

namespace weightbus::plan {

class CompiledPlan final : public ReshardPlan {
 public:
  // `tables` must be complete. Fails when what one member moves exceeds 2^63 bytes, or 2^20 buckets a pair.
  static base::Result<std::shared_ptr<const CompiledPlan>> make(std::vector<model::MemberId> sources,
                                                                std::vector<model::MemberId> sinks,
                                                                std::uint64_t bucket_bytes, Tables tables);

  base::Hash128 hash() const override { return hash_; }
  std::uint64_t bytes() const override { return bytes_; }
  std::uint64_t bucket_bytes() const override { return bucket_bytes_; }
  std::size_t source_count() const override { return sources_.size(); }
  std::size_t sink_count() const override { return sinks_.size(); }
  SourcePart source_part(std::size_t source) const override;
  SinkPart sink_part(std::size_t sink) const override;
  std::vector<Link> links() const override;
  base::Result<std::vector<Mismatch>> compare(const std::vector<std::vector<Digest>>& unit_digests, std::size_t sink,
                                              std::span<const Digest> slot_digests) const override;
  base::Result<std::vector<std::pair<std::string, Digest>>> version_digest(
      const std::vector<std::vector<Digest>>& element_digests) const override;

 private:
  // One sink's share of a piece. Ordered as both ends order it: by slot, then piece.
  struct Use {
    std::uint32_t entry;
    std::uint32_t piece;
  };
  using Uses = std::vector<Use>;
  // The planned tensors that a part names, numbered within the part.
  class LocalTensors;

  CompiledPlan(std::vector<model::MemberId> sources, std::vector<model::MemberId> sinks, std::uint64_t bucket_bytes,
               Tables tables);
  base::Status check_sizes();
  base::Hash128 compute_hash() const;
  std::vector<Uses> uses_of_source(std::size_t source) const;  // by sink
  std::vector<Uses> uses_of_sink(std::size_t sink) const;      // by source
  void cut(Uses uses, const std::function<void()>& begin_bucket,
           const std::function<void(const Use&, const model::Box&, std::uint64_t)>& part) const;
  void append_buckets(std::size_t source, std::size_t sink, Uses uses, LocalTensors& local,
                      std::vector<Bucket>& buckets) const;
  Fragment fragment(const Use& use, const model::Box& box, LocalTensors& local) const;
  base::Status check_unit_digests(const std::vector<std::vector<Digest>>& digests) const;
  Digest expected(std::uint32_t entry, const std::vector<std::vector<Digest>>& unit_digests) const;

  std::vector<model::MemberId> sources_;
  std::vector<model::MemberId> sinks_;
  std::uint64_t bucket_bytes_;
  Tables tables_;
  std::uint64_t bytes_ = 0;
  base::Hash128 hash_;
};

}  // namespace weightbus::plan
