#include "weightbus/wire/enums.h"

namespace weightbus::wire {

bool is_known(base::ErrorCode value) noexcept {
  using enum base::ErrorCode;
  switch (value) {
    case kInvalidArgument:
    case kNotFound:
    case kConflict:
    case kUnavailable:
    case kDeadlineExceeded:
    case kResourceExhausted:
    case kCorrupted:
    case kPermissionDenied:
    case kUnsupported:
    case kAborted:
    case kStale:
    case kInternal: return true;
  }
  return false;
}

bool is_known(model::Role value) noexcept {
  using enum model::Role;
  switch (value) {
    case kShardAgent:
    case kEngineAgent:
    case kAdmin:
    case kCoordinator: return true;
  }
  return false;
}

bool is_known(model::DType value) noexcept {
  using enum model::DType;
  switch (value) {
    case kBool:
    case kU8:
    case kI8:
    case kF8E4M3:
    case kF8E5M2:
    case kU16:
    case kI16:
    case kF16:
    case kBF16:
    case kU32:
    case kI32:
    case kF32:
    case kU64:
    case kI64:
    case kF64: return true;
  }
  return false;
}

bool is_known(model::Cast value) noexcept {
  using enum model::Cast;
  switch (value) {
    case kNone:
    case kF32ToBF16:
    case kF32ToF16:
    case kBF16ToF32:
    case kF16ToF32:
    case kBF16ToF16:
    case kF16ToBF16: return true;
  }
  return false;
}

bool is_known(model::SlotKind value) noexcept {
  using enum model::SlotKind;
  switch (value) {
    case kRaw:
    case kDerived:
    case kConstant: return true;
  }
  return false;
}

bool is_known(protocol::SessionRole value) noexcept {
  using enum protocol::SessionRole;
  switch (value) {
    case kSource:
    case kSink: return true;
  }
  return false;
}

bool is_known(protocol::CommitWay value) noexcept {
  using enum protocol::CommitWay;
  switch (value) {
    case kRemap:
    case kSwap:
    case kCopy:
    case kDirect: return true;
  }
  return false;
}

bool is_known(protocol::UpdateKind value) noexcept {
  using enum protocol::UpdateKind;
  switch (value) {
    case kPush:
    case kRollback:
    case kCatchUp: return true;
  }
  return false;
}

bool is_known(protocol::Phase value) noexcept {
  using enum protocol::Phase;
  switch (value) {
    case kQueued:
    case kAnnounced:
    case kPlanned:
    case kAccepted:
    case kStaging:
    case kStaged:
    case kCommitting:
    case kCommitted:
    case kAborting:
    case kAborted: return true;
  }
  return false;
}

}  // namespace weightbus::wire
