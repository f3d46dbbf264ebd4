// Tables of Markdown, as GitHub has them: names to the left, figures to the right. Cells hold text from outside.
#pragma once

#include <string>
#include <vector>

#include "io/writers/text_table.hpp"

namespace pipewright {

std::string markdown_head(const std::vector<TextColumn>& columns);  // the row of names and the line below it
std::string markdown_row(const std::vector<std::string>& cells);
std::string markdown_table(const std::vector<TextColumn>& columns);  // "" of no columns

}  // namespace pipewright
