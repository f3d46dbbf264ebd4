#include "io/writers/markdown_table.hpp"

#include "io/text/quote.hpp"

namespace pipewright {

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
    std::vector<std::string> cells;
    for (const TextColumn& column : columns)
      cells.push_back(column.cells[row]);
    text += markdown_row(cells);
  }
  return text;
}

}  // namespace pipewright
