// Comparing the digests of live slots with each other and with a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/json_views.h"
#include "weightbus/base/result.h"
#include "weightbus/checkpoint/checkpoint_folder.h"
#include "weightbus/protocol/messages.h"

namespace weightbus::cli {

struct RankProof {
  std::string member;
  std::string engine;
  std::optional<std::uint64_t> version;  // live; none: the rank holds nothing
  std::uint64_t slots = 0;
  std::uint64_t equal = 0;  // with the checkpoint, or with the first rank that holds the same box
  std::uint64_t different = 0;
  std::uint64_t not_comparable = 0;  // cast on the way: the bytes differ by design
};

struct Difference {
  std::string member;
  std::string tensor;
  std::string box;
  std::string what;
};

struct Proof {
  std::optional<std::uint64_t> version;  // that every rank serves, if they agree
  std::string checkpoint;                // empty: ranks were compared with each other only
  std::uint64_t unused_tensors = 0;      // of the checkpoint: no live slot holds them
  std::vector<RankProof> ranks;
  std::vector<Difference> differences;
  bool good() const { return differences.empty(); }
};

// All ranks serve one version, the committed one if that is known, and ranks that hold the same box of a tensor hold
// the same bytes.
Proof compare_ranks(const protocol::VerifyReply& live, const std::optional<model::WeightVersion>& committed);

// Adds a difference for each engine of which not every rank answered: what was not looked at is not proven.
void require_all_ranks(const std::vector<protocol::MemberStatus>& members, const protocol::VerifyReply& live,
                       Proof& proof);

// Counts each slot against the bytes of the same box of the checkpoint, read here; names that the checkpoint ties to
// others are resolved. Adds to `proof`, which is that of compare_ranks. Errors: files that cannot be read.
base::Status compare_with(const checkpoint::CheckpointFolder& folder, const protocol::VerifyReply& live, Proof& proof);

std::string proof_text(const Proof& proof, const Console& console);
Json to_json(const Proof& proof);

}  // namespace weightbus::cli
