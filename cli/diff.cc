// diff: which tensors changed between two versions.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/option_checks.h"
#include "cli/table.h"

namespace weightbus::cli {
namespace {

std::string diff_text(std::uint64_t from, std::uint64_t to, const protocol::DiffReply& diff) {
  std::string out;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    for (const auto& name : names)
      out += fmt::format("{}  {}\n", what, fit_text(name, name.size() + 1));
  };
  add("changed", diff.changed);
  add("added  ", diff.added);
  add("removed", diff.removed);
  return out + fmt::format("{} changed, {} added, {} removed, {} equal from version {} to {}\n", diff.changed.size(),
                           diff.added.size(), diff.removed.size(), diff.unchanged, from, to);
}

}  // namespace

void add_diff(CLI::App& app, Session& session) {
  struct Options {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("diff", "Name the tensors whose bytes differ between two versions");
  command->add_option("from", options->from, "A version that was committed")
      ->type_name("VERSION")
      ->required()
      ->check(count_check());
  command->add_option("to", options->to, "Another one")->type_name("VERSION")->required()->check(count_check());
  command->callback([&session, options] {
    session.action = [&session, options] {
      const auto diff = session.ask<protocol::DiffReply>(
          protocol::DiffRequest{model::WeightVersion{options->from}, model::WeightVersion{options->to}});
      if (!diff) return session.fail(diff.error());
      return session.done(diff_text(options->from, options->to, *diff), {{"from", options->from},
                                                                         {"to", options->to},
                                                                         {"changed", diff->changed},
                                                                         {"added", diff->added},
                                                                         {"removed", diff->removed},
                                                                         {"unchanged", diff->unchanged}});
    };
  });
}

}  // namespace weightbus::cli
