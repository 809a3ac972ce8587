// UpdateRun: the plan, the proof and the decision.
#include <fmt/format.h>

#include <algorithm>

#include "weightbus/protocol/update_run.h"

namespace weightbus::protocol {

base::Result<std::shared_ptr<const PlanBundle>> make_plan(const MakePlan& request) {
  std::vector<plan::PlanSource> sources;
  std::vector<plan::PlanSink> sinks;
  for (const auto& input : request.sources) {
    if (auto valid = model::validate(*input.source); !valid)
      return base::fail(valid.error().with(input.member.value()));
    sources.push_back({input.member, input.host, input.device_uuid, input.source.get()});
  }
  for (const auto& input : request.sinks) {
    if (auto valid = model::validate(*input.sink); !valid) return base::fail(valid.error().with(input.member.value()));
    sinks.push_back({input.member, input.host, input.device_uuid, input.sink.get()});
  }
  auto bundle = std::make_shared<PlanBundle>();
  WB_ASSIGN(bundle->plan, plan::plan(sources, sinks, plan::PlanOptions{request.bucket_bytes}));
  for (std::size_t i = 0; i < sources.size(); ++i) {
    bundle->source_parts.push_back(std::make_shared<const plan::SourcePart>(bundle->plan->source_part(i)));
    bundle->source_hashes.push_back(bundle->source_parts.back()->hash());
  }
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    bundle->sink_parts.push_back(std::make_shared<const plan::SinkPart>(bundle->plan->sink_part(i)));
    bundle->sink_hashes.push_back(bundle->sink_parts.back()->hash());
  }
  return bundle;
}

std::optional<std::size_t> UpdateRun::plan_source(const model::MemberId& id) const {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].id == id) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> UpdateRun::plan_sink(const model::MemberId& id) const {
  const auto it = std::find(planned_sinks_.begin(), planned_sinks_.end(), id);
  if (it == planned_sinks_.end()) return std::nullopt;
  return static_cast<std::size_t>(it - planned_sinks_.begin());
}

void UpdateRun::make_plan(Now now) {
  MakePlan request{context_.model(), spec_.id, {}, {}, context_.options().bucket_bytes};
  base::Hasher key;
  const auto add = [&](const RunMember& member, const base::Hash128& layout) {
    key.add(member.info.id.value());
    key.add(member.info.host.value());
    key.add(member.info.device_uuid);
    key.add(layout);
  };
  for (const auto& source : sources_) {
    const RunMember* member = context_.member(source.id);
    if (!member) return abort(now, {base::ErrorCode::kUnavailable, source.id.value() + " has gone"});
    add(*member, model::layout_hash(*source.manifest));
    request.sources.push_back({source.id, member->info.host, member->info.device_uuid, source.manifest, nullptr});
  }
  key.add("sinks");
  planned_sinks_.clear();
  for (const auto& sink : sinks_) {
    if (!transfers(sink)) continue;
    const RunMember* member = context_.member(sink.id);
    if (!member || !member->sink) return abort(now, {base::ErrorCode::kUnavailable, sink.id.value() + " has gone"});
    add(*member, member->layout);
    planned_sinks_.push_back(sink.id);
    request.sinks.push_back({sink.id, member->info.host, member->info.device_uuid, nullptr, member->sink});
  }
  key.add(request.bucket_bytes);
  plan_key_ = key.finish();
  if (auto cached = context_.cached_plan(plan_key_)) return use_plan(now, std::move(cached));
  context_.output().perform.push_back(std::move(request));
}

void UpdateRun::planned(Now now, base::Result<std::shared_ptr<const PlanBundle>> result) {
  now_ = now.mono;
  if (step_ != Step::kPlan) return;
  if (!result) return abort(now, result.error().with("planning"));
  context_.cache_plan(plan_key_, *result);
  use_plan(now, *result);
}

void UpdateRun::use_plan(Now now, std::shared_ptr<const PlanBundle> plan) {
  plan_ = std::move(plan);
  for (auto& sink : sinks_) {
    if (!transfers(sink)) continue;
    const auto index = plan_sink(sink.id);
    const RunMember* member = context_.member(sink.id);
    // A rank whose engine was dropped and returned in the meantime is not part of the plan.
    if (!index || !member) return abort(now, {base::ErrorCode::kUnavailable, sink.id.value() + " has gone"});
    sink.bytes = plan_->sink_parts[*index]->bytes;
    sink.tag = Tag{spec_.target, member->layout, spec_.id};
  }
  report_ = report();
  enter(now, Step::kPrepare);
}

// Which channel each sink chose for each source, as it answered Prepare.
void UpdateRun::report_channels() {
  for (auto& link : report_->links) {
    const Sink* sink = find_sink(link.sink);
    const auto source = plan_source(link.source);
    if (sink && source && *source < sink->channels.size()) link.channel = sink->channels[*source];
  }
}

PlanReport UpdateRun::report() const {
  PlanReport report{plan_->plan->hash(), plan_->plan->bytes()};
  std::map<std::string, bool> names;
  for (const auto& part : plan_->sink_parts) {
    for (const auto& tensor : part->tensors)
      names[tensor.name] = true;
  }
  report.tensors = names.size();
  for (const auto& id : planned_sinks_) {
    const RunMember* member = context_.member(id);
    if (!member || !member->sink) continue;
    for (auto bytes : member->sink->region_bytes)
      report.arena_bytes += 2 * bytes;
  }
  for (const auto& link : plan_->plan->links()) {
    report.links.push_back(PlanLink{sources_[link.source].id, planned_sinks_[link.sink], "", link.bytes, link.buckets});
  }
  if (engines_.size() == 1 && context_.options().retain_versions == 0) {
    report.warnings.push_back("one engine and nothing retained: if it is lost, so is the version");
  }
  return report;
}

// ---------------------------------------------------------------- proof

std::optional<base::Error> UpdateRun::compare() {
  std::vector<std::vector<plan::Digest>> units;
  std::vector<std::vector<plan::Digest>> element;
  for (auto& source : sources_) {
    units.push_back(source.units);
    element.push_back(source.element);
  }
  const auto mismatch = [&](std::string what) {
    context_.output().observe.push_back(DigestMismatch{context_.model(), what});
    return base::Error{base::ErrorCode::kCorrupted, std::move(what)};
  };
  for (const auto& sink : sinks_) {
    if (!transfers(sink)) continue;
    auto result = plan_->plan->compare(units, *plan_sink(sink.id), sink.slots);
    if (!result) return result.error().with(sink.id.value());
    compared_ += sink.slots.size();
    if (!result->empty()) {
      const auto& first = result->front();
      return mismatch(
          fmt::format("{} of {} slots of {} do not hold what the sources sent, the first is {} {}; nothing was "
                      "committed",
                      result->size(), sink.slots.size(), sink.id.value(), first.tensor, to_string(first.box)));
    }
  }
  auto digests = plan_->plan->version_digest(element);
  if (!digests) return digests.error();
  version_digests_ = std::move(*digests);
  if (spec_.kind == UpdateKind::kPush || !spec_.record || spec_.record->digests.empty()) return std::nullopt;
  for (const auto& [name, digest] : version_digests_) {
    const auto known = spec_.record->digests.find(name);
    if (known != spec_.record->digests.end() && known->second == digest) continue;
    return mismatch(
        fmt::format("the {} is not version {}: tensor {} differs from its recorded digest; nothing was committed",
                    spec_.source_text, spec_.target.value(), name));
  }
  return std::nullopt;
}

void UpdateRun::decide(Now) {
  Decided record{context_.model(), spec_.id, spec_.kind, spec_.base, spec_.target};
  for (const auto& engine : engines_) {
    if (engine.dropped) continue;
    DecidedEngine decided{model::EngineName{engine.spec.name}, {}};
    for (auto sink : engine.sinks)
      decided.ranks.push_back({sinks_[sink].id, *sinks_[sink].tag});
    record.engines.push_back(std::move(decided));
  }
  if (spec_.kind == UpdateKind::kPush) {
    record.digests = version_digests_;
    record.bytes = plan_->plan->bytes();
  } else if (spec_.record) {
    record.bytes = spec_.record->decided.bytes;
  }
  record.step = spec_.step;
  record.unix_ms = started_unix_ms_;
  record.source = spec_.source_text;
  decision_ = record;
  context_.output().persist.push_back(std::move(record));
}

// ---------------------------------------------------------------- report

UpdateStatus UpdateRun::status(Now now) const {
  UpdateStatus status{spec_.id,     spec_.kind,       phase_,     spec_.base,
                      spec_.target, started_unix_ms_, spec_.step, spec_.source_text};
  status.phases = phases_;
  if (step_ != Step::kEnded) {
    status.phases.push_back({phase_, static_cast<std::uint64_t>((now.mono - phase_began_).count())});
  }
  status.digests_compared = compared_;
  status.error = error_;
  status.plan = report_;
  status.instant = true;
  for (const auto& engine : engines_) {
    EngineResult result{engine.spec.name, engine.spec.required, true, engine.committed};
    std::set<std::string> channels;
    for (auto index : engine.sinks) {
      const Sink& sink = sinks_[index];
      result.instant = result.instant && sink.mode != Mode::kTransfer;
      result.bytes_total += sink.bytes;
      const RunMember* member = context_.member(sink.id);
      const bool staged = step_ > Step::kStage || sink.times.bytes > 0;
      result.bytes_done += staged && !error_ ? sink.bytes : member ? std::min(member->bytes_done, sink.bytes) : 0;
      channels.insert(sink.channels.begin(), sink.channels.end());
      channels.erase("");  // of a source that this rank reads nothing from
    }
    result.channels = fmt::format("{}", fmt::join(channels, ","));
    result.pause_ns = engine.pause_ns;
    if (engine.committed) result.way = commit_way_name(engine.way);
    if (engine.dropped) result.error = engine.dropped->message;
    status.instant = status.instant && result.instant;
    status.bytes_total += result.bytes_total;
    status.bytes_done += result.bytes_done;
    status.engines.push_back(std::move(result));
  }
  return status;
}

}  // namespace weightbus::protocol
