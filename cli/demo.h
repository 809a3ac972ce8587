// weightbus demo: the main job, shown with real processes on this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/demo_fleet.h"
#include "cli/session.h"

namespace weightbus::cli {

struct DemoOptions {
  std::string size = "0.6b";
  std::string checkpoint;  // empty: made in the demo's folder
  std::string directory;   // empty: a new one, removed in the end
  bool keep = false;
  std::uint32_t engines = 2;
  std::uint32_t updates = 0;  // bench: so many pushes, timed, instead of the story
};

struct DemoStep {
  std::string title;
  protocol::UpdateStatus update;
  std::string note;  // what was shown
};

// One run of the demo. Every check that fails ends it with an error; close() cleans up whatever happened.
class Demo {
 public:
  Demo(Session& session, DemoOptions options) : session_(session), options_(std::move(options)) {}
  ~Demo();

  base::Status run();
  base::Status bench();
  base::Status close();
  const std::vector<DemoStep>& steps() const { return steps_; }
  const std::string& directory() const { return directory_; }

 private:
  using Digests = std::map<std::string, std::vector<protocol::SlotDigest>>;  // by member

  base::Status open();
  base::Status make_checkpoint(std::uint64_t version, std::string& path);
  base::Result<protocol::UpdateStatus> update(protocol::Body request);
  base::Status push(std::uint64_t version, const std::string& title);
  base::Status push_and_kill();
  base::Status roll_back();
  // Waits until the fleet's status satisfies `done`; `what` for the error.
  base::Result<protocol::ModelStatus> wait_for(const std::string& what,
                                               const std::function<bool(const protocol::ModelStatus&)>& done);
  base::Result<protocol::ModelStatus> wait_for_all_live(model::WeightVersion version);
  base::Status wait_for_snapshots(model::WeightVersion version);
  // Digests of what every engine serves; engines must agree, rank by rank.
  base::Result<Digests> digests(model::WeightVersion version);
  void say(const std::string& text);

  Session& session_;
  DemoOptions options_;
  std::string directory_;
  std::string model_;
  std::string base_checkpoint_;
  std::unique_ptr<DemoFleet> fleet_;
  std::unique_ptr<runtime::AdminClient> client_;
  std::vector<DemoStep> steps_;
  std::map<std::uint64_t, Digests> seen_;  // by version
  bool made_directory_ = false;
};

// A copy of a checkpoint folder in which the first bytes of each file's data differ: a changed version of the same
// model.
base::Status copy_changed(const std::string& from, const std::string& to, std::uint64_t variant);

}  // namespace weightbus::cli
