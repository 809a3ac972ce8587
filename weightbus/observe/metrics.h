// The process's metrics, by their descriptors in catalogue.h.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "weightbus/observe/catalogue.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace weightbus::observe {

struct Label {
  std::string_view name;
  std::string_view value;
};
using Labels = std::initializer_list<Label>;

// Handles: cheap to copy, thread safe, valid as long as their Metrics (a gauge: until it is removed).
class Counter {
 public:
  explicit Counter(prometheus::Counter* counter) : counter_(counter) {}
  void increment(double by = 1) const;  // by >= 0
  // For a total that is counted elsewhere: adds what it has grown by. One caller per counter.
  void raise_to(double total) const;
  double value() const;

 private:
  prometheus::Counter* counter_;
};
class Gauge {
 public:
  explicit Gauge(prometheus::Gauge* gauge) : gauge_(gauge) {}
  void set(double value) const;
  double value() const;

 private:
  prometheus::Gauge* gauge_;
};
class Histogram {
 public:
  explicit Histogram(prometheus::Histogram* histogram) : histogram_(histogram) {}
  void observe(double value) const;

 private:
  prometheus::Histogram* histogram_;
};

// Thread safe. Labels must be exactly those of the descriptor, in any order: anything else is a programmer's error.
class Metrics {
 public:
  static constexpr std::size_t kSeriesMax = 2048;  // per metric; further ones share the series "other"

  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  Counter counter(const CounterDescriptor& metric, Labels labels = {});
  Gauge gauge(const GaugeDescriptor& metric, Labels labels = {});
  Histogram histogram(const HistogramDescriptor& metric, Labels labels = {});
  // A series that has lost its meaning (a member that left); nothing if there is none.
  void remove(const GaugeDescriptor& metric, Labels labels);

  // In the Prometheus text format, version 0.0.4.
  std::string serialize() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightbus::observe
