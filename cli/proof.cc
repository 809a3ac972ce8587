#include "cli/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "cli/checkpoint_digest.h"

namespace weightbus::cli {
namespace {

using SlotKey = std::tuple<std::string, model::DType, model::Dims, model::Box>;

SlotKey key_of(const protocol::SlotDigest& slot) {
  return {slot.tensor.name, slot.tensor.dtype, slot.tensor.shape, slot.box};
}

void note(Proof& proof, RankProof& rank, const protocol::SlotDigest& slot, std::string what) {
  ++rank.different;
  proof.differences.push_back({rank.member, slot.tensor.name, model::to_string(slot.box), std::move(what)});
}

void check_version(Proof& proof, const RankProof& rank, std::optional<std::uint64_t> expected) {
  if (!rank.version) {
    proof.differences.push_back(
        {rank.member, "", "", "serves no version: it holds no whole one, or is exchanging it now"});
  } else if (expected && *rank.version != *expected) {
    proof.differences.push_back(
        {rank.member, "", "", fmt::format("serves version {}, not {}", *rank.version, *expected)});
  }
}

}  // namespace

Proof compare_ranks(const protocol::VerifyReply& live, const std::optional<model::WeightVersion>& committed) {
  Proof proof;
  std::optional<std::uint64_t> expected;
  if (committed) expected = committed->value();
  std::map<SlotKey, std::pair<plan::Digest, const protocol::EngineDigests*>> first;
  std::set<std::optional<std::uint64_t>> versions;
  for (const auto& engine : live.engines) {
    RankProof rank{engine.member.value(), engine.engine, std::nullopt, engine.slots.size()};
    if (engine.live) rank.version = engine.live->version.value();
    versions.insert(rank.version);
    if (!expected) expected = rank.version;
    check_version(proof, rank, expected);
    for (const auto& slot : engine.slots) {
      const auto [it, is_new] = first.try_emplace(key_of(slot), slot.digest, &engine);
      const auto& [digest, holder] = it->second;
      if (digest == slot.digest) {
        ++rank.equal;
      } else if (holder->live && engine.live && holder->live->version == engine.live->version) {
        note(proof, rank, slot, fmt::format("differs from {}, at the same version", holder->member.value()));
      } else {
        ++rank.different;  // their versions differ, which is said above
      }
    }
    proof.ranks.push_back(std::move(rank));
  }
  if (versions.size() == 1) proof.version = *versions.begin();
  return proof;
}

void require_all_ranks(const std::vector<protocol::MemberStatus>& members, const protocol::VerifyReply& live,
                       Proof& proof) {
  std::map<std::string, std::uint32_t> missing;  // ranks by engine
  for (const auto& member : members) {
    if (member.member.role == model::Role::kEngineAgent) missing[member.member.engine] = member.member.world;
  }
  for (const auto& rank : live.engines) {
    if (auto it = missing.find(rank.engine); it != missing.end() && it->second > 0) --it->second;
  }
  for (const auto& [engine, count] : missing) {
    if (count > 0)
      proof.differences.push_back({engine, "", "", std::to_string(count) + " of its ranks did not answer"});
  }
}

base::Status compare_with(const checkpoint::CheckpointFolder& folder, const protocol::VerifyReply& live, Proof& proof) {
  CheckpointDigests digests(folder);
  proof.checkpoint = folder.directory();
  // What ranks differ in among themselves shows against the checkpoint too, and better; versions stay.
  std::erase_if(proof.differences, [](const Difference& difference) { return !difference.tensor.empty(); });
  std::set<std::size_t> used;
  for (std::size_t i = 0; i < live.engines.size(); ++i) {
    RankProof& rank = proof.ranks.at(i);
    rank.equal = rank.different = rank.not_comparable = 0;
    for (const auto& slot : live.engines[i].slots) {
      const auto tensor = digests.find(slot.tensor.name);
      if (!tensor) {
        note(proof, rank, slot, "is not in the checkpoint");
        continue;
      }
      used.insert(*tensor);
      const auto& spec = folder.tensors()[*tensor];
      if (spec.shape != slot.tensor.shape) {
        note(proof, rank, slot,
             fmt::format("has shape {} in the checkpoint and {} in the engine", model::to_string(spec.shape),
                         model::to_string(slot.tensor.shape)));
      } else if (spec.dtype != slot.tensor.dtype) {
        ++rank.not_comparable;
      } else {
        WB_ASSIGN(const auto digest, digests.of(*tensor, slot.tensor, slot.box));
        if (digest == slot.digest) {
          ++rank.equal;
        } else {
          note(proof, rank, slot, "has other bytes than the checkpoint");
        }
      }
    }
  }
  proof.unused_tensors = folder.tensors().size() - used.size();
  return folder.check_unmodified();
}

}  // namespace weightbus::cli
