// The libFuzzer target.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz_wire/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weightbus::wire::testing::try_input({reinterpret_cast<const char*>(data), size});
  return 0;
}
