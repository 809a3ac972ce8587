// Settings: one table for each program, from which everything else follows: the flags and --help, the environment
// variables, the configuration file, the sample file, validation, and the log line of what is in effect.
//
// A setting `bucket_bytes` is the flag --bucket-bytes, the variable WEIGHTBUS_BUCKET_BYTES and the key bucket_bytes of
// the TOML file that --config names. The flag goes before the variable, the variable before the file, the file before
// the default.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"

namespace weightbus::runtime {

enum class SettingType : std::uint8_t {
  kText,
  kTextList,  // flag: repeated; variable: separated by commas; file: an array
  kFlag,
  kCount,
  kDuration,  // "500ms"
  kBytes,     // "512MiB"
  kEndpoint,  // "tcp://host:port", "ipc://path"
  kHostPort,  // "127.0.0.1:9090"
  kPath,
};

struct Setting {
  std::string name;  // lower case with underscores
  SettingType type;
  std::optional<std::string> fallback;  // the default, as one would write it; none: must be given
  std::string why;                      // what it is for, and when to change it; a sentence or more
  std::string unit = {};                // for people, where the type does not say it ("updates", "threads")
  std::string example = {};             // for settings without a default
  std::uint64_t min = 0;                // kCount, kBytes (bytes), kDuration (nanoseconds)
  std::uint64_t max = UINT64_MAX;
  std::vector<std::string> choices = {};  // kText: what it may be; empty: anything
  bool secret = false;                    // its value is never shown
};

enum class SettingOrigin : std::uint8_t { kDefault, kFile, kEnvironment, kFlag };

// The validated values. Asking for a name that is not in the table, or as another type, is a programmer error.
class Settings {
 public:
  const std::string& text(std::string_view name) const;  // kText, kEndpoint, kHostPort, kPath
  std::vector<std::string> list(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::uint64_t count(std::string_view name) const;
  std::uint64_t bytes(std::string_view name) const;
  base::Duration duration(std::string_view name) const;
  SettingOrigin origin(std::string_view name) const;

  // "bucket_bytes=512MiB (default) endpoint=tcp://... (flag)", in the table's order; secrets as "***".
  std::string effective() const;

 private:
  friend class SettingsReader;
  struct Value {
    SettingType type;
    std::vector<std::string> texts;  // one, or those of a list
    std::uint64_t number = 0;        // kFlag, kCount, kBytes; nanoseconds of kDuration
    SettingOrigin origin = SettingOrigin::kDefault;
    bool secret = false;
  };
  const Value& at(std::string_view name, std::initializer_list<SettingType> types) const;
  std::vector<std::string> order_;
  std::map<std::string, Value, std::less<>> values_;
};

struct ProgramInfo {
  std::string name;         // "weightbus-coordinator"
  std::string description;  // one sentence
  std::string version;      // "0.1.0"
  std::vector<Setting> settings;
  // What only this program can check (settings that exclude each other); shown by --check-config too.
  std::function<base::Status(const Settings&)> check = {};
};

// What main() has to do.
struct Launch {
  // Set: print `text` (to stderr if the code is not 0) and end with this code: --help, --version, --check-config,
  // --print-sample-config, or an error (2).
  std::optional<int> exit_code;
  std::string text;
  Settings settings;
  bool worker = false;                // started by the keeper (--worker)
  std::vector<std::string> warnings;  // WEIGHTBUS_ variables that mean nothing to this program
};

inline constexpr int kExitBadConfig = 2;

// Parses and validates. `environment`: as of main(), "NAME=value" strings.
Launch read_settings(const ProgramInfo& program, const std::vector<std::string>& arguments,
                     const std::vector<std::string>& environment);
// The same from main()'s arguments and the process's environment.
Launch read_settings(const ProgramInfo& program, int argc, char** argv);

// A whole configuration file: each setting with its why, unit and default. Reading it back gives the defaults.
std::string sample_config(const ProgramInfo& program);

}  // namespace weightbus::runtime
