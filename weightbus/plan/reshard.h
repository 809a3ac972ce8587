// Intersects the shards and slots of one tensor, class by class, into pieces and digest cells.
#pragma once

#include <span>

#include "weightbus/base/result.h"
#include "weightbus/plan/catalog.h"
#include "weightbus/plan/tables.h"

namespace weightbus::plan {

// Appends everything of one tensor to the tables but the choice of holders and the digest units. kInvalidArgument names
// the first part of a slot that no shard covers.
base::Status reshard(const CatalogTensor& tensor, std::span<const PlanSink> sinks, Tables& tables);

}  // namespace weightbus::plan
