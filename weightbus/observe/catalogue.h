// Every metric of Weightbus, once. docs/METRICS.md is written from this file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace weightbus::observe {

enum class MetricType : std::uint8_t { kCounter, kGauge, kHistogram };

// A short list that can stand in a constant.
template <class T, std::size_t kMax>
class ConstantList {
 public:
  constexpr ConstantList() = default;
  constexpr ConstantList(std::initializer_list<T> values) {
    for (const T& value : values)
      values_.at(size_++) = value;  // too many do not compile
  }
  constexpr std::size_t size() const { return size_; }
  constexpr const T* begin() const { return values_.data(); }
  constexpr const T* end() const { return values_.data() + size_; }

 private:
  std::array<T, kMax> values_{};
  std::size_t size_ = 0;
};

struct Descriptor {
  std::string_view name;
  std::string_view help;
  ConstantList<std::string_view, 4> labels = {};
  ConstantList<double, 20> buckets = {};  // histograms: upper bounds, ascending
  MetricType type = MetricType::kCounter;
};

struct CounterDescriptor : Descriptor {
  constexpr CounterDescriptor(std::string_view metric, std::string_view text,
                              ConstantList<std::string_view, 4> names = {})
      : Descriptor{metric, text, names, {}, MetricType::kCounter} {}
};
struct GaugeDescriptor : Descriptor {
  constexpr GaugeDescriptor(std::string_view metric, std::string_view text,
                            ConstantList<std::string_view, 4> names = {})
      : Descriptor{metric, text, names, {}, MetricType::kGauge} {}
};
struct HistogramDescriptor : Descriptor {
  constexpr HistogramDescriptor(std::string_view metric, std::string_view text, ConstantList<double, 20> bounds,
                                ConstantList<std::string_view, 4> names = {})
      : Descriptor{metric, text, names, bounds, MetricType::kHistogram} {}
};

namespace catalogue {

// Phases reach from a tiny model in shared memory to terabytes over a network.
inline constexpr ConstantList<double, 20> kPhaseSeconds{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                                        0.5,   1,     2,     5,    10,   20,   30,  60};
inline constexpr ConstantList<double, 20> kPauseSeconds{0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02,
                                                        0.05,   0.1,   0.2,   0.5,   1,     5};
inline constexpr ConstantList<double, 20> kAppendSeconds{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01,
                                                         0.02,   0.05,   0.1,    0.2,   0.5,   1};

inline constexpr CounterDescriptor kUpdates{
    "weightbus_updates_total",
    "Updates that ended, by kind (push, rollback, catch_up) and result (committed, aborted).",
    {"model", "kind", "result"}};
inline constexpr HistogramDescriptor kUpdatePhase{
    "weightbus_update_phase_seconds", "Time that an update spent in each phase.", kPhaseSeconds, {"model", "phase"}};
inline constexpr CounterDescriptor kBytes{
    "weightbus_bytes_total", "Bytes of weights received by this process, by channel.", {"channel"}};
inline constexpr GaugeDescriptor kTransferRate{
    "weightbus_transfer_bytes_per_second", "Rate of the last update's transfer, by channel.", {"channel"}};
inline constexpr GaugeDescriptor kActiveVersion{"weightbus_active_version",
                                                "Version that an engine rank computes with; 0 before the first.",
                                                {"model", "engine", "tp_rank"}};
inline constexpr GaugeDescriptor kVersionSpread{
    "weightbus_version_spread",
    "Newest less oldest version among a model's engines; 0 when all serve the same.",
    {"model"}};
inline constexpr GaugeDescriptor kEngineState{
    "weightbus_engine_state",
    "1 for the state that an engine is in (serving, updating, quarantined, lost), 0 for its other states.",
    {"model", "engine", "state"}};
inline constexpr GaugeDescriptor kStagingBytes{
    "weightbus_staging_bytes",
    "Memory reserved for the shadow and for staging, by device (host or a UUID).",
    {"device"}};
inline constexpr GaugeDescriptor kRetainedBytes{
    "weightbus_retained_bytes", "Bytes of versions kept for rollback, by place (shadow, memory, disk).", {"place"}};
inline constexpr HistogramDescriptor kEnginePause{"weightbus_engine_pause_seconds",
                                                  "Pause of an engine at commit, from all ranks paused to all resumed.",
                                                  kPauseSeconds,
                                                  {"model"}};
inline constexpr CounterDescriptor kDigestMismatches{
    "weightbus_digest_mismatches_total",
    "Slots whose written bytes did not match their source. Any increase calls for a look at the hardware.",
    {"model"}};
inline constexpr CounterDescriptor kDigestsCompared{
    "weightbus_digests_compared_total", "Slots whose written bytes were compared with their source.", {"model"}};
inline constexpr CounterDescriptor kRetries{
    "weightbus_retries_total", "Control messages sent again for want of an answer, by message.", {"message"}};
inline constexpr CounterDescriptor kAborts{
    "weightbus_aborts_total", "Updates aborted before their decision, by error code.", {"model", "reason"}};
inline constexpr CounterDescriptor kAuthenticationFailures{
    "weightbus_authentication_failures_total",
    "Connections and frames refused for want of an allowed key, on control and bulk sockets."};
inline constexpr CounterDescriptor kFramesDropped{
    "weightbus_frames_dropped_total",
    "Control frames dropped, by reason (malformed, oversized, revision, stale, impostor, queue_full).",
    {"reason"}};
inline constexpr GaugeDescriptor kHeartbeatAge{
    "weightbus_heartbeat_age_seconds", "Time since the last message of a member.", {"member"}};
inline constexpr GaugeDescriptor kEpoch{"weightbus_epoch",
                                        "Epoch number that this process holds (coordinator) or obeys (agents)."};
inline constexpr HistogramDescriptor kStoreAppend{"weightbus_store_append_seconds",
                                                  "Time of a durable append to the journal.", kAppendSeconds};
inline constexpr CounterDescriptor kRestarts{"weightbus_restarts_total",
                                             "Times that the keeper has started its worker again."};
inline constexpr GaugeDescriptor kReaders{"weightbus_readers", "Clients attached to this agent's arena or source."};
inline constexpr GaugeDescriptor kChannelSelected{
    "weightbus_channel_selected",
    "1 for the channel that the current plan uses between a source and a sink.",
    {"source", "sink", "channel"}};
inline constexpr GaugeDescriptor kBuildInfo{
    "weightbus_build_info", "Always 1; the labels say what runs.", {"version", "commit"}};

inline constexpr std::array<const Descriptor*, 23> kAll{
    &kUpdates,          &kUpdatePhase,     &kBytes,        &kTransferRate,  &kActiveVersion,
    &kVersionSpread,    &kEngineState,     &kStagingBytes, &kRetainedBytes, &kEnginePause,
    &kDigestMismatches, &kDigestsCompared, &kRetries,      &kAborts,        &kAuthenticationFailures,
    &kFramesDropped,    &kHeartbeatAge,    &kEpoch,        &kStoreAppend,   &kRestarts,
    &kReaders,          &kChannelSelected, &kBuildInfo};

}  // namespace catalogue

// "counter", "gauge", "histogram".
const char* metric_type_name(MetricType type) noexcept;

// docs/METRICS.md.
std::string catalogue_markdown();

}  // namespace weightbus::observe
