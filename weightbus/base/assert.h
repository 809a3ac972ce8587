// Assertions that stay on in production: for programmer errors, never for input from outside.
#pragma once

namespace weightbus::base {

// Prints the condition, where it stands and `why` to stderr and aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, const char* why) noexcept;

}  // namespace weightbus::base

#define WB_ASSERT(condition, why) \
  ((condition) ? static_cast<void>(0) : ::weightbus::base::assertion_failed(#condition, __FILE__, __LINE__, why))
