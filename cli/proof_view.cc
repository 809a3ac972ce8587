// What `weightbus verify` prints.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/proof.h"
#include "cli/table.h"

namespace weightbus::cli {
namespace {
constexpr std::size_t kDifferencesShown = 20;
constexpr int kWidthMax = 100;

Json version_json(const std::optional<std::uint64_t>& version) { return version ? Json(*version) : Json(nullptr); }

std::string verdict(const Proof& proof, const Console& console) {
  std::uint64_t equal = 0;
  std::uint64_t skipped = 0;
  for (const auto& rank : proof.ranks) {
    equal += rank.equal;
    skipped += rank.not_comparable;
  }
  const std::string what = proof.checkpoint.empty() ? "agree with each other" : "hold the bytes of " + proof.checkpoint;
  std::string out = proof.good() ? console.paint(Style::kGood, "verified") +
                                       fmt::format("  {} ranks serve version {}; {} slots {}\n", proof.ranks.size(),
                                                   proof.version.value_or(0), equal, what)
                                 : console.paint(Style::kBad, "not verified") +
                                       fmt::format("  {} differences\n", proof.differences.size());
  if (skipped > 0) {
    out += fmt::format(
        "{} slots are cast to another dtype on the way, so that they cannot be compared with the checkpoint\n",
        skipped);
  }
  if (proof.unused_tensors > 0)
    out += fmt::format("{} tensors of the checkpoint are held by no engine\n", proof.unused_tensors);
  return out;
}

}  // namespace

std::string proof_text(const Proof& proof, const Console& console) {
  const int width = std::min(console.width(), kWidthMax);
  std::string out = verdict(proof, console);
  Table ranks({{"member"},
               {"engine"},
               {"version", Align::kRight},
               {"slots", Align::kRight},
               {"equal", Align::kRight},
               {"different", Align::kRight},
               {"cast", Align::kRight}});
  for (const auto& rank : proof.ranks) {
    ranks.add({rank.member, rank.engine, rank.version ? std::to_string(*rank.version) : "-", std::to_string(rank.slots),
               std::to_string(rank.equal),
               Cell(std::to_string(rank.different), rank.different > 0 ? Style::kBad : Style::kNone),
               std::to_string(rank.not_comparable)});
  }
  out += "\n" + ranks.render(console, width);
  if (proof.good()) return out;
  out += "\n";
  for (std::size_t i = 0; i < std::min(proof.differences.size(), kDifferencesShown); ++i) {
    const auto& d = proof.differences[i];
    const std::string line =
        d.tensor.empty() ? d.member + " " + d.what : fmt::format("{}: {} {} {}", d.member, d.tensor, d.box, d.what);
    out += wrap_text(line, static_cast<std::size_t>(width), 0);
  }
  if (proof.differences.size() > kDifferencesShown) {
    out += fmt::format("and {} more; --json shows all\n", proof.differences.size() - kDifferencesShown);
  }
  return out;
}

Json to_json(const Proof& proof) {
  Json ranks = Json::array();
  for (const auto& rank : proof.ranks) {
    ranks.push_back({{"member", rank.member},
                     {"engine", rank.engine},
                     {"version", version_json(rank.version)},
                     {"slots", rank.slots},
                     {"equal", rank.equal},
                     {"different", rank.different},
                     {"not_comparable", rank.not_comparable}});
  }
  Json differences = Json::array();
  for (const auto& d : proof.differences) {
    differences.push_back({{"member", d.member},
                           {"tensor", d.tensor.empty() ? Json(nullptr) : Json(d.tensor)},
                           {"box", d.box.empty() ? Json(nullptr) : Json(d.box)},
                           {"what", d.what}});
  }
  return {{"verified", proof.good()},
          {"version", version_json(proof.version)},
          {"checkpoint", proof.checkpoint.empty() ? Json(nullptr) : Json(proof.checkpoint)},
          {"unused_tensors", proof.unused_tensors},
          {"ranks", std::move(ranks)},
          {"differences", std::move(differences)}};
}

}  // namespace weightbus::cli
