#include "weightbus/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace weightbus::base {

void assertion_failed(const char* condition, const char* file, int line, const char* why) noexcept {
  std::fprintf(stderr, "weightbus: assertion failed: %s (%s:%d): %s\n", condition, file, line, why);
  std::abort();
}

}  // namespace weightbus::base
