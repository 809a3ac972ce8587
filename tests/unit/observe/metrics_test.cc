#include "weightbus/observe/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace weightbus::observe {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Catalogue, NamesAndBucketsFollowTheRules) {
  std::set<std::string_view> names;
  for (const auto* metric : catalogue::kAll) {
    EXPECT_TRUE(names.insert(metric->name).second) << metric->name;
    EXPECT_TRUE(metric->name.starts_with("weightbus_")) << metric->name;
    EXPECT_EQ(metric->name.ends_with("_total"), metric->type == MetricType::kCounter) << metric->name;
    EXPECT_TRUE(metric->help.ends_with('.')) << metric->name;
    EXPECT_EQ(metric->buckets.size() > 0, metric->type == MetricType::kHistogram) << metric->name;
    EXPECT_TRUE(std::is_sorted(metric->buckets.begin(), metric->buckets.end())) << metric->name;
  }
}

TEST(Metrics, ValuesAreSerialised) {
  Metrics metrics;
  const auto committed =
      metrics.counter(catalogue::kUpdates, {{"model", "m"}, {"kind", "push"}, {"result", "committed"}});
  committed.increment();
  // The order of labels does not matter: it is the same series.
  metrics.counter(catalogue::kUpdates, {{"result", "committed"}, {"model", "m"}, {"kind", "push"}}).increment(2);
  EXPECT_EQ(committed.value(), 3);
  metrics.gauge(catalogue::kEpoch).set(41);
  const auto phase = metrics.histogram(catalogue::kUpdatePhase, {{"model", "m"}, {"phase", "staging"}});
  phase.observe(0.0015);
  phase.observe(100);
  const auto text = metrics.serialize();
  EXPECT_THAT(text, HasSubstr("# TYPE weightbus_updates_total counter"));
  EXPECT_THAT(text, HasSubstr("weightbus_updates_total{kind=\"push\",model=\"m\",result=\"committed\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("weightbus_epoch 41\n"));
  EXPECT_THAT(text, HasSubstr("weightbus_update_phase_seconds_bucket{model=\"m\",phase=\"staging\",le=\"0.002\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("weightbus_update_phase_seconds_bucket{model=\"m\",phase=\"staging\",le=\"60\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("weightbus_update_phase_seconds_count{model=\"m\",phase=\"staging\"} 2\n"));
}

TEST(Metrics, PlainCountersAreThereFromTheStart) {
  EXPECT_THAT(Metrics().serialize(), HasSubstr("weightbus_authentication_failures_total 0\n"));
}

TEST(Metrics, TotalsCountedElsewhereNeverFall) {
  Metrics metrics;
  const auto failures = metrics.counter(catalogue::kAuthenticationFailures);
  failures.raise_to(5);
  failures.raise_to(3);
  failures.raise_to(7);
  EXPECT_EQ(failures.value(), 7);
}

TEST(Metrics, HostileLabelValuesAreEscaped) {
  Metrics metrics;
  metrics.gauge(catalogue::kHeartbeatAge, {{"member", "a\"} 1\nfake_metric 2\\"}}).set(1);
  EXPECT_THAT(metrics.serialize(), Not(HasSubstr("\nfake_metric")));
}

TEST(Metrics, SeriesAreRemoved) {
  Metrics metrics;
  metrics.gauge(catalogue::kHeartbeatAge, {{"member", "gone"}}).set(1);
  metrics.gauge(catalogue::kHeartbeatAge, {{"member", "here"}}).set(2);
  metrics.remove(catalogue::kHeartbeatAge, {{"member", "gone"}});
  metrics.remove(catalogue::kHeartbeatAge, {{"member", "never was"}});
  EXPECT_THAT(metrics.serialize(), Not(HasSubstr("gone")));
  EXPECT_THAT(metrics.serialize(), HasSubstr("member=\"here\"} 2"));
  metrics.gauge(catalogue::kHeartbeatAge, {{"member", "gone"}}).set(3);
  EXPECT_THAT(metrics.serialize(), HasSubstr("member=\"gone\"} 3"));
}

TEST(Metrics, SeriesAreBounded) {
  Metrics metrics;
  for (std::size_t i = 0; i < Metrics::kSeriesMax + 100; ++i) {
    metrics.counter(catalogue::kRetries, {{"message", std::to_string(i)}}).increment();
  }
  const auto text = metrics.serialize();
  EXPECT_THAT(text, HasSubstr("weightbus_retries_total{message=\"other\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("weightbus_retries_total{message=\"2047\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("message=\"2048\"")));
}

TEST(MetricsDeathTest, LabelsOutsideTheCatalogueAreAnError) {
  Metrics metrics;
  EXPECT_DEATH(metrics.gauge(catalogue::kEpoch, {{"model", "m"}}), "catalogue");
  EXPECT_DEATH(metrics.counter(catalogue::kUpdates, {{"model", "m"}}), "exactly once");
  EXPECT_DEATH(metrics.counter(catalogue::kBytes, {{"channel", "a"}, {"channel", "b"}}), "exactly once");
}

}  // namespace
}  // namespace weightbus::observe
