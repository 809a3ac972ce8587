// completion: scripts for shells, written from the app itself, so that they always know every command and option.
#include "cli/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"

namespace weightbus::cli {
namespace {

struct Word {
  std::string text;  // "--checkpoint"
  std::string description;
  bool takes_value = false;
  bool takes_path = false;
};

struct Level {
  std::string path;  // "" for the top, "keys new"
  std::vector<Word> commands;
  std::vector<Word> options;
  bool takes_path = false;          // a positional argument that is a file
  std::vector<std::string> values;  // of a positional argument
};

std::string plain(std::string text) {
  std::erase_if(
      text, [](char c) { return c == '\'' || c == '"' || c == '[' || c == ']' || c == '`' || c == '\\' || c == '$'; });
  std::replace(text.begin(), text.end(), ':', ',');
  return text;
}

bool is_path(const CLI::Option& option) { return option.get_type_name() == "FILE" || option.get_type_name() == "DIR"; }

Level level_of(const CLI::App& app, const std::string& path) {
  Level level{path};
  for (const CLI::App* command : app.get_subcommands({})) {
    level.commands.push_back({command->get_name(), plain(command->get_description())});
  }
  for (const CLI::Option* option : app.get_options()) {
    const bool value = option->get_items_expected_max() > 0;
    for (const auto& name : option->get_lnames())
      level.options.push_back({"--" + name, plain(option->get_description()), value, is_path(*option)});
    if (option->get_positional()) level.takes_path = level.takes_path || is_path(*option);
  }
  if (path == "completion") level.values = {"bash", "zsh", "fish"};
  return level;
}

void collect(const CLI::App& app, const std::string& path, std::vector<Level>& levels) {
  levels.push_back(level_of(app, path));
  for (const CLI::App* command : app.get_subcommands({})) {
    collect(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), levels);
  }
}

std::vector<Level> levels_of(const CLI::App& app) {
  std::vector<Level> levels;
  collect(app, "", levels);
  return levels;
}

std::string words_of(const Level& level, const Level& top) {
  std::string words;
  for (const auto& command : level.commands)
    words += command.text + " ";
  for (const auto& value : level.values)
    words += value + " ";
  for (const auto& option : level.options)
    words += option.text + " ";
  if (&level != &top) {
    for (const auto& option : top.options) {
      if (option.text != "--help" && option.text != "--version") words += option.text + " ";
    }
  }
  if (!words.empty()) words.pop_back();
  return words;
}

// The command's words so far make the key; what may follow is looked up under it.
std::string bash_script(const std::vector<Level>& levels) {
  std::string values;
  std::string paths;
  std::string cases;
  std::string files;
  for (const auto& level : levels) {
    cases += fmt::format("    '{}') words='{}' ;;\n", level.path, words_of(level, levels.front()));
    if (level.takes_path) files += fmt::format("'{}'|", level.path);
    for (const auto& option : level.options) {
      if (option.takes_path) paths += option.text + "|";
      if (option.takes_value && !option.takes_path) values += option.text + "|";
    }
  }
  const auto trimmed = [](std::string text) { return text.empty() ? text : text.substr(0, text.size() - 1); };
  std::string commands;
  for (const auto& level : levels) {
    if (!level.path.empty()) commands += fmt::format("'{}'|", level.path);
  }
  return fmt::format(R"(# bash completion for weightbus
_weightbus() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" path='' words='' i candidate
  COMPREPLY=()
  case "$previous" in
    {paths}) COMPREPLY=($(compgen -f -- "$current")); return ;;
    {values}) return ;;
  esac
  for ((i = 1; i < COMP_CWORD; i++)); do
    candidate="${{path:+$path }}${{COMP_WORDS[i]}}"
    case "$candidate" in {commands}) path="$candidate" ;; esac
  done
  case "$path" in
{cases}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  case "$path" in {files}) COMPREPLY+=($(compgen -f -- "$current")) ;; esac
}}
complete -o filenames -F _weightbus weightbus
)",
                     fmt::arg("paths", trimmed(paths)), fmt::arg("values", trimmed(values)),
                     fmt::arg("commands", trimmed(commands)), fmt::arg("cases", cases),
                     fmt::arg("files", trimmed(files)));
}

std::string zsh_options(const Level& level) {
  std::string out;
  for (const auto& option : level.options) {
    const char* action = !option.takes_value ? "" : option.takes_path ? ":file:_files" : ":value: ";
    out += fmt::format(" \\\n      '{}[{}]{}'", option.text, option.description, action);
  }
  return out;
}

std::string zsh_script(const std::vector<Level>& levels) {
  std::string out =
      "#compdef weightbus\n# zsh completion for weightbus\n_weightbus() {\n  local -a commands\n"
      "  local path=\"\" word candidate\n  for word in ${words[2,CURRENT-1]}; do\n"
      "    candidate=\"${path:+$path }$word\"\n    case \"$candidate\" in ";
  for (std::size_t i = 1; i < levels.size(); ++i)
    out += fmt::format("{}'{}'", i == 1 ? "" : "|", levels[i].path);
  out += ") path=\"$candidate\" ;; esac\n  done\n  case \"$path\" in\n";
  for (const auto& level : levels) {
    out += fmt::format("  '{}')\n", level.path);
    if (!level.commands.empty() || !level.values.empty()) {
      out += "    commands=(";
      for (const auto& command : level.commands)
        out += fmt::format("'{}:{}' ", command.text, command.description);
      for (const auto& value : level.values)
        out += fmt::format("'{}:for {}' ", value, value);
      out += ")\n    _describe 'command' commands\n";
    }
    out += "    _arguments" + zsh_options(level) + (&level == &levels.front() ? "" : zsh_options(levels.front())) +
           (level.takes_path ? " \\\n      '*:file:_files'" : "") + " ;;\n";
  }
  return out +
         "  esac\n}\nif [ \"$funcstack[1]\" = _weightbus ]; then _weightbus \"$@\"; else compdef _weightbus weightbus; "
         "fi\n";
}

std::string fish_script(const std::vector<Level>& levels) {
  std::string out = "# fish completion for weightbus\ncomplete -c weightbus -f\n";
  for (const auto& level : levels) {
    std::string condition;
    if (level.path.empty()) {
      condition = "__fish_use_subcommand";
    } else {
      std::string all;
      for (std::size_t begin = 0; begin < level.path.size();) {
        const auto end = std::min(level.path.find(' ', begin), level.path.size());
        all += (all.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + level.path.substr(begin, end - begin));
        begin = end + 1;
      }
      condition = all;
    }
    for (const auto& command : level.commands) {
      out += fmt::format("complete -c weightbus -n '{}' -a {} -d '{}'\n", condition, command.text, command.description);
    }
    for (const auto& value : level.values)
      out += fmt::format("complete -c weightbus -n '{}' -a {}\n", condition, value);
    if (level.takes_path) out += fmt::format("complete -c weightbus -n '{}' -F\n", condition);
    for (const auto& option : level.options) {
      // Those of the top hold everywhere.
      const std::string where = level.path.empty() ? "" : fmt::format(" -n '{}'", condition);
      out += fmt::format("complete -c weightbus{} -l {} -d '{}'{}\n", where, option.text.substr(2), option.description,
                         option.takes_path    ? " -r -F"
                         : option.takes_value ? " -x"
                                              : "");
    }
  }
  return out;
}

}  // namespace

std::optional<std::string> completion_script(const CLI::App& app, const std::string& shell) {
  const auto levels = levels_of(app);
  if (shell == "bash") return bash_script(levels);
  if (shell == "zsh") return zsh_script(levels);
  if (shell == "fish") return fish_script(levels);
  return std::nullopt;
}

void add_completion(CLI::App& app, Session& session) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completion", "Print a completion script: source <(weightbus completion bash), or the like for zsh and fish");
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->type_name("SHELL")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, &session, shell] {
    session.action = [&app, &session, shell] {
      const auto script = completion_script(app, *shell);
      return session.done(*script, {{"shell", *shell}, {"script", *script}});
    };
  });
}

}  // namespace weightbus::cli
