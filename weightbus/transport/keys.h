// CURVE keys and the list of keys that may connect.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "weightbus/base/result.h"
#include "weightbus/model/ids.h"
#include "weightbus/model/roster.h"

namespace weightbus::transport {

// Both as Z85 text of 40 characters.
struct KeyPair {
  std::string public_key;
  std::string secret_key;
  friend bool operator==(const KeyPair&, const KeyPair&) = default;
};

bool is_key(std::string_view text) noexcept;

// kUnsupported if libzmq was built without CURVE.
base::Result<KeyPair> generate_keys();
// Writes a new file that only its owner may read (mode 0600). kConflict if the file exists: keys are never overwritten.
base::Status save_keys(const std::string& path, const KeyPair& keys);
// kPermissionDenied if others may read the file; kCorrupted if it is no key file or the two keys do not belong
// together.
base::Result<KeyPair> load_keys(const std::string& path);

struct AllowEntry {
  std::string key;
  model::Role role;
  model::MemberId member;  // "*": any name of that role
  std::string comment;
  friend bool operator==(const AllowEntry&, const AllowEntry&) = default;
};

// "shard-agent", "engine-agent", "admin", "coordinator".
const char* role_name(model::Role role) noexcept;
base::Result<model::Role> parse_role(std::string_view text);

// Who may connect, one line each: `public-key role member [comment]`. Blank lines and lines that are "#" or begin with
// "# " are skipped ("#" alone may be the first character of a key). A value: copies are independent.
class AllowList {
 public:
  // `name` stands for the text in errors, which say the line: "allow.txt:3: ...".
  static base::Result<AllowList> parse(std::string_view text, const std::string& name);
  // kNotFound, kPermissionDenied (others than the owner may write it), or parse's errors.
  static base::Result<AllowList> load(const std::string& path);

  const AllowEntry* find(std::string_view key) const;  // nullptr: not allowed
  std::size_t size() const noexcept { return entries_.size(); }

 private:
  std::unordered_map<std::string, AllowEntry> entries_;
};

// The line for an entry, without a newline.
std::string allow_line(const AllowEntry& entry);
// Adds an entry to the file, making it (mode 0644) if need be. kConflict if the key is in it already.
base::Status append_allowed(const std::string& path, const AllowEntry& entry);

}  // namespace weightbus::transport
