// memcpy that writes past the caches.
#pragma once

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weightbus::device {

// For destinations that are much larger than the caches: an ordinary store first reads the line that it will overwrite,
// a third of all traffic. Worth it for runs of some KiB on. Ends with a fence, so that what was written is visible to
// whoever is told so afterwards.
inline void stream_copy(std::byte* to, const std::byte* from, std::size_t size) noexcept {
  constexpr std::size_t kLine = 64;
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  if (size < head + kLine) {
    std::memcpy(to, from, size);
    return;
  }
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + kLine <= size; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    _mm_prefetch(reinterpret_cast<const char*>(from + at) + 1024, _MM_HINT_NTA);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + at, from + at, size - at);
  _mm_sfence();
}

}  // namespace weightbus::device
