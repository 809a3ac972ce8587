// What an agent keeps on disk: its AgentState, and the manifest of its arena.
#pragma once

#include <optional>
#include <string>

#include "weightbus/base/result.h"
#include "weightbus/protocol/agent_output.h"

namespace weightbus::runtime {

// Files in one folder that belongs to one agent. Written so that they survive the death of the process at any moment;
// the epoch (which must survive the machine) is synced to disk whenever it changes.
class AgentFiles {
 public:
  // Makes the folder if need be (mode 0700).
  static base::Result<AgentFiles> open(const std::string& directory);

  // The state last saved, or a fresh one. kCorrupted names the file.
  base::Result<protocol::AgentState> load_state() const;
  base::Status save_state(const protocol::AgentState& state);
  // kNotFound when there is none.
  base::Result<model::SinkManifest> load_manifest() const;
  base::Status save_manifest(const model::SinkManifest& manifest);

 private:
  explicit AgentFiles(std::string directory) : directory_(std::move(directory)) {}
  std::string directory_;
  model::Epoch synced_epoch_;
};

// JSON of an AgentState, and back; pure.
std::string state_to_json(const protocol::AgentState& state);
base::Result<protocol::AgentState> state_from_json(const std::string& text);

}  // namespace weightbus::runtime
