// A report as one HTML file: no scripts, nothing loaded from elsewhere, light and dark, printable, for wide screens and
// narrow ones. The SVG drawings are part of the text, and as wide as the page at most. Numbers have separators of
// thousands, and no folder of this machine is shown (page_text.hpp).
//
// Tests: tests/cli/html_test.cpp
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/writers/report_tables.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {

class HtmlPage {
 public:
  // `title` names the page and stands above it; `question` below the title.
  HtmlPage(std::string title, std::string question);

  // Large figures with a name each: the answer at a glance.
  struct Figure {
    std::string name, value, remark;
  };
  void figures(const std::vector<Figure>& figures);
  void heading(std::string_view text);
  void paragraph(std::string_view text);
  void warning(std::string_view text);
  void list(const std::vector<std::string>& lines);
  // Names in columns that say so are aligned left, figures right; columns of zeros that may be dropped are.
  void table(const std::vector<TextColumn>& columns);
  void table(const ReportTable& table);  // with its heading and notes; nothing where it has no columns
  // Name and text, a row each.
  void facts(const std::vector<std::pair<std::string, std::string>>& rows);
  void drawing(std::string_view svg);  // of Canvas::document
  void text_block(std::string_view text);

  std::string document() const;

 private:
  std::string narrow_style() const;

  std::string title_, body_;
  std::string narrow_;  // rules for narrow screens: what stands before each cell of a column
  int tables_ = 0;
};

}  // namespace pipewright::io
