#include "weightbus/base/result.h"

namespace weightbus::base {

const char* error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kConflict: return "conflict";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kDeadlineExceeded: return "deadline_exceeded";
    case ErrorCode::kResourceExhausted: return "resource_exhausted";
    case ErrorCode::kCorrupted: return "corrupted";
    case ErrorCode::kPermissionDenied: return "permission_denied";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kAborted: return "aborted";
    case ErrorCode::kStale: return "stale";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

}  // namespace weightbus::base
