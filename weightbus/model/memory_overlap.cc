#include "weightbus/model/memory_overlap.h"

#include <algorithm>
#include <span>

namespace weightbus::model {
namespace {

using Levels = std::span<const Footprint::Level>;

constexpr int kMaxSteps = 1 << 16;

// Bytes from the first to one past the last; no levels is a single byte.
std::int64_t span_of(Levels levels) {
  std::int64_t span = 1;
  for (const auto& level : levels)
    span += level.stride * (level.count - 1);
  return span;
}

bool contiguous(Levels levels) { return levels.empty() || (levels.size() == 1 && levels[0].stride == 1); }

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Looks for a common byte of a (beginning at 0) and b (beginning at `shift`).
class Search {
 public:
  bool meets(Levels a, Levels b, std::int64_t shift) {
    if (++steps_ > kMaxSteps) return true;
    if (shift >= span_of(a) || -shift >= span_of(b)) return false;
    if (contiguous(a) && contiguous(b)) return true;
    if (contiguous(a)) return run_meets(span_of(a), b, shift);
    if (contiguous(b)) return run_meets(span_of(b), a, -shift);
    if (a[0].stride == b[0].stride) return same_stride_meets(a, b, shift);
    if (a[0].count > b[0].count) return meets(b, a, -shift);
    for (std::int64_t i = 0; i < a[0].count; ++i) {
      if (meets(a.subspan(1), b, shift - i * a[0].stride)) return true;
      if (steps_ > kMaxSteps) return true;
    }
    return false;
  }

 private:
  // The run [0, length) against b at `shift`: only rows at the ends of the run can miss it.
  bool run_meets(std::int64_t length, Levels b, std::int64_t shift) {
    const auto stride = b[0].stride;
    const auto row = span_of(b.subspan(1));
    const auto first = std::max<std::int64_t>(floor_div(-shift - row, stride) + 1, 0);
    const auto last = std::min<std::int64_t>(floor_div(length - 1 - shift, stride), b[0].count - 1);
    if (first > last) return false;
    const Footprint::Level run{1, length};
    for (auto j : {first, last}) {
      const auto at = shift + j * stride;
      if (at >= 0 && at + row <= length) return true;
      if (meets(Levels(&run, 1), b.subspan(1), at)) return true;
    }
    return last - first > 1;  // a row between two that touch the run lies inside it
  }

  // Rows of equal stride: row i of a meets only rows whose distance is the quotient of the shift, or one more.
  bool same_stride_meets(Levels a, Levels b, std::int64_t shift) {
    const auto stride = a[0].stride;
    const auto quotient = floor_div(shift, stride);
    for (auto distance : {quotient, quotient + 1}) {
      // Needs i - j == distance for some 0 <= i < a.count, 0 <= j < b.count.
      if (distance >= a[0].count || -distance >= b[0].count) continue;
      if (meets(a.subspan(1), b.subspan(1), shift - distance * stride)) return true;
    }
    return false;
  }

  int steps_ = 0;
};

}  // namespace

Footprint footprint(const Box& box, std::uint64_t offset, const Dims& strides, std::uint32_t element_bytes) {
  Footprint result;
  result.begin = static_cast<std::int64_t>(offset);
  for (std::size_t i = 0; i < box.rank(); ++i) {
    if (box.extent[i] > 1) result.levels.push_back({strides[i] * element_bytes, box.extent[i]});
  }
  std::stable_sort(result.levels.begin(), result.levels.end(),
                   [](const auto& a, const auto& b) { return a.stride > b.stride; });
  if (element_bytes > 1) result.levels.push_back({1, element_bytes});
  for (std::size_t i = result.levels.size(); i-- > 1;) {
    auto& outer = result.levels[i - 1];
    const auto& inner = result.levels[i];
    if (outer.stride != inner.stride * inner.count) continue;
    outer = {inner.stride, outer.count * inner.count};
    result.levels.erase(result.levels.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return result;
}

bool self_overlaps(const Footprint& footprint) {
  const Levels levels(footprint.levels);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i].stride < span_of(levels.subspan(i + 1))) return true;
  }
  return false;
}

bool overlap(const Footprint& a, const Footprint& b) {
  return Search().meets(Levels(a.levels), Levels(b.levels), b.begin - a.begin);
}

}  // namespace weightbus::model
