// Where output goes, and what it may contain there.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace weightbus::cli {

enum class Style { kNone, kBold, kDim, kGood, kWarn, kBad };

// Borrowed streams. Not thread safe.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool out_terminal = false;
  bool err_terminal = false;
  bool colour = false;                // both streams
  std::function<int()> columns = {};  // of the terminal, now; none: 100

  int width() const;
  // The text, coloured if colours are on.
  std::string paint(Style style, std::string_view text) const;
};

// stdout and stderr of this process. Colours: on a terminal, unless NO_COLOR is set and not empty or TERM is "dumb".
Console standard_console();

}  // namespace weightbus::cli
