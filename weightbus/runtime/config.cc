#include "weightbus/runtime/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "weightbus/base/assert.h"
#include "weightbus/runtime/state_file.h"
#include "weightbus/runtime/values.h"

extern char** environ;

namespace weightbus::runtime {
namespace {

using base::ErrorCode;
using base::fail;

constexpr std::size_t kMaxConfigBytes = 1U << 20;
constexpr std::size_t kSampleColumns = 100;
constexpr std::string_view kPrefix = "WEIGHTBUS_";

using Texts = std::vector<std::string>;
using Given = std::map<std::string, Texts, std::less<>>;  // by setting, from one origin

std::string flag_name(const Setting& setting) {
  std::string name = "--" + setting.name;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string variable_name(const Setting& setting) {
  std::string name(kPrefix);
  for (const char c : setting.name)
    name.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c));
  return name;
}

const char* origin_name(SettingOrigin origin) noexcept {
  switch (origin) {
    case SettingOrigin::kDefault: return "default";
    case SettingOrigin::kFile: return "file";
    case SettingOrigin::kEnvironment: return "environment";
    case SettingOrigin::kFlag: return "flag";
  }
  return "unknown";
}

std::string unit_of(const Setting& setting) {
  if (!setting.unit.empty()) return setting.unit;
  if (!setting.choices.empty()) return fmt::format("one of {}", fmt::join(setting.choices, ", "));
  switch (setting.type) {
    case SettingType::kText: return "text";
    case SettingType::kTextList: return "list of texts";
    case SettingType::kFlag: return "true or false";
    case SettingType::kCount: return "whole number";
    case SettingType::kDuration: return "duration: us, ms, s, m, h";
    case SettingType::kBytes: return "size: KiB, MiB, GiB";
    case SettingType::kEndpoint: return "endpoint: tcp://host:port or ipc://path";
    case SettingType::kHostPort: return "address: host:port";
    case SettingType::kPath: return "path";
  }
  return "text";
}

Texts split_list(std::string_view text) {
  Texts parts;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

Texts as_texts(const Setting& setting, const std::string& text) {
  return setting.type == SettingType::kTextList ? split_list(text) : Texts{text};
}

const Setting* find(const ProgramInfo& program, std::string_view name) {
  for (const auto& setting : program.settings)
    if (setting.name == name) return &setting;
  return nullptr;
}

base::Result<Given> from_file(const ProgramInfo& program, const std::string& path) {
  WB_ASSIGN(const auto bytes, read_file(path, kMaxConfigBytes));
  std::istringstream stream(bytes);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(stream);
  } catch (const CLI::Error& error) {
    return fail(ErrorCode::kInvalidArgument, "{}: {}", path, error.what());
  }
  Given given;
  for (const auto& item : items) {
    if (!item.parents.empty())
      return fail(ErrorCode::kInvalidArgument, "{}: sections such as [{}] are not used; write every key at the top",
                  path, item.parents.front());
    const auto* setting = find(program, item.name);
    if (setting == nullptr)
      return fail(ErrorCode::kInvalidArgument, "{}: unknown key {}; see --print-sample-config", path, item.name);
    for (const auto& text : item.inputs)
      if (!text.empty() && text.front() == '"')
        return fail(ErrorCode::kInvalidArgument,
                    "{}: the value of {} has no closing quote, or a # in it, which always begins "
                    "a comment",
                    path, item.name);
    if (!given.try_emplace(item.name, item.inputs).second)
      return fail(ErrorCode::kInvalidArgument, "{}: {} is set twice", path, item.name);
  }
  return given;
}

Given from_environment(const ProgramInfo& program, const Texts& environment, Texts& warnings) {
  Given given;
  for (const auto& entry : environment) {
    if (!entry.starts_with(kPrefix)) continue;
    const auto equals = entry.find('=');
    if (equals == std::string::npos) continue;
    const auto name = entry.substr(0, equals);
    const auto setting = std::find_if(program.settings.begin(), program.settings.end(),
                                      [&](const Setting& s) { return variable_name(s) == name; });
    if (setting != program.settings.end()) {
      given[setting->name] = as_texts(*setting, entry.substr(equals + 1));
    } else if (name != "WEIGHTBUS_CONFIG" && name != "WEIGHTBUS_KEEPER_FD") {
      warnings.push_back(fmt::format("the environment variable {} means nothing to {}", name, program.name));
    }
  }
  return given;
}

base::Status check_range(const Setting& setting, std::uint64_t number) {
  if (number >= setting.min && number <= setting.max) return {};
  const auto show = [&](std::uint64_t bound) {
    if (setting.type == SettingType::kDuration && bound <= INT64_MAX)
      return format_duration(base::Duration(static_cast<std::int64_t>(bound)));
    return setting.type == SettingType::kBytes ? format_bytes(bound) : std::to_string(bound);
  };
  if (number < setting.min) return fail(ErrorCode::kInvalidArgument, "it must be at least {}", show(setting.min));
  return fail(ErrorCode::kInvalidArgument, "it must be at most {}", show(setting.max));
}

// The number behind a text of this type (0 for texts), or what is wrong with it.
base::Result<std::uint64_t> validate(const Setting& setting, const std::string& text) {
  std::uint64_t number = 0;
  switch (setting.type) {
    case SettingType::kFlag: {
      WB_ASSIGN(const bool on, parse_flag(text));
      return on ? 1 : 0;
    }
    case SettingType::kCount: {
      WB_ASSIGN(number, parse_count(text));
      break;
    }
    case SettingType::kBytes: {
      WB_ASSIGN(number, parse_bytes(text));
      break;
    }
    case SettingType::kDuration: {
      WB_ASSIGN(const auto duration, parse_duration(text));
      number = static_cast<std::uint64_t>(duration.count());
      break;
    }
    // An empty text is an optional setting that is not used.
    case SettingType::kEndpoint:
      if (!text.empty()) WB_TRY(parse_endpoint(text));
      return 0;
    case SettingType::kHostPort:
      if (!text.empty()) WB_TRY(parse_host_port(text));
      return 0;
    case SettingType::kText:
      if (!setting.choices.empty() &&
          std::find(setting.choices.begin(), setting.choices.end(), text) == setting.choices.end())
        return fail(ErrorCode::kInvalidArgument, "\"{}\" is not one of {}", text, fmt::join(setting.choices, ", "));
      return 0;
    case SettingType::kTextList:
    case SettingType::kPath: return 0;
  }
  WB_TRY(check_range(setting, number));
  return number;
}

std::string wrapped_comment(const std::string& text) {
  std::istringstream words(text);
  std::string out;
  std::string line = "#";
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kSampleColumns) {
      out += line + "\n";
      line = "#";
    }
    line += " " + word;
  }
  return out + line + "\n";
}

std::string toml_value(const Setting& setting, const std::string& text) {
  if (setting.type == SettingType::kFlag || setting.type == SettingType::kCount) return text;
  if (setting.type != SettingType::kTextList) return "\"" + text + "\"";
  std::string out = "[";
  for (const auto& part : split_list(text))
    out += (out.size() > 1 ? ", \"" : "\"") + part + "\"";
  return out + "]";
}

}  // namespace

// Puts the origins together and validates.
class SettingsReader {
 public:
  static base::Result<Settings> read(const ProgramInfo& program, const Given& flags, const Given& variables,
                                     const Given& file) {
    Settings settings;
    for (const auto& setting : program.settings) {
      Settings::Value value;
      value.type = setting.type;
      value.secret = setting.secret;
      if (const auto flag = flags.find(setting.name); flag != flags.end()) {
        value.texts = flag->second;
        value.origin = SettingOrigin::kFlag;
      } else if (const auto variable = variables.find(setting.name); variable != variables.end()) {
        value.texts = variable->second;
        value.origin = SettingOrigin::kEnvironment;
      } else if (const auto key = file.find(setting.name); key != file.end()) {
        value.texts = key->second;
        value.origin = SettingOrigin::kFile;
      } else if (setting.fallback) {
        value.texts = as_texts(setting, *setting.fallback);
      } else {
        return fail(ErrorCode::kInvalidArgument, "{} must be set: {} {}, {}, or {} in the file of --config. {}",
                    setting.name, flag_name(setting), setting.example, variable_name(setting), setting.name,
                    setting.why);
      }
      if (setting.type != SettingType::kTextList && value.texts.size() != 1)
        return fail(ErrorCode::kInvalidArgument, "{} ({}): it takes one value, {} were given", setting.name,
                    origin_name(value.origin), value.texts.size());
      for (const auto& text : value.texts) {
        const auto number = validate(setting, text);
        if (!number) return fail(number.error().with(fmt::format("{} ({})", setting.name, origin_name(value.origin))));
        value.number = *number;
      }
      settings.order_.push_back(setting.name);
      settings.values_.emplace(setting.name, std::move(value));
    }
    return settings;
  }
};

const Settings::Value& Settings::at(std::string_view name, std::initializer_list<SettingType> types) const {
  const auto found = values_.find(name);
  WB_ASSERT(found != values_.end(), "a setting is asked for that is not in the table");
  WB_ASSERT(types.size() == 0 || std::find(types.begin(), types.end(), found->second.type) != types.end(),
            "a setting is asked for as another type than the table's");
  return found->second;
}

const std::string& Settings::text(std::string_view name) const {
  return at(name, {SettingType::kText, SettingType::kEndpoint, SettingType::kHostPort, SettingType::kPath})
      .texts.front();
}
std::vector<std::string> Settings::list(std::string_view name) const {
  return at(name, {SettingType::kTextList}).texts;
}
bool Settings::flag(std::string_view name) const { return at(name, {SettingType::kFlag}).number != 0; }
std::uint64_t Settings::count(std::string_view name) const { return at(name, {SettingType::kCount}).number; }
std::uint64_t Settings::bytes(std::string_view name) const { return at(name, {SettingType::kBytes}).number; }
base::Duration Settings::duration(std::string_view name) const {
  return base::Duration(static_cast<std::int64_t>(at(name, {SettingType::kDuration}).number));
}
SettingOrigin Settings::origin(std::string_view name) const { return at(name, {}).origin; }

std::string Settings::effective() const {
  std::string line;
  for (const auto& name : order_) {
    const auto& value = values_.find(name)->second;
    if (!line.empty()) line += ' ';
    line += fmt::format("{}={} ({})", name, value.secret ? "***" : fmt::format("{}", fmt::join(value.texts, ",")),
                        origin_name(value.origin));
  }
  return line;
}

Launch read_settings(const ProgramInfo& program, const std::vector<std::string>& arguments,
                     const std::vector<std::string>& environment) {
  Launch launch;
  const auto ends = [&](int code, std::string text) {
    launch.exit_code = code;
    launch.text = std::move(text);
    return launch;
  };
  CLI::App app{program.description, program.name};
  std::string config;
  bool check_only = false;
  bool print_sample = false;
  app.add_option("--config", config, "TOML file with any of the settings below (WEIGHTBUS_CONFIG)");
  app.add_flag("--check-config", check_only, "validate every setting, print what would be in effect, and end");
  app.add_flag("--print-sample-config", print_sample,
               "print a configuration file with every setting explained, and end");
  app.add_flag("--worker", launch.worker)->group("");  // for the keeper only: not shown
  app.set_version_flag("--version", program.name + " " + program.version);
  std::map<std::string, CLI::Option*> options;
  for (const auto& setting : program.settings) {
    const auto description = fmt::format(
        "{} [{}; {}; {}]", setting.why, unit_of(setting),
        setting.fallback ? "default " + (setting.fallback->empty() ? "none" : *setting.fallback) : "required",
        variable_name(setting));
    CLI::Option* option = nullptr;
    if (setting.type == SettingType::kFlag) {
      option = app.add_flag(flag_name(setting), description);
    } else {
      option = app.add_option(
          flag_name(setting), [](const CLI::results_t&) { return true; }, description);
      option->type_name(setting.type == SettingType::kTextList ? "TEXT ..." : "VALUE");
    }
    if (setting.type == SettingType::kTextList) option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    options.emplace(setting.name, option);
  }
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(std::move(reversed));
  } catch (const CLI::Error& error) {
    std::ostringstream out;
    const int code = app.exit(error, out, out);
    return ends(code == 0 ? 0 : kExitBadConfig, out.str());
  }
  if (print_sample) return ends(0, sample_config(program));

  Given flags;
  for (const auto& [name, option] : options)
    if (option->count() > 0) flags.emplace(name, option->results());
  const Given variables = from_environment(program, environment, launch.warnings);
  for (const auto& entry : environment)
    if (config.empty() && entry.starts_with("WEIGHTBUS_CONFIG=")) config = entry.substr(entry.find('=') + 1);
  const auto wrong = [&](const base::Error& error) {
    return ends(kExitBadConfig, fmt::format("{}: {}\n", program.name, error.message));
  };
  Given file;
  if (!config.empty()) {
    auto from = from_file(program, config);
    if (!from) return wrong(from.error());
    file = std::move(*from);
  }
  auto settings = SettingsReader::read(program, flags, variables, file);
  if (!settings) return wrong(settings.error());
  if (program.check)
    if (const auto status = program.check(*settings); !status) return wrong(status.error());
  launch.settings = std::move(*settings);
  if (check_only) return ends(0, "The configuration is valid: " + launch.settings.effective() + "\n");
  return launch;
}

Launch read_settings(const ProgramInfo& program, int argc, char** argv) {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    environment.emplace_back(*entry);
  return read_settings(program, std::vector<std::string>(argv + std::min(argc, 1), argv + argc), environment);
}

std::string sample_config(const ProgramInfo& program) {
  std::string out = wrapped_comment("Sample configuration of " + program.name + ": " + program.description) +
                    wrapped_comment(
                        "Each key may be given as a flag (bucket_bytes: --bucket-bytes) or an environment variable "
                        "(WEIGHTBUS_BUCKET_BYTES) too. Flags go before variables, variables before this file.");
  for (const auto& setting : program.settings) {
    out += "\n" + wrapped_comment(setting.why);
    out += wrapped_comment(fmt::format("Unit: {}. Default: {}.", unit_of(setting),
                                       !setting.fallback           ? "none, must be set"
                                       : setting.fallback->empty() ? "empty"
                                                                   : *setting.fallback));
    if (setting.fallback) {
      out += fmt::format("{} = {}\n", setting.name, toml_value(setting, *setting.fallback));
    } else {
      out += fmt::format("# {} = {}\n", setting.name, toml_value(setting, setting.example));
    }
  }
  return out;
}

}  // namespace weightbus::runtime
