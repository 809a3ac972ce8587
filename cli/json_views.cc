#include "cli/json_views.h"

#include <nlohmann/json.hpp>

#include "cli/update_view.h"

namespace weightbus::cli {
namespace {

template <class Value>
Json number_or_null(const std::optional<Value>& value) {
  return value ? Json(value->value()) : Json(nullptr);
}

Json to_json(const std::optional<protocol::Tag>& tag) {
  if (!tag) return nullptr;
  return {{"version", tag->version.value()}, {"layout", tag->layout.to_string()}, {"update", tag->update.value()}};
}

Json to_json(const protocol::PhaseTime& phase) {
  return {{"phase", protocol::phase_name(phase.phase)}, {"duration_ns", phase.duration_ns}};
}

Json to_json(const protocol::EngineResult& engine) {
  return {{"engine", engine.engine},
          {"required", engine.required},
          {"instant", engine.instant},
          {"committed", engine.committed},
          {"bytes_total", engine.bytes_total},
          {"bytes_done", engine.bytes_done},
          {"pause_ns", engine.pause_ns},
          {"channels", engine.channels},
          {"way", engine.way},
          {"error", engine.error.empty() ? Json(nullptr) : Json(engine.error)}};
}

Json to_json(const protocol::PlanLink& link) {
  return {{"source", link.source.value()},
          {"sink", link.sink.value()},
          {"channel", link.channel},
          {"bytes", link.bytes},
          {"buckets", link.buckets}};
}

template <class Value>
Json list_of(const std::vector<Value>& values, Json (*convert)(const Value&)) {
  Json list = Json::array();
  for (const auto& value : values)
    list.push_back(convert(value));
  return list;
}

}  // namespace

Json to_json(const base::Error& error) {
  return {{"code", base::error_code_name(error.code)}, {"message", error.message}};
}

Json to_json(const protocol::PlanReport& plan) {
  return {{"hash", plan.hash.to_string()},
          {"bytes", plan.bytes},
          {"tensors", plan.tensors},
          {"arena_bytes", plan.arena_bytes},
          {"links", list_of(plan.links, &to_json)},
          {"warnings", plan.warnings}};
}

Json to_json(const protocol::UpdateStatus& update) {
  Json json{{"update", update.update.value()},
            {"kind", protocol::update_kind_name(update.kind)},
            {"phase", protocol::phase_name(update.phase)},
            {"base", number_or_null(update.base)},
            {"target", update.target.value()},
            {"started_unix_ms", update.started_unix_ms},
            {"step", update.step},
            {"source", update.source},
            {"phases", list_of(update.phases, &to_json)},
            {"bytes_total", update.bytes_total},
            {"bytes_done", update.bytes_done},
            {"bytes_per_second", staging_rate(update)},
            {"digests_compared", update.digests_compared},
            {"instant", update.instant},
            {"engines", list_of(update.engines, &to_json)}};
  json["error"] = update.error ? to_json(*update.error) : Json(nullptr);
  json["plan"] = update.plan ? to_json(*update.plan) : Json(nullptr);
  return json;
}

Json to_json(const protocol::VersionStatus& version) {
  return {{"version", version.version.value()},
          {"committed", version.committed},
          {"available", version.available},
          {"pinned", version.pinned},
          {"bytes", version.bytes},
          {"created_unix_ms", version.created_unix_ms},
          {"step", version.step},
          {"source", version.source},
          {"holders", version.holders},
          {"rollback_cost", version.rollback_cost}};
}

Json to_json(const protocol::MemberStatus& row) {
  const auto& member = row.member;
  const bool engine = member.role == model::Role::kEngineAgent;
  return {{"member", member.id.value()},
          {"role", role_text(member.role)},
          {"rank", member.rank},
          {"world", member.world},
          {"engine", engine ? Json(member.engine) : Json(nullptr)},
          {"host", member.host.value()},
          {"device_uuid", member.device_uuid.empty() ? Json(nullptr) : Json(member.device_uuid)},
          {"connected", row.connected},
          {"quarantined", row.quarantined},
          {"heartbeat_age_ms", row.heartbeat_age_ms},
          {"readers", row.readers},
          {"live", to_json(row.live)},
          {"shadow", to_json(row.shadow)},
          {"software", row.software}};
}

Json to_json(const protocol::Event& event) {
  return {{"sequence", event.sequence}, {"unix_ms", event.unix_ms}, {"text", event.text}};
}

Json to_json(const protocol::ModelStatus& status) {
  Json json{{"model", status.model.value()},
            {"epoch", {{"journal", status.epoch.journal.to_string()}, {"number", status.epoch.number}}},
            {"needs_adopt", status.needs_adopt},
            {"committed", number_or_null(status.committed)}};
  json["running"] = status.running ? to_json(*status.running) : Json(nullptr);
  json["recent"] = list_of(status.recent, &to_json);
  json["versions"] = list_of(status.versions, &to_json);
  json["members"] = list_of(status.members, &to_json);
  json["events"] = list_of(status.events, &to_json);
  return json;
}

std::string to_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace weightbus::cli
