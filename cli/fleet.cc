// evict and adopt: who belongs to the fleet.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"

namespace weightbus::cli {

void add_fleet(CLI::App& app, Session& session) {
  const auto member = std::make_shared<std::string>();
  CLI::App* evict = app.add_subcommand(
      "evict", "Remove a member for good; its agent ends. One that is started again comes in as a new one");
  evict->add_option("member", *member, "Its name, as `weightbus members` shows it")->type_name("MEMBER")->required();
  evict->callback([&session, member] {
    session.action = [&session, member] {
      const auto done = session.ask<protocol::Done>(protocol::EvictRequest{model::MemberId{*member}});
      if (!done) return session.fail(done.error());
      return session.done(*member + " is evicted\n", {{"evicted", *member}});
    };
  });

  CLI::App* adopt = app.add_subcommand(
      "adopt",
      "Take over members that obeyed another journal, which is lost; numbers go on above all that they report");
  adopt->callback([&session] {
    session.action = [&session] {
      const auto client = session.connect();
      if (!client) return session.fail(client.error());
      const auto done = (*client)->ask<protocol::Done>(protocol::AdoptRequest{});
      if (!done) return session.fail(done.error());
      const std::uint64_t epoch = (*client)->epoch() ? (*client)->epoch()->number : 0;
      return session.done(fmt::format("the members are adopted; this is epoch {} now\n", epoch),
                          {{"adopted", true}, {"epoch", epoch}});
    };
  });
}

}  // namespace weightbus::cli
