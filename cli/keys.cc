// keys: make key pairs, show public keys, allow them.
#include "weightbus/transport/keys.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"

namespace weightbus::cli {
namespace {

struct KeysOptions {
  std::string file;
  std::string allow_file;
  std::string key;
  std::string role;
  std::string member;
  std::string comment;
};

int new_keys(Session& session, const KeysOptions& options) {
  const auto keys = transport::generate_keys();
  if (!keys) return session.fail(keys.error());
  if (const auto saved = transport::save_keys(options.file, *keys); !saved) {
    base::Error error = saved.error();
    if (error.code == base::ErrorCode::kConflict) error.message += "; keys are never overwritten: name another file";
    return session.fail(error);
  }
  return session.done(
      fmt::format("{}\nThe secret key is in {}, which only you can read. Allow the public key above where the "
                  "process connects to:\n  weightbus keys allow --allow-file FILE --key-of {} ROLE MEMBER\n",
                  keys->public_key, options.file, options.file),
      {{"public_key", keys->public_key}, {"file", options.file}});
}

int show_keys(Session& session, const KeysOptions& options) {
  const auto keys = transport::load_keys(options.file);
  if (!keys) return session.fail(keys.error());
  return session.done(keys->public_key + "\n", {{"public_key", keys->public_key}, {"file", options.file}});
}

int allow(Session& session, const KeysOptions& options) {
  std::string key = options.key;
  if (!options.file.empty()) {
    const auto keys = transport::load_keys(options.file);
    if (!keys) return session.fail(keys.error());
    key = keys->public_key;
  }
  if (!transport::is_key(key)) {
    return session.fail({base::ErrorCode::kInvalidArgument,
                         key.empty()
                             ? std::string("give the public key with --key, or its file with --key-of")
                             : key + " is no public key: 40 characters of Z85, as `weightbus keys show` prints it"});
  }
  const auto role = transport::parse_role(options.role);
  if (!role) return session.fail(role.error());
  const transport::AllowEntry entry{key, *role, model::MemberId{options.member}, options.comment};
  if (const auto added = transport::append_allowed(options.allow_file, entry); !added)
    return session.fail(added.error());
  return session.done(transport::allow_line(entry) + "\n", {{"file", options.allow_file},
                                                            {"public_key", key},
                                                            {"role", transport::role_name(*role)},
                                                            {"member", options.member},
                                                            {"comment", options.comment}});
}

}  // namespace

void add_keys(CLI::App& app, Session& session) {
  const auto options = std::make_shared<KeysOptions>();
  CLI::App* keys = app.add_subcommand("keys", "Make keys, show public keys, and say who may connect");
  keys->require_subcommand(1);
  const auto action = [&session, options](CLI::App* command, int (*run)(Session&, const KeysOptions&)) {
    command->callback(
        [&session, options, run] { session.action = [&session, options, run] { return run(session, *options); }; });
  };

  CLI::App* make = keys->add_subcommand("new", "Make a key pair in a new file that only you can read");
  make->add_option("file", options->file, "The file to make; one that exists is never overwritten")
      ->type_name("FILE")
      ->required();
  action(make, &new_keys);

  CLI::App* show = keys->add_subcommand("show", "Print the public key of a key file");
  show->add_option("file", options->file, "A file that `weightbus keys new` made")->type_name("FILE")->required();
  action(show, &show_keys);

  CLI::App* add =
      keys->add_subcommand("allow", "Add a public key to an allow file; services read it again when it changes");
  add->add_option("--allow-file", options->allow_file, "The allow file, made if need be")
      ->type_name("FILE")
      ->required();
  auto* key = add->add_option("--key", options->key, "The public key")->type_name("KEY");
  add->add_option("--key-of", options->file, "A key file whose public key is meant")->type_name("FILE")->excludes(key);
  add->add_option("--comment", options->comment, "For people, at the end of the line")->type_name("TEXT");
  add->add_option("role", options->role, "shard-agent, engine-agent, admin or coordinator")
      ->type_name("ROLE")
      ->required();
  add->add_option("member", options->member, "The one name that the key may use; * for any")
      ->type_name("MEMBER")
      ->required();
  action(add, &allow);
}

}  // namespace weightbus::cli
