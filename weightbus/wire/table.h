// Tables: lists of shards, slots, units and fragments as plain words (schemas/common.capnp, Table).
#pragma once

#include <vector>

#include "weightbus/model/manifest.h"
#include "weightbus/plan/plan.h"
#include "weightbus/wire/conversion.h"

namespace weightbus::wire {

void write_shards(proto::Table::Builder to, const std::vector<model::Shard>& from);
std::vector<model::Shard> read_shards(Reading& in, proto::Table::Reader from);

// Without Slot::parameter, which is text and travels beside the table.
void write_slots(proto::Table::Builder to, const std::vector<model::Slot>& from);
std::vector<model::Slot> read_slots(Reading& in, proto::Table::Reader from);

void write_units(proto::Table::Builder to, const std::vector<plan::DigestUnit>& from);
std::vector<plan::DigestUnit> read_units(Reading& in, proto::Table::Reader from);

void write_fragments(proto::Table::Builder to, const std::vector<plan::Fragment>& from);
std::vector<plan::Fragment> read_fragments(Reading& in, proto::Table::Reader from);

}  // namespace weightbus::wire
