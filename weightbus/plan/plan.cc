#include "weightbus/plan/plan.h"

#include <set>

#include "weightbus/plan/buckets.h"
#include "weightbus/plan/catalog.h"
#include "weightbus/plan/compiled_plan.h"
#include "weightbus/plan/reshard.h"
#include "weightbus/plan/source_choice.h"
#include "weightbus/plan/tables.h"

namespace weightbus::plan {
namespace {

using base::ErrorCode;
using base::fail;

template <class Member>
base::Result<std::vector<model::MemberId>> member_ids(std::span<const Member> members, const char* side) {
  std::vector<model::MemberId> ids;
  std::set<std::string_view> seen;
  for (const auto& member : members) {
    if (!seen.insert(member.id.value()).second) {
      return fail(ErrorCode::kInvalidArgument, "'{}' is listed twice as a {}", member.id.value(), side);
    }
    ids.push_back(member.id);
  }
  return ids;
}

}  // namespace

base::Result<std::shared_ptr<const ReshardPlan>> plan(std::span<const PlanSource> sources,
                                                      std::span<const PlanSink> sinks, const PlanOptions& options) {
  if (options.bucket_bytes < kMinBucketBytes) {
    return fail(ErrorCode::kInvalidArgument, "a bucket of {} bytes is too small; the least is {}", options.bucket_bytes,
                kMinBucketBytes);
  }
  WB_ASSIGN(auto source_ids, member_ids(sources, "source"));
  WB_ASSIGN(auto sink_ids, member_ids(sinks, "sink"));
  Tables tables;
  {
    WB_ASSIGN(const auto catalog, make_catalog(sources, sinks));
    for (const auto& tensor : catalog.tensors)
      WB_TRY(reshard(tensor, sinks, tables));
  }
  choose_sources(sources, sinks, tables);
  make_units(tables);
  WB_ASSIGN(std::shared_ptr<const ReshardPlan> compiled,
            CompiledPlan::make(std::move(source_ids), std::move(sink_ids), options.bucket_bytes, std::move(tables)));
  return compiled;
}

}  // namespace weightbus::plan
