// A thin owner of SQLite's handles, with its errors sorted by what they mean for a journal. Internal to store/sqlite.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"

namespace weightbus::store {

class Database {
 public:
  Database() = default;
  ~Database() { sqlite3_close_v2(handle_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  base::Status open(const std::string& path, const std::string& vfs, base::Duration busy_timeout);
  // Runs statements that give no rows, or whose rows do not matter.
  base::Status execute(const char* sql);
  base::Result<std::int64_t> integer(const char* sql);
  bool in_transaction() const noexcept { return sqlite3_get_autocommit(handle_) == 0; }
  // The error of the last call that failed, in words and as a code.
  base::Error error(std::string_view doing) const;

  sqlite3* handle() const noexcept { return handle_; }
  const std::string& path() const noexcept { return path_; }

 private:
  sqlite3* handle_ = nullptr;
  std::string path_;
};

class Statement {
 public:
  Statement(Database& database, const char* sql) : database_(database) {
    ok_ = sqlite3_prepare_v2(database.handle(), sql, -1, &handle_, nullptr) == SQLITE_OK;
  }
  ~Statement() { sqlite3_finalize(handle_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Parameters count from 1. A text or blob must live until the last step().
  void bind(int at, std::int64_t value) { ok_ = ok_ && sqlite3_bind_int64(handle_, at, value) == SQLITE_OK; }
  void bind_text(int at, std::string_view value) {
    ok_ = ok_ && sqlite3_bind_text64(handle_, at, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8) == SQLITE_OK;
  }
  void bind_blob(int at, std::string_view value) {
    // A null pointer would store NULL instead of an empty blob.
    const void* data = value.empty() ? "" : value.data();
    ok_ = ok_ && sqlite3_bind_blob64(handle_, at, data, value.size(), SQLITE_STATIC) == SQLITE_OK;
  }
  // True: a row is there. False: done.
  base::Result<bool> step() {
    const int rc = ok_ ? sqlite3_step(handle_) : SQLITE_ERROR;
    if (rc == SQLITE_ROW) return true;
    if (rc == SQLITE_DONE) return false;
    return base::fail(database_.error("access"));
  }
  void reset() { sqlite3_reset(handle_); }

  std::int64_t integer(int column) { return sqlite3_column_int64(handle_, column); }
  std::string bytes(int column) {
    const auto* data = static_cast<const char*>(sqlite3_column_blob(handle_, column));
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_, column));
    return data == nullptr ? std::string() : std::string(data, size);
  }

 private:
  Database& database_;
  sqlite3_stmt* handle_ = nullptr;
  bool ok_ = false;
};

}  // namespace weightbus::store
