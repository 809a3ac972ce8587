// Which numbers are enumerants. The switches name every one, so that the compiler asks for a new one here; the schema
// gives it the same number.
#pragma once

#include "weightbus/base/result.h"
#include "weightbus/model/dtype.h"
#include "weightbus/model/manifest.h"
#include "weightbus/model/roster.h"
#include "weightbus/protocol/types.h"

namespace weightbus::wire {

bool is_known(base::ErrorCode value) noexcept;
bool is_known(model::Role value) noexcept;
bool is_known(model::DType value) noexcept;
bool is_known(model::Cast value) noexcept;
bool is_known(model::SlotKind value) noexcept;
bool is_known(protocol::SessionRole value) noexcept;
bool is_known(protocol::CommitWay value) noexcept;
bool is_known(protocol::UpdateKind value) noexcept;
bool is_known(protocol::Phase value) noexcept;

}  // namespace weightbus::wire
