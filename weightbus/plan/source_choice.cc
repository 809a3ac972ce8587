#include "weightbus/plan/source_choice.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

namespace weightbus::plan {
namespace {

// Hosts and devices as numbers, so that choosing compares no strings.
class Places {
 public:
  struct Where {
    std::uint32_t host;
    std::uint32_t device;  // 0: none
  };
  template <class Member>
  Where of(const Member& member) {
    const auto host = number(hosts_, member.host.value());
    return {host, member.device_uuid.empty() ? 0 : number(devices_, member.device_uuid)};
  }

 private:
  static std::uint32_t number(std::map<std::string_view, std::uint32_t>& numbers, std::string_view name) {
    return numbers.emplace(name, static_cast<std::uint32_t>(numbers.size() + 1)).first->second;
  }
  std::map<std::string_view, std::uint32_t> hosts_;
  std::map<std::string_view, std::uint32_t> devices_;
};

int distance(const Places::Where& a, const Places::Where& b) {
  if (a.host != b.host) return 2;
  return a.device != 0 && a.device == b.device ? 0 : 1;
}

}  // namespace

void choose_sources(std::span<const PlanSource> sources, std::span<const PlanSink> sinks, Tables& tables) {
  Places places;
  std::vector<Places::Where> source_places;
  std::vector<Places::Where> sink_places;
  for (const auto& source : sources)
    source_places.push_back(places.of(source));
  for (const auto& sink : sinks)
    sink_places.push_back(places.of(sink));

  std::vector<std::uint64_t> load(sources.size(), 0);
  for (std::uint32_t p = 0; p < tables.pieces.size(); ++p) {
    const auto holders = tables.holders_of(tables.pieces[p].shard_class);
    if (holders.end - holders.begin > 1) continue;
    const auto entries = tables.entries_of(tables.pieces[p].slot_class);
    load[tables.holders[holders.begin].source] += tables.piece_bytes(p) * (entries.end - entries.begin);
  }
  for (std::uint32_t p = 0; p < tables.pieces.size(); ++p) {
    const auto holders = tables.holders_of(tables.pieces[p].shard_class);
    if (holders.end - holders.begin == 1) continue;
    const auto bytes = tables.piece_bytes(p);
    const auto entries = tables.entries_of(tables.pieces[p].slot_class);
    tables.pieces[p].choices = static_cast<std::uint32_t>(tables.choices.size());
    for (auto e = entries.begin; e < entries.end; ++e) {
      const auto& sink = sink_places[tables.entries[e].sink];
      const auto cost = [&](std::uint32_t h) {
        const auto source = tables.holders[h].source;
        return std::tuple(distance(source_places[source], sink), load[source], source);
      };
      auto best = holders.begin;
      auto best_cost = cost(best);
      for (auto h = holders.begin + 1; h < holders.end; ++h) {
        if (const auto other = cost(h); other < best_cost) {
          best = h;
          best_cost = other;
        }
      }
      load[tables.holders[best].source] += bytes;
      tables.choices.push_back(best);
    }
  }
}

void make_units(Tables& tables) {
  // (cell, source, holder) of every use; sorted, and each kept once. Tensor by tensor, to bound the memory.
  std::vector<Unit> uses;
  std::uint32_t piece = 0;
  std::uint32_t next_cell = 0;
  std::vector<std::uint32_t> used;
  for (std::uint32_t tensor = 0; tensor < tables.tensors.size(); ++tensor) {
    uses.clear();
    for (; piece < tables.pieces.size() && tables.tensor_of_piece(piece) == tensor; ++piece) {
      const auto& row = tables.pieces[piece];
      const auto entries = tables.entries_of(row.slot_class);
      used.clear();
      if (row.choices == kOneHolder) {
        used.push_back(tables.shard_classes[row.shard_class].holders);
      } else {
        const auto chosen = tables.choices.begin() + row.choices;
        used.assign(chosen, chosen + (entries.end - entries.begin));
        std::sort(used.begin(), used.end());
        used.erase(std::unique(used.begin(), used.end()), used.end());
      }
      for (const auto cell : tables.cells_of(piece)) {
        for (const auto holder : used)
          uses.push_back({cell, holder, tables.holders[holder].source, 0});
      }
    }
    const auto key = [](const Unit& unit) { return std::tuple(unit.cell, unit.source, unit.holder); };
    std::sort(uses.begin(), uses.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    const auto same = [](const Unit& a, const Unit& b) { return a.cell == b.cell && a.source == b.source; };
    uses.erase(std::unique(uses.begin(), uses.end(), same), uses.end());
    for (const auto& use : uses) {
      while (next_cell <= use.cell)
        tables.cells[next_cell++].units = static_cast<std::uint32_t>(tables.units.size());
      tables.units.push_back(use);
    }
  }
  std::uint32_t sources = 0;
  for (const auto& unit : tables.units)
    sources = std::max(sources, unit.source + 1);
  std::vector<std::uint32_t> next_index(sources, 0);
  for (auto& unit : tables.units)
    unit.index = next_index[unit.source]++;
}

}  // namespace weightbus::plan
