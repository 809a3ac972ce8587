#include "weightbus/device/host/cast.h"

#include <cstring>

#include "weightbus/base/assert.h"

namespace weightbus::device {
namespace {

template <class From, class To, To (*Convert)(From) noexcept>
void run(const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride,
         std::uint64_t count) noexcept {
  const auto one = [](const std::byte* in, std::byte* out) {
    From value;
    std::memcpy(&value, in, sizeof value);
    const To converted = Convert(value);
    std::memcpy(out, &converted, sizeof converted);
  };
  if (from_stride == sizeof(From) && to_stride == sizeof(To)) {  // constant strides: the compiler vectorises this one
    for (std::uint64_t i = 0; i < count; ++i)
      one(from + i * sizeof(From), to + i * sizeof(To));
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto step = static_cast<std::int64_t>(i);
    one(from + step * from_stride, to + step * to_stride);
  }
}

std::uint16_t bf16_to_f16(std::uint16_t bits) noexcept { return f32_to_f16(bf16_to_f32(bits)); }
std::uint16_t f16_to_bf16(std::uint16_t bits) noexcept { return f32_to_bf16(f16_to_f32(bits)); }

}  // namespace

void convert(model::Cast cast, const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride,
             std::uint64_t count) noexcept {
  using U16 = std::uint16_t;
  using U32 = std::uint32_t;
  switch (cast) {
    case model::Cast::kF32ToBF16: return run<U32, U16, f32_to_bf16>(from, from_stride, to, to_stride, count);
    case model::Cast::kF32ToF16: return run<U32, U16, f32_to_f16>(from, from_stride, to, to_stride, count);
    case model::Cast::kBF16ToF32: return run<U16, U32, bf16_to_f32>(from, from_stride, to, to_stride, count);
    case model::Cast::kF16ToF32: return run<U16, U32, f16_to_f32>(from, from_stride, to, to_stride, count);
    case model::Cast::kBF16ToF16: return run<U16, U16, bf16_to_f16>(from, from_stride, to, to_stride, count);
    case model::Cast::kF16ToBF16: return run<U16, U16, f16_to_bf16>(from, from_stride, to, to_stride, count);
    case model::Cast::kNone: break;
  }
  WB_ASSERT(false, "an unknown cast is refused where the bucket is read");
}

}  // namespace weightbus::device
