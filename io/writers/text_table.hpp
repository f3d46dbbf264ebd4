// Aligned columns for a terminal, and sentences broken at its width: each cell and sentence by `one_line` of
// io/text/utf8.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::io {

struct TextColumn {
  std::string head;
  bool left = false;       // names are aligned left, figures right
  bool drop_zero = false;  // leave the column out when no row has anything but "", "0" or "-"
  std::vector<std::string> cells;
};

// Rows below their heads. Columns that do not fit into `width` follow in a second block (a third, ...) that repeats the
// first column.
std::string text_table(const std::vector<TextColumn>& given, int width, int indent = 2);

// Words of `given` on lines of at most `width` columns; the first line begins with `head`, the others with as many
// spaces. A word longer than a line stands alone.
std::string wrapped(std::string_view head, std::string_view given, int width);

// `given` followed by spaces up to `width` columns.
std::string padded(std::string_view given, int width);

std::string markdown_head(const std::vector<TextColumn>& columns);  // the row of names and the line below it
std::string markdown_row(const std::vector<std::string>& cells);
std::string markdown_table(const std::vector<TextColumn>& columns);  // "" of no columns

}  // namespace pipewright::io
