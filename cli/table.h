// Aligned tables of text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/console.h"

namespace weightbus::cli {

enum class Align { kLeft, kRight };

struct Cell {
  std::string text;
  Style style = Style::kNone;
  Cell(std::string value, Style how = Style::kNone) : text(std::move(value)), style(how) {}
  Cell(const char* value, Style how = Style::kNone) : text(value), style(how) {}
};

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns.
  void add(std::vector<Cell> row);
  bool empty() const { return rows_.empty(); }
  // Lines that end with "\n", at most `width` columns each: the widest column gives way, down to 8. A cell that does
  // not fit ends in "...".
  std::string render(const Console& console, int width) const;

 private:
  std::vector<std::size_t> widths(std::size_t width) const;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Columns that the text takes on a terminal: one a code point.
std::size_t text_columns(std::string_view text) noexcept;
// At most `columns` of it; what was cut ends in "...". Control characters become spaces.
std::string fit_text(std::string_view text, std::size_t columns);
// Broken at spaces into lines of at most `width`, each after `indent` spaces; ends with "\n".
std::string wrap_text(std::string_view text, std::size_t width, std::size_t indent);

}  // namespace weightbus::cli
