#include "weightbus/store/sqlite/database.h"

#include <algorithm>
#include <limits>

namespace weightbus::store {

using base::ErrorCode;

base::Status Database::open(const std::string& path, const std::string& vfs, base::Duration busy_timeout) {
  path_ = path;
  const int rc =
      sqlite3_open_v2(path.c_str(), &handle_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                      vfs.empty() ? nullptr : vfs.c_str());
  if (rc != SQLITE_OK) return base::fail(error("open"));
  sqlite3_extended_result_codes(handle_, 1);
  const auto wait = std::clamp<std::int64_t>(busy_timeout / base::Millis(1), 0, std::numeric_limits<int>::max());
  sqlite3_busy_timeout(handle_, static_cast<int>(wait));
  return {};
}

base::Status Database::execute(const char* sql) {
  if (sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return base::fail(error("access"));
  return {};
}

base::Result<std::int64_t> Database::integer(const char* sql) {
  Statement statement(*this, sql);
  WB_ASSIGN(const bool row, statement.step());
  if (!row) return base::fail(ErrorCode::kCorrupted, "the journal {} misses what every journal holds", path_);
  return statement.integer(0);
}

base::Error Database::error(std::string_view doing) const {
  const int extended = handle_ == nullptr ? SQLITE_NOMEM : sqlite3_extended_errcode(handle_);
  const char* text = handle_ == nullptr ? "out of memory" : sqlite3_errmsg(handle_);
  ErrorCode code = ErrorCode::kInternal;
  std::string advice;
  switch (extended & 0xff) {
    case SQLITE_FULL:
      code = ErrorCode::kResourceExhausted;
      advice = "; free space on that disk";
      break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      code = ErrorCode::kUnavailable;
      advice = "; another process holds it";
      break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      code = ErrorCode::kCorrupted;
      advice = "; move it away and use a copy, or start a new journal and run 'weightbus adopt'";
      break;
    case SQLITE_CANTOPEN:
      code = ErrorCode::kNotFound;
      advice = "; does its folder exist?";
      break;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH: code = ErrorCode::kPermissionDenied; break;
    default: break;
  }
  return {code, fmt::format("cannot {} the journal {}: {} (SQLite {}){}", doing, path_, text, extended, advice)};
}

}  // namespace weightbus::store
