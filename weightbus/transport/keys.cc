#include "weightbus/transport/keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

namespace weightbus::transport {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::Status;

namespace {

constexpr std::size_t kKeyChars = 40;
constexpr std::size_t kFileBytesMax = 1U << 20;
constexpr std::size_t kMemberCharsMax = 256;
constexpr std::string_view kZ85 =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<base::Error> file_error(const char* verb, const std::string& path, int error) {
  const auto code = error == ENOENT                     ? ErrorCode::kNotFound
                    : error == EEXIST                   ? ErrorCode::kConflict
                    : error == EACCES || error == EPERM ? ErrorCode::kPermissionDenied
                    : error == ENOSPC                   ? ErrorCode::kResourceExhausted
                                                        : ErrorCode::kInternal;
  return fail(code, "cannot {} {}: {}", verb, path, std::strerror(error));
}

// The file's text, once its mode has been found to have none of `forbidden`.
Result<std::string> read_file(const std::string& path, mode_t forbidden, const char* advice) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd() < 0) return file_error("open", path, errno);
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) return file_error("examine", path, errno);
  if (!S_ISREG(status.st_mode)) return fail(ErrorCode::kInvalidArgument, "{} is not a plain file", path);
  if ((status.st_mode & forbidden) != 0) {
    return fail(ErrorCode::kPermissionDenied, "{} has mode {:o}; {}", path, status.st_mode & 07777U, advice);
  }
  std::string text;
  std::array<char, 4096> buffer{};
  while (true) {
    const ssize_t got = ::read(file.fd(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error("read", path, errno);
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > kFileBytesMax) {
      return fail(ErrorCode::kInvalidArgument, "{} is larger than {} bytes", path, kFileBytesMax);
    }
  }
}

Status write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return file_error("write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  if (::fsync(fd) != 0) return file_error("write", path, errno);
  return {};
}

std::string_view trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Cuts the first word off `text`.
std::string_view next_word(std::string_view& text) {
  text = trim(text);
  const auto end = std::min(text.find_first_of(" \t"), text.size());
  const auto word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

// Calls f(line number, trimmed line) for each line that is neither blank nor a comment.
template <class F>
Status for_each_line(std::string_view text, F f) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line == "#" || line.starts_with("# ")) continue;
    WB_TRY(f(number, line));
  }
  return {};
}

bool is_member_name(std::string_view text) {
  return !text.empty() && text.size() <= kMemberCharsMax &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c != 0x7f; });
}

}  // namespace

bool is_key(std::string_view text) noexcept {
  return text.size() == kKeyChars && text.find_first_not_of(kZ85) == std::string_view::npos;
}

Result<KeyPair> generate_keys() {
  std::array<char, kKeyChars + 1> public_key{};
  std::array<char, kKeyChars + 1> secret_key{};
  if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
    return fail(ErrorCode::kUnsupported, "cannot make CURVE keys: {}", zmq_strerror(zmq_errno()));
  }
  return KeyPair{public_key.data(), secret_key.data()};
}

Status save_keys(const std::string& path, const KeyPair& keys) {
  const File file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.fd() < 0) return file_error("create", path, errno);
  const auto text = fmt::format(
      "# Weightbus key pair. The secret proves who this member is: keep the file private.\n"
      "public {}\nsecret {}\n",
      keys.public_key, keys.secret_key);
  auto written = write_all(file.fd(), text, path);
  if (!written) ::unlink(path.c_str());
  return written;
}

Result<KeyPair> load_keys(const std::string& path) {
  WB_ASSIGN(const auto text, read_file(path, 077, "a secret key must be readable by its owner only (chmod 600)"));
  KeyPair keys;
  WB_TRY(for_each_line(text, [&](std::size_t number, std::string_view line) -> Status {
    const auto word = next_word(line);
    const auto value = trim(line);
    if ((word != "public" && word != "secret") || !is_key(value)) {
      return fail(ErrorCode::kCorrupted, "{}:{}: expected 'public KEY' or 'secret KEY' with a Z85 key of 40 characters",
                  path, number);
    }
    (word == "public" ? keys.public_key : keys.secret_key) = std::string(value);
    return {};
  }));
  if (keys.secret_key.empty()) return fail(ErrorCode::kCorrupted, "{} holds no secret key", path);
  std::array<char, kKeyChars + 1> derived{};
  if (zmq_curve_public(derived.data(), keys.secret_key.c_str()) != 0) {
    return fail(ErrorCode::kCorrupted, "{}: the secret key cannot be used: {}", path, zmq_strerror(zmq_errno()));
  }
  if (keys.public_key != derived.data()) {
    return fail(ErrorCode::kCorrupted, "{}: the public key does not belong to the secret key", path);
  }
  return keys;
}

const char* role_name(model::Role role) noexcept {
  switch (role) {
    case model::Role::kShardAgent: return "shard-agent";
    case model::Role::kEngineAgent: return "engine-agent";
    case model::Role::kAdmin: return "admin";
    case model::Role::kCoordinator: return "coordinator";
  }
  return "unknown";
}

Result<model::Role> parse_role(std::string_view text) {
  for (const auto role :
       {model::Role::kShardAgent, model::Role::kEngineAgent, model::Role::kAdmin, model::Role::kCoordinator}) {
    if (text == role_name(role)) return role;
  }
  return fail(ErrorCode::kInvalidArgument, "'{}' is no role; use shard-agent, engine-agent, admin or coordinator",
              text);
}

Result<AllowList> AllowList::parse(std::string_view text, const std::string& name) {
  AllowList list;
  std::unordered_map<std::string, std::size_t> lines;
  WB_TRY(for_each_line(text, [&](std::size_t number, std::string_view line) -> Status {
    const auto key = next_word(line);
    if (!is_key(key)) {
      return fail(ErrorCode::kInvalidArgument,
                  "{}:{}: '{}' is no public key (40 characters of Z85); a comment begins with '# '", name, number, key);
    }
    const auto role = parse_role(next_word(line));
    if (!role) return fail(role.error().with(fmt::format("{}:{}", name, number)));
    const auto member = next_word(line);
    if (!is_member_name(member)) {
      return fail(ErrorCode::kInvalidArgument, "{}:{}: no member name after the role; use * for any", name, number);
    }
    const auto [place, fresh] = lines.emplace(std::string(key), number);
    if (!fresh) {
      return fail(ErrorCode::kInvalidArgument, "{}:{}: this key stands in line {} already", name, number,
                  place->second);
    }
    list.entries_.emplace(std::string(key), AllowEntry{std::string(key), *role, model::MemberId(std::string(member)),
                                                       std::string(trim(line))});
    return {};
  }));
  return list;
}

Result<AllowList> AllowList::load(const std::string& path) {
  WB_ASSIGN(const auto text, read_file(path, 022, "a list of allowed keys must be writable by its owner only"));
  return parse(text, path);
}

const AllowEntry* AllowList::find(std::string_view key) const {
  const auto place = entries_.find(std::string(key));
  return place == entries_.end() ? nullptr : &place->second;
}

std::string allow_line(const AllowEntry& entry) {
  auto line = fmt::format("{} {} {}", entry.key, role_name(entry.role), entry.member.value());
  if (!entry.comment.empty()) line += " " + entry.comment;
  return line;
}

Status append_allowed(const std::string& path, const AllowEntry& entry) {
  // The new line has to read back as this entry: no newline in a comment, no blank in a name.
  const auto line = allow_line(entry);
  const auto check = AllowList::parse(line, "the new entry");
  if (!check) return fail(check.error());
  const auto* parsed = check->find(entry.key);
  if (check->size() != 1 || parsed == nullptr || !(*parsed == entry)) {
    return fail(ErrorCode::kInvalidArgument, "the entry for {} does not fit on one line", entry.member.value());
  }
  const auto existing = read_file(path, 022, "a list of allowed keys must be writable by its owner only");
  if (!existing && existing.error().code != ErrorCode::kNotFound) return fail(existing.error());
  const std::string before = existing ? *existing : "# public-key role member [comment]\n";
  WB_ASSIGN(const auto list, AllowList::parse(before, path));
  if (list.find(entry.key) != nullptr) return fail(ErrorCode::kConflict, "{} holds this key already", path);

  // Written beside it and renamed: a coordinator that reloads now reads the old list or the new one.
  const auto temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  {
    const File file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (file.fd() < 0) return file_error("create", temporary, errno);
    const bool newline = !before.empty() && before.back() != '\n';
    auto written = write_all(file.fd(), fmt::format("{}{}{}\n", before, newline ? "\n" : "", line), temporary);
    if (!written) {
      ::unlink(temporary.c_str());
      return written;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return file_error("replace", path, error);
  }
  return {};
}

}  // namespace weightbus::transport
