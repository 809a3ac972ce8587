// Operating errors are values: Result<T> is a T or an Error that says what went wrong, with whom, and what to do.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace weightbus::base {

// Named by what the caller may do. The numeric values are part of the wire protocol: append only.
enum class ErrorCode : std::uint16_t {
  kInvalidArgument = 1,    // the input is wrong; the same call will fail again
  kNotFound = 2,           // the named thing does not exist
  kConflict = 3,           // something else is in the way (an update runs, a name is taken)
  kUnavailable = 4,        // a peer or resource cannot be reached now; try again later
  kDeadlineExceeded = 5,   // a bounded wait ran out
  kResourceExhausted = 6,  // memory or disk does not suffice; says needed and free bytes
  kCorrupted = 7,          // content does not match its digest or format
  kPermissionDenied = 8,   // the key or role may not do this
  kUnsupported = 9,        // recognised, and not implemented here
  kAborted = 10,           // the update was aborted; nothing changed
  kStale = 11,             // of an older epoch, update or boot
  kInternal = 12,          // a fault of ours
};

// The stable lower-case name, as shown in --json output and metrics ("invalid_argument").
const char* error_code_name(ErrorCode code) noexcept;

struct Error {
  ErrorCode code;
  std::string message;  // one sentence or two, for a person

  // The same error with "context: " in front.
  Error with(const std::string& context) const { return Error{code, context + ": " + message}; }
  friend bool operator==(const Error&, const Error&) = default;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

template <class... Args>
tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace weightbus::base

// Returns the error of a Result or Status expression from the enclosing function.
#define WB_TRY(expression)                                              \
  do {                                                                  \
    if (auto wb_try_result = (expression); !wb_try_result)              \
      return ::weightbus::base::fail(std::move(wb_try_result).error()); \
  } while (false)

#define WB_CONCAT_INNER(a, b) a##b
#define WB_CONCAT(a, b) WB_CONCAT_INNER(a, b)
// WB_ASSIGN(auto x, f()): x is the value of f(), or the error is returned from the enclosing function.
#define WB_ASSIGN(declaration, expression) WB_ASSIGN_INNER(WB_CONCAT(wb_result_, __LINE__), declaration, expression)
#define WB_ASSIGN_INNER(name, declaration, expression)                \
  auto name = (expression);                                           \
  if (!name) return ::weightbus::base::fail(std::move(name).error()); \
  declaration = std::move(*name)
