// libFuzzer's entry for one target, named by the build.
#include "../targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weightbus::fuzz::WEIGHTBUS_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
