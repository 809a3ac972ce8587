#include "cli/table.h"

#include <algorithm>

#include "weightbus/base/assert.h"

namespace weightbus::cli {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrowest = 8;

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U; }

}  // namespace

std::size_t text_columns(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), &begins_character));
}

std::string fit_text(std::string_view text, std::size_t columns) {
  std::string clean(text);
  // Names and errors come from other machines: an escape sequence in one must not reach the terminal.
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  if (text_columns(clean) <= columns) return clean;
  const std::string_view dots = columns >= 4 ? "..." : "";
  const std::size_t keep = columns - dots.size();
  std::size_t characters = 0;
  std::size_t end = 0;
  for (; end < clean.size(); ++end) {
    if (begins_character(clean[end]) && characters++ == keep) break;
  }
  return clean.substr(0, end) + std::string(dots);
}

std::string wrap_text(std::string_view text, std::size_t width, std::size_t indent) {
  const std::string clean = fit_text(text, text.size() + 1);
  const std::size_t room = width > indent + kNarrowest ? width - indent : kNarrowest;
  std::string out;
  std::string line;
  const auto flush = [&] {
    if (line.empty()) return;
    out += std::string(indent, ' ') + line + "\n";
    line.clear();
  };
  for (std::size_t begin = 0; begin < clean.size();) {
    const std::size_t end = std::min(clean.find(' ', begin), clean.size());
    const std::string word = clean.substr(begin, end - begin);
    if (!line.empty() && text_columns(line) + 1 + text_columns(word) > room) flush();
    if (!word.empty()) line += (line.empty() ? "" : " ") + word;
    begin = end + 1;
  }
  flush();
  return out;
}

void Table::add(std::vector<Cell> row) {
  WB_ASSERT(row.size() == columns_.size(), "a row has a cell for each column");
  rows_.push_back(std::move(row));
}

std::vector<std::size_t> Table::widths(std::size_t width) const {
  std::vector<std::size_t> widths;
  std::size_t total = 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t widest = text_columns(columns_[i].title);
    for (const auto& row : rows_)
      widest = std::max(widest, text_columns(row[i].text));
    widths.push_back(widest);
    total += widest + (i == 0 ? 0 : kGap);
  }
  while (total > width) {
    const auto widest = std::max_element(widths.begin(), widths.end());
    if (*widest <= kNarrowest) break;
    --*widest;
    --total;
  }
  return widths;
}

std::string Table::render(const Console& console, int width) const {
  const auto sizes = widths(static_cast<std::size_t>(std::max(width, 1)));
  std::string out;
  const auto line = [&](const std::vector<Cell>& cells) {
    std::string text;
    std::size_t spaces = 0;  // owed before the next cell, so that no line ends in them
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string fitted = fit_text(cells[i].text, sizes[i]);
      const std::size_t pad = sizes[i] - text_columns(fitted);
      if (i > 0) spaces += kGap;
      if (columns_[i].align == Align::kRight) spaces += pad;
      if (!fitted.empty()) {
        text += std::string(spaces, ' ') + console.paint(cells[i].style, fitted);
        spaces = 0;
      }
      if (columns_[i].align == Align::kLeft) spaces += pad;
    }
    out += text + "\n";
  };
  std::vector<Cell> titles;
  for (const auto& column : columns_)
    titles.emplace_back(column.title, Style::kDim);
  line(titles);
  for (const auto& row : rows_)
    line(row);
  return out;
}

}  // namespace weightbus::cli
