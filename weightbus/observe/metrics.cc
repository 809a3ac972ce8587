#include "weightbus/observe/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <mutex>
#include <unordered_map>

#include "weightbus/base/assert.h"

namespace weightbus::observe {

namespace {

using LabelMap = std::map<std::string, std::string>;

LabelMap checked_labels(const Descriptor& metric, Labels labels) {
  LabelMap result;
  for (const auto& label : labels) {
    bool known = false;
    for (const auto name : metric.labels)
      known = known || name == label.name;
    WB_ASSERT(known, "a label that the catalogue does not give this metric");
    result.emplace(label.name, label.value);
  }
  WB_ASSERT(result.size() == metric.labels.size() && labels.size() == result.size(),
            "each label of the metric exactly once");
  return result;
}

// Unambiguous: values are preceded by their lengths.
std::string series_key(const LabelMap& labels) {
  std::string key;
  for (const auto& [name, value] : labels)
    key += std::to_string(value.size()) + ":" + value;
  return key;
}

template <class T>
struct Series {
  prometheus::Family<T>* family = nullptr;
  std::unordered_map<std::string, T*> by_key;

  template <class... Args>
  T& get(LabelMap labels, Args&&... args) {
    auto key = series_key(labels);
    if (const auto place = by_key.find(key); place != by_key.end()) return *place->second;
    if (by_key.size() >= Metrics::kSeriesMax) {
      for (auto& [name, value] : labels)
        value = "other";
      key = series_key(labels);
    }
    auto& made = family->Add(labels, std::forward<Args>(args)...);
    by_key.insert_or_assign(std::move(key), &made);
    return made;
  }
};

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  std::mutex mutex;
  std::map<std::string_view, Series<prometheus::Counter>> counters;
  std::map<std::string_view, Series<prometheus::Gauge>> gauges;
  std::map<std::string_view, Series<prometheus::Histogram>> histograms;
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {
  for (const auto* metric : catalogue::kAll) {
    const std::string name(metric->name);
    const std::string help(metric->help);
    switch (metric->type) {
      case MetricType::kCounter:
        impl_->counters[metric->name].family =
            &prometheus::BuildCounter().Name(name).Help(help).Register(impl_->registry);
        break;
      case MetricType::kGauge:
        impl_->gauges[metric->name].family = &prometheus::BuildGauge().Name(name).Help(help).Register(impl_->registry);
        break;
      case MetricType::kHistogram:
        impl_->histograms[metric->name].family =
            &prometheus::BuildHistogram().Name(name).Help(help).Register(impl_->registry);
        break;
    }
  }
  // A counter without labels is there from the start, so that its first increase is seen as one.
  for (const auto* metric : catalogue::kAll) {
    if (metric->labels.size() != 0 || metric->type != MetricType::kCounter) continue;
    impl_->counters.at(metric->name).get({});
  }
}

Metrics::~Metrics() = default;

Counter Metrics::counter(const CounterDescriptor& metric, Labels labels) {
  const std::lock_guard lock(impl_->mutex);
  return Counter(&impl_->counters.at(metric.name).get(checked_labels(metric, labels)));
}

Gauge Metrics::gauge(const GaugeDescriptor& metric, Labels labels) {
  const std::lock_guard lock(impl_->mutex);
  return Gauge(&impl_->gauges.at(metric.name).get(checked_labels(metric, labels)));
}

Histogram Metrics::histogram(const HistogramDescriptor& metric, Labels labels) {
  const std::lock_guard lock(impl_->mutex);
  return Histogram(&impl_->histograms.at(metric.name)
                        .get(checked_labels(metric, labels),
                             prometheus::Histogram::BucketBoundaries(metric.buckets.begin(), metric.buckets.end())));
}

void Metrics::remove(const GaugeDescriptor& metric, Labels labels) {
  const std::lock_guard lock(impl_->mutex);
  auto& series = impl_->gauges.at(metric.name);
  const auto place = series.by_key.find(series_key(checked_labels(metric, labels)));
  if (place == series.by_key.end()) return;
  series.family->Remove(place->second);
  series.by_key.erase(place);
}

std::string Metrics::serialize() const { return prometheus::TextSerializer().Serialize(impl_->registry.Collect()); }

void Counter::increment(double by) const { counter_->Increment(by); }
void Counter::raise_to(double total) const {
  if (const double grown = total - counter_->Value(); grown > 0) counter_->Increment(grown);
}
double Counter::value() const { return counter_->Value(); }
void Gauge::set(double value) const { gauge_->Set(value); }
double Gauge::value() const { return gauge_->Value(); }
void Histogram::observe(double value) const { histogram_->Observe(value); }

}  // namespace weightbus::observe
