#include "weightbus/runtime/agent_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "weightbus/runtime/state_file.h"
#include "weightbus/wire/codec.h"

namespace weightbus::runtime {
namespace {

using nlohmann::json;
constexpr std::size_t kStateBytesMax = 16U << 20;

json to_json(const protocol::Tag& tag) {
  return {{"version", tag.version.value()}, {"layout", tag.layout.to_string()}, {"update", tag.update.value()}};
}

base::Hash128 hash_from(const json& value) {
  const auto hash = base::Hash128::parse(value.get<std::string>());
  if (!hash) throw std::invalid_argument("not a hash");
  return *hash;
}

protocol::Tag tag_from(const json& value) {
  return {model::WeightVersion{value.at("version").get<std::uint64_t>()}, hash_from(value.at("layout")),
          model::UpdateId{value.at("update").get<std::uint64_t>()}};
}

protocol::AgentState parse_state(const json& value) {
  protocol::AgentState state;
  state.known_epoch = {hash_from(value.at("journal")), value.at("epoch").get<std::uint64_t>()};
  state.highest_version = value.at("highest_version").get<std::uint64_t>();
  state.has_arena = value.at("has_arena").get<bool>();
  state.live = value.at("live").get<std::uint32_t>();
  if (state.live > 1) throw std::invalid_argument("live is neither 0 nor 1");
  for (std::size_t half = 0; half < 2; ++half) {
    const json& entry = value.at("halves").at(half);
    if (!entry.at("tag").is_null()) state.halves[half].tag = tag_from(entry.at("tag"));
    state.halves[half].verified = entry.at("verified").get<bool>();
  }
  state.attempts = value.at("attempts").get<std::uint64_t>();
  state.pending_update = value.at("pending_update").get<std::uint64_t>();
  state.torn = value.at("torn").get<bool>();
  state.paused_attempt = value.at("paused_attempt").get<std::uint64_t>();
  state.resumed_attempt = value.at("resumed_attempt").get<std::uint64_t>();
  state.over_update = value.at("over_update").get<std::uint64_t>();
  if (const json& pending = value.at("pending_commit"); !pending.is_null()) {
    protocol::Commit commit{model::WeightVersion{pending.at("version").get<std::uint64_t>()},
                            {},
                            pending.at("pause_deadline_ms").get<std::uint32_t>()};
    for (const auto& rank : pending.at("ranks")) {
      commit.ranks.push_back({model::MemberId{rank.at("rank").get<std::string>()}, tag_from(rank.at("tag"))});
    }
    state.pending_commit = std::move(commit);
  }
  return state;
}

}  // namespace

std::string state_to_json(const protocol::AgentState& state) {
  // Bound by name, so that a field which is added there and forgotten here does not compile.
  const auto& [known_epoch, highest_version, has_arena, live, both, attempts, pending_commit, pending_update, torn,
               paused_attempt, resumed_attempt, over_update] = state;
  json halves = json::array();
  for (const auto& half : both) {
    halves.push_back({{"tag", half.tag ? to_json(*half.tag) : json()}, {"verified", half.verified}});
  }
  json pending;
  if (pending_commit) {
    json ranks = json::array();
    for (const auto& rank : pending_commit->ranks)
      ranks.push_back({{"rank", rank.rank.value()}, {"tag", to_json(rank.tag)}});
    pending = {{"version", pending_commit->version.value()},
               {"pause_deadline_ms", pending_commit->pause_deadline_ms},
               {"ranks", ranks}};
  }
  const json value = {{"journal", known_epoch.journal.to_string()},
                      {"epoch", known_epoch.number},
                      {"highest_version", highest_version},
                      {"has_arena", has_arena},
                      {"live", live},
                      {"halves", halves},
                      {"attempts", attempts},
                      {"pending_update", pending_update},
                      {"torn", torn},
                      {"paused_attempt", paused_attempt},
                      {"resumed_attempt", resumed_attempt},
                      {"over_update", over_update},
                      {"pending_commit", pending}};
  return value.dump(1);
}

base::Result<protocol::AgentState> state_from_json(const std::string& text) {
  try {
    return parse_state(json::parse(text));
  } catch (const std::exception& error) {
    return base::fail(base::ErrorCode::kCorrupted, "not the state of an agent: {}", error.what());
  }
}

base::Result<AgentFiles> AgentFiles::open(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return base::fail(base::ErrorCode::kInvalidArgument, "cannot make the state folder {}: {}", directory,
                      std::strerror(errno));
  }
  return AgentFiles(directory);
}

base::Result<protocol::AgentState> AgentFiles::load_state() const {
  auto text = read_file(directory_ + "/state.json", kStateBytesMax);
  if (!text && text.error().code == base::ErrorCode::kNotFound) return protocol::AgentState{};
  if (!text) return base::fail(text.error());
  auto state = state_from_json(*text);
  if (!state) return base::fail(state.error().with(directory_ + "/state.json"));
  return state;
}

base::Status AgentFiles::save_state(const protocol::AgentState& state) {
  const bool epoch_changed = state.known_epoch != synced_epoch_;
  WB_TRY(write_file(directory_ + "/state.json", state_to_json(state),
                    epoch_changed ? Durability::kMachine : Durability::kProcess));
  synced_epoch_ = state.known_epoch;
  return {};
}

base::Result<model::SinkManifest> AgentFiles::load_manifest() const {
  WB_ASSIGN(const std::string bytes, read_file(directory_ + "/arena.bin", wire::kMaxMessageBytes));
  auto envelope = wire::decode(bytes);
  if (!envelope) return base::fail(envelope.error().with(directory_ + "/arena.bin"));
  if (auto* opened = std::get_if<protocol::SinkOpened>(&envelope->body)) return std::move(opened->manifest);
  return base::fail(base::ErrorCode::kCorrupted, "{}/arena.bin is no manifest", directory_);
}

base::Status AgentFiles::save_manifest(const model::SinkManifest& manifest) {
  const protocol::Envelope envelope{{},
                                    model::ModelName{""},
                                    std::nullopt,
                                    model::MemberId{""},
                                    model::MemberId{""},
                                    0,
                                    protocol::SinkOpened{manifest, {}, protocol::CommitWay::kRemap}};
  return write_file(directory_ + "/arena.bin", wire::encode(envelope), Durability::kProcess);
}

}  // namespace weightbus::runtime
