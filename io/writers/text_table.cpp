#include "io/writers/text_table.hpp"

#include <algorithm>

#include "core/folds.hpp"
#include "core/ids.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/text/utf8.hpp"

namespace pipewright::io {
namespace {

constexpr int kColumnGap = 2;

bool is_empty(const TextColumn& column) {
  return std::ranges::all_of(column.cells,
                             [](const std::string& cell) { return cell.empty() || cell == "0" || cell == "-"; });
}

int width_of(const TextColumn& column) {
  return most_over<int>(
      column.cells, [&](const auto& cell) { return display_width(cell); }, display_width(column.head));
}

std::string aligned(const std::string& cell, int width, bool left) {
  const std::string spaces(at(std::max(0, width - display_width(cell))), ' ');
  return left ? cell + spaces : spaces + cell;
}

// Cells as they can be shown: their widths are those of what is seen.
std::vector<TextColumn> on_one_line(std::vector<TextColumn> columns) {
  for (TextColumn& column : columns) {
    column.head = one_line(column.head);
    for (std::string& cell : column.cells)
      cell = one_line(cell);
  }
  return columns;
}

std::string without_blank_end(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string block(const std::vector<const TextColumn*>& columns, int indent) {
  const std::size_t rows = columns.front()->cells.size();
  std::string text;
  for (std::size_t row = 0; row <= rows; ++row) {
    std::string line(at(indent), ' ');
    for (const TextColumn* column : columns) {
      if (column != columns.front()) line.append(kColumnGap, ' ');
      line += aligned(row == 0 ? column->head : column->cells[row - 1], width_of(*column), column->left);
    }
    text += without_blank_end(line);
  }
  return text;
}

}  // namespace

std::string text_table(const std::vector<TextColumn>& given, int width, int indent) {
  const std::vector<TextColumn> columns = on_one_line(given);
  std::string text;
  std::vector<const TextColumn*> fitting;
  int used = 0;
  for (const auto& column : columns) {
    if (column.drop_zero && is_empty(column)) continue;
    if (!fitting.empty() && fitting.size() > 1 && used + kColumnGap + width_of(column) > width) {
      text += block(fitting, indent);
      fitting.resize(1);
      used = indent + width_of(*fitting.front());
    }
    used += (fitting.empty() ? indent : kColumnGap) + width_of(column);
    fitting.push_back(&column);
  }
  return fitting.empty() ? text : text + block(fitting, indent);
}

std::string wrapped(std::string_view head, std::string_view given, int width) {
  const std::string text = one_line(given);
  const int indent = display_width(head);
  std::string result(head), line;
  const auto flush = [&] {
    result += line + "\n";
    line.clear();
  };
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = std::min(text.find(' ', begin), text.size());
    if (std::string_view(text).substr(end).starts_with(" %"))
      end = std::min(text.find(' ', end + 1), text.size());  // "100 %" is one word
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    if (!line.empty() && indent + display_width(line) + 1 + display_width(word) > width) {
      flush();
      result.append(at(indent), ' ');
    }
    line += (line.empty() ? "" : " ") + std::string(word);
    begin = end + 1;
  }
  flush();
  return result;
}

std::string padded(std::string_view given, int width) {
  const std::string text = one_line(given);
  return text + std::string(at(std::max(0, width - display_width(text))), ' ');
}

std::string markdown_head(const std::vector<TextColumn>& columns) {
  std::vector<std::string> names;
  std::string line = "|";
  for (const TextColumn& column : columns) {
    names.push_back(column.head);
    line += column.left ? "---|" : "--:|";
  }
  return markdown_row(names) + line + "\n";
}

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells)
    text += " " + markdown_cell(cell) + " |";
  return text + "\n";
}

std::string markdown_table(const std::vector<TextColumn>& columns) {
  if (columns.empty()) return "";
  std::string text = markdown_head(columns);
  for (std::size_t row = 0; row < columns.front().cells.size(); ++row) {
    auto cells = mapped<std::string>(columns, [&](const TextColumn& column) { return column.cells[row]; });
    text += markdown_row(cells);
  }
  return text;
}

}  // namespace pipewright::io
