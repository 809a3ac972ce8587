// What the process ends with. Part of the interface: documented in docs/CLI.md and in --help.
#pragma once

#include "weightbus/base/result.h"

namespace weightbus::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // the update was aborted, the plan refused, a verification found a difference
inline constexpr int kExitUsage = 2;   // the command line or a file it names is wrong
inline constexpr int kExitUnavailable = 3;  // no coordinator, or nobody who could do it now
inline constexpr int kExitRefused = 4;      // something is in the way: another update, a taken name, too little memory
inline constexpr int kExitNotFound = 5;
inline constexpr int kExitDeadline = 6;
inline constexpr int kExitPermission = 7;

// For a request that was refused or not answered. An update that was accepted and aborted ends with kExitFailed
// whatever its error.
int exit_code_of(base::ErrorCode code) noexcept;

// The list for --help.
const char* exit_codes_help() noexcept;

}  // namespace weightbus::cli
