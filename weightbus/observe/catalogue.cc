#include "weightbus/observe/catalogue.h"

#include <fmt/format.h>

namespace weightbus::observe {

const char* metric_type_name(MetricType type) noexcept {
  switch (type) {
    case MetricType::kCounter: return "counter";
    case MetricType::kGauge: return "gauge";
    case MetricType::kHistogram: return "histogram";
  }
  return "unknown";
}

std::string catalogue_markdown() {
  std::string text =
      "# Metrics\n\n"
      "Every service answers `GET /metrics` in the Prometheus text format. This page is written from\n"
      "`weightbus/observe/catalogue.h` by `weightbus-metrics-doc --write docs/METRICS.md`; a test compares the two.\n\n"
      "| metric | type | labels | meaning |\n"
      "| --- | --- | --- | --- |\n";
  for (const auto* metric : catalogue::kAll) {
    std::string labels;
    for (const auto label : metric->labels)
      labels += fmt::format("{}`{}`", labels.empty() ? "" : ", ", label);
    text +=
        fmt::format("| `{}` | {} | {} | {} |\n", metric->name, metric_type_name(metric->type), labels, metric->help);
  }
  text += "\nBuckets, in seconds:\n\n";
  for (const auto* metric : catalogue::kAll) {
    if (metric->type != MetricType::kHistogram) continue;
    text += fmt::format("- `{}`: {}\n", metric->name, fmt::join(metric->buckets.begin(), metric->buckets.end(), ", "));
  }
  text +=
      "\nA metric keeps at most 2048 series. Further label values are counted together in one series whose labels are\n"
      "all `other`.\n";
  return text;
}

}  // namespace weightbus::observe
