// Of several holders of a box, which one serves which sink.
#pragma once

#include <cstdint>
#include <span>

#include "weightbus/plan/tables.h"

namespace weightbus::plan {

// Fills the choices of every piece with more than one holder: the same device first, then the same host, then the
// source with the fewest bytes to send so far, then the first. Boxes that one source alone holds are counted before any
// choice is made. Deterministic.
void choose_sources(std::span<const PlanSource> sources, std::span<const PlanSink> sinks, Tables& tables);

// Makes the digest units: one for each cell and source that serves it to anyone. Needs the choices.
void make_units(Tables& tables);

}  // namespace weightbus::plan
