#include "cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

namespace weightbus::cli {
namespace {

constexpr int kPlainColumns = 100;

int terminal_columns() {
  winsize size{};
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  }
  return kPlainColumns;
}

const char* code_of(Style style) {
  switch (style) {
    case Style::kNone: return "";
    case Style::kBold: return "\033[1m";
    case Style::kDim: return "\033[2m";
    case Style::kGood: return "\033[32m";
    case Style::kWarn: return "\033[33m";
    case Style::kBad: return "\033[31m";
  }
  return "";
}

}  // namespace

int Console::width() const { return std::clamp(columns ? columns() : kPlainColumns, 20, 400); }

std::string Console::paint(Style style, std::string_view text) const {
  if (!colour || style == Style::kNone || text.empty()) return std::string(text);
  return std::string(code_of(style)) + std::string(text) + "\033[0m";
}

Console standard_console() {
  Console console{std::cout, std::cerr};
  console.out_terminal = ::isatty(STDOUT_FILENO) == 1;
  console.err_terminal = ::isatty(STDERR_FILENO) == 1;
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  console.colour = console.out_terminal && !dumb && (no_color == nullptr || *no_color == '\0');
  console.columns = &terminal_columns;
  return console;
}

}  // namespace weightbus::cli
