// The digest against memcpy of the same bytes, interleaved in one run.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weightbus/base/prng.h"
#include "weightbus/plan/digest.h"

namespace {

using namespace weightbus;

constexpr std::size_t kBytes = 256U << 20;
constexpr int kSamples = 9;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Series {
  std::string name;
  std::string unit;
  std::vector<double> samples;
};

// Ratios and rates: more is better, so that the worst is the least.
nlohmann::json row(Series series) {
  auto& samples = series.samples;
  std::sort(samples.begin(), samples.end());
  return {{"name", series.name},
          {"median", samples[samples.size() / 2]},
          {"worst", samples.front()},
          {"unit", series.unit},
          {"samples", samples.size()}};
}

}  // namespace

int main() {
  std::vector<std::byte> data(kBytes);
  std::vector<std::byte> copy(kBytes);
  base::Prng prng(1);
  for (std::size_t i = 0; i < kBytes; i += 8) {
    const auto value = prng.next();
    std::memcpy(data.data() + i, &value, 8);
  }
  constexpr std::int64_t kWidth = 4096;
  const auto rows = static_cast<std::int64_t>(kBytes / 2 / kWidth);
  const model::Dims shape{rows, kWidth};
  // A slice of an eighth of the columns, as TP cuts: short runs, far apart.
  const model::Box columns{{0, kWidth / 8}, {rows, kWidth / 8}};
  Series grains{"digest_vs_memcpy", "ratio", {}};
  Series element{"digest_element_vs_memcpy", "ratio", {}};
  Series strided{"digest_columns_vs_memcpy", "ratio", {}};
  Series rate{"digest_gb_s", "GB/s", {}};
  std::uint64_t sink = 0;
  const auto time_digest = [&](const model::Box& box, std::uint32_t grain) {
    const auto start = std::chrono::steady_clock::now();
    const auto* first = data.data() + box.offset[1] * 2;
    sink += plan::digest_box(first, {kWidth, 1}, 2, box, shape, 7, grain).lane0;
    return seconds_since(start);
  };
  std::memcpy(copy.data(), data.data(), kBytes);  // touches the pages
  for (int i = 0; i < kSamples; ++i) {
    auto start = std::chrono::steady_clock::now();
    std::memcpy(copy.data(), data.data(), kBytes);
    const auto copied = seconds_since(start);
    const auto wide = time_digest(model::Box::whole(shape), 16);
    grains.samples.push_back(copied / wide);
    rate.samples.push_back(kBytes / wide / 1e9);
    element.samples.push_back(copied / time_digest(model::Box::whole(shape), 2));
    // The same slice copied the same way.
    start = std::chrono::steady_clock::now();
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(copy.data() + r * kWidth / 4, data.data() + r * kWidth * 2 + kWidth / 4, kWidth / 4);
    }
    const auto sliced = seconds_since(start);
    strided.samples.push_back(sliced / time_digest(columns, 2));
  }
  nlohmann::json out = nlohmann::json::array({row(grains), row(element), row(strided), row(rate)});
  std::cout << nlohmann::json{{"rows", out}}.dump(2) << "\n";
  return sink == static_cast<std::uint64_t>(copy[1]) ? 1 : 0;
}
