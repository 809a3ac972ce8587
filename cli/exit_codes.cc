#include "cli/exit_codes.h"

namespace weightbus::cli {

int exit_code_of(base::ErrorCode code) noexcept {
  switch (code) {
    case base::ErrorCode::kInvalidArgument:
    case base::ErrorCode::kUnsupported: return kExitUsage;
    case base::ErrorCode::kNotFound: return kExitNotFound;
    case base::ErrorCode::kConflict:
    case base::ErrorCode::kResourceExhausted:
    case base::ErrorCode::kStale: return kExitRefused;
    case base::ErrorCode::kUnavailable: return kExitUnavailable;
    case base::ErrorCode::kDeadlineExceeded: return kExitDeadline;
    case base::ErrorCode::kPermissionDenied: return kExitPermission;
    case base::ErrorCode::kCorrupted:
    case base::ErrorCode::kAborted:
    case base::ErrorCode::kInternal: return kExitFailed;
  }
  return kExitFailed;
}

const char* exit_codes_help() noexcept {
  return "Exit codes:\n"
         "  0  done\n"
         "  1  the update was aborted, the plan refused, or a verification found a difference\n"
         "  2  the command line, or a file that it names, is wrong\n"
         "  3  no coordinator answered, or nobody is there who could do it now\n"
         "  4  refused: something is in the way (another update, a taken name, too little memory)\n"
         "  5  there is no such version, member, file or update\n"
         "  6  a deadline passed\n"
         "  7  the key or the file's mode does not permit it";
}

}  // namespace weightbus::cli
