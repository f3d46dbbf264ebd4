#include "io/writers/html_page.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/text/utf8.hpp"
#include "io/writers/json_text.hpp"
#include "io/writers/page_text.hpp"
#include "io/writers/svg_canvas.hpp"

namespace pipewright::io {
namespace {

// Class names of one letter belong to the drawings, whose rules hold for the whole page.
constexpr std::string_view kPageStyle = R"css(
:root{color-scheme:light dark;--text:#1f2328;--quiet:#59636e;--page:#fff;--card:#f6f8fa;--line:#d1d9e0;--warn:#fff8e1;--warnline:#d4a72c;--shade:#59636e66}
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--quiet:#9ca6b1;--page:#0d1117;--card:#161b22;--line:#30363d;--warn:#2d2408;--warnline:#9e7a1b;--shade:#9ca6b199}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:24px 32px 64px;background:var(--page);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI","Liberation Sans",Arial,sans-serif}
h1{font-size:24px;line-height:1.25;margin:0 0 4px}h2{font-size:18px;margin:36px 0 10px;padding-bottom:4px;border-bottom:1px solid var(--line)}
h1,h2,p,li,.value{overflow-wrap:anywhere}p{margin:8px 0;max-width:100ch}.question,.remark,.note,footer{color:var(--quiet)}.question{font-size:16px;margin:0}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(168px,1fr));gap:12px;margin:20px 0 8px}
.figure{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.figure .name{color:var(--quiet);font-size:13px}.figure .value{font-size:22px;font-weight:600;line-height:1.3}.remark{font-size:13px}
.wide{overflow-x:auto;background:linear-gradient(90deg,var(--page) 40%,transparent) 0 0/48px 100% no-repeat local,linear-gradient(270deg,var(--page) 40%,transparent) 100% 0/48px 100% no-repeat local,linear-gradient(90deg,var(--shade),transparent) 0 0/14px 100% no-repeat scroll,linear-gradient(270deg,var(--shade),transparent) 100% 0/14px 100% no-repeat scroll}
.drawing{margin:4px 0}.drawing svg{display:block;max-width:100%;height:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:4px 0}
th,td{padding:4px 10px;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}
th{font-weight:600;color:var(--quiet);white-space:nowrap;vertical-align:bottom}td{white-space:nowrap}
td.words,th.words{text-align:left}.facts td{text-align:left;white-space:normal}.facts td:first-child{color:var(--quiet);white-space:nowrap}
td.long{white-space:normal;min-width:24ch}
.dense{font-size:13px}.dense th,.dense td{padding:4px 5px}.dense th,.dense td.words{white-space:normal}
.note{font-size:13px;margin:4px 0}.warning{background:var(--warn);border-left:4px solid var(--warnline);padding:6px 12px;margin:8px 0}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px;white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.45 ui-monospace,SFMono-Regular,"Liberation Mono",Menlo,monospace}
footer{margin-top:40px;border-top:1px solid var(--line);padding-top:8px;font-size:13px}
@media print{body{max-width:none;padding:0;font-size:11pt}h2{break-after:avoid}.figure,tr,svg{break-inside:avoid}.wide{overflow:visible;background:none}td{white-space:normal}}
)css";

// On a narrow screen a row of a table is a box with a line per cell, which begins with the head of its column (rules of
// each table, below); a drawing shrinks, and has its full size while it is touched.
constexpr std::string_view kNarrow = "@media screen and (max-width:640px)";
constexpr std::string_view kNarrowStyle = R"css({
body{padding:16px 12px 40px}.figures{grid-template-columns:repeat(auto-fit,minmax(132px,1fr))}
.wide{overflow:visible;background:none}.wide thead{display:none}.wide table,.wide tbody,.wide tr,.facts tbody,.facts tr,.facts td{display:block}
.wide tr{border:1px solid var(--line);border-radius:8px;margin:8px 0;padding:4px 10px}
.wide td,.wide td.words{display:flex;justify-content:space-between;gap:12px;border:0;padding:2px 0;min-width:0;white-space:normal;text-align:right;overflow-wrap:anywhere}
.wide td::before{color:var(--quiet);text-align:left;flex:none;max-width:50%}
.facts td,.facts td:first-child{white-space:normal;border:0;padding:2px 0;overflow-wrap:anywhere}.facts tr{border-bottom:1px solid var(--line);padding:4px 0}
.drawing:focus{overflow-x:auto}.drawing:focus svg{max-width:none}
}
)css";

// Tables of more columns, or of more letters in a row, have smaller letters and heads that wrap: a page is 1176 wide.
constexpr std::size_t kAiryColumns = 12;
constexpr int kAiryLetters = 118;  // 8 each, and 20 between two columns, which count as 2
constexpr int kLongWords = 28;     // longer ones wrap

int widest(const TextColumn& column) {
  int width = display_width(column.head);
  for (const std::string& cell : column.cells)
    width = std::max(width, display_width(cell));
  return width;
}

bool only_zeros(const TextColumn& column) {
  return std::ranges::all_of(column.cells,
                             [](const std::string& cell) { return cell.empty() || cell == "0" || cell == "-"; });
}

std::string shown_text(std::string_view text) {
  return xml(without_folders(text));
}

// Years and the like are words, figures of their own are not.
constexpr std::size_t kLeastInWords = 5;
std::string shown_words(std::string_view text) {
  return xml(with_separators(without_folders(text), kLeastInWords));
}
std::string shown_figure(std::string_view text) {
  return xml(with_separators(without_folders(text)));
}

// Of a style sheet, in an HTML document: only letters, digits and blanks stand as they are.
std::string css_string(std::string_view text) {
  std::string result = "\"";
  for (const char letter : printable(text)) {
    const char lower = static_cast<char>(letter | 0x20);
    const bool plain = (lower >= 'a' && lower <= 'z') || (letter >= '0' && letter <= '9') || letter == ' ' ||
                       static_cast<unsigned char>(letter) >= 0x80;
    result += plain ? std::string(1, letter) : fmt::format("\\{:06x}", static_cast<unsigned char>(letter));
  }
  return result + "\"";
}

}  // namespace

HtmlPage::HtmlPage(std::string title, std::string question) : title_(without_folders(title)) {
  body_ = fmt::format("<header><h1>{}</h1>\n", xml(title_));
  if (!question.empty()) body_ += fmt::format("<p class=\"question\">{}</p>\n", shown_words(question));
  body_ += "</header>\n";
}

void HtmlPage::figures(const std::vector<Figure>& figures) {
  body_ += "<div class=\"figures\">\n";
  for (const Figure& figure : figures) {
    body_ += fmt::format("<div class=\"figure\"><div class=\"name\">{}</div><div class=\"value\">{}</div>",
                         shown_words(figure.name), shown_figure(figure.value));
    if (!figure.remark.empty()) body_ += fmt::format("<div class=\"remark\">{}</div>", shown_figure(figure.remark));
    body_ += "</div>\n";
  }
  body_ += "</div>\n";
}

void HtmlPage::heading(std::string_view text) {
  body_ += fmt::format("<h2>{}</h2>\n", shown_text(text));
}

void HtmlPage::paragraph(std::string_view text) {
  body_ += fmt::format("<p>{}</p>\n", shown_words(text));
}

void HtmlPage::warning(std::string_view text) {
  body_ += fmt::format("<p class=\"warning\">Warning: {}</p>\n", shown_words(text));
}

void HtmlPage::list(const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  body_ += "<ul>\n";
  for (const std::string& line : lines)
    body_ += fmt::format("<li>{}</li>\n", shown_words(line));
  body_ += "</ul>\n";
}

void HtmlPage::table(const std::vector<TextColumn>& columns) {
  std::vector<const TextColumn*> shown;
  std::size_t rows = 0;
  int letters = 0;
  for (const TextColumn& column : columns) {
    if (column.drop_zero && only_zeros(column)) continue;
    shown.push_back(&column);
    rows = std::max(rows, column.cells.size());
    letters += widest(column) + 2;
  }
  const bool dense = shown.size() > kAiryColumns || letters > kAiryLetters;
  const auto cell = [&](std::string_view tag, const TextColumn& column, std::string_view text) {
    const bool wraps = column.left && tag == "td" && display_width(text) > kLongWords;
    body_ += fmt::format("<{}{}>{}</{}>", tag,
                         wraps         ? " class=\"words long\""
                         : column.left ? " class=\"words\""
                                       : "",
                         column.left ? shown_words(text) : shown_figure(text), tag);
  };
  body_ += fmt::format("<div class=\"wide t{}\"><table{}>\n<thead><tr>", ++tables_, dense ? " class=\"dense\"" : "");
  for (std::size_t i = 0; i < shown.size(); ++i)
    narrow_ += fmt::format(".t{} td:nth-child({})::before{{content:{}}}\n", tables_, i + 1, css_string(shown[i]->head));
  for (const TextColumn* column : shown)
    cell("th", *column, column->head);
  body_ += "</tr></thead>\n<tbody>\n";
  for (std::size_t row = 0; row < rows; ++row) {
    body_ += "<tr>";
    for (const TextColumn* column : shown)
      cell("td", *column, row < column->cells.size() ? column->cells[row] : "");
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

void HtmlPage::table(const ReportTable& table) {
  if (table.columns.empty()) return;
  std::string name = table.heading;
  if (!name.empty() && name.front() >= 'a' && name.front() <= 'z') name.front() = static_cast<char>(name.front() - 32);
  heading(name);
  this->table(table.columns);
  for (const std::string& note : table.notes)
    body_ += fmt::format("<p class=\"note\">{}</p>\n", shown_words(note));
}

void HtmlPage::facts(const std::vector<std::pair<std::string, std::string>>& rows) {
  body_ += "<table class=\"facts\"><tbody>\n";
  for (const auto& [name, text] : rows)
    body_ += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", shown_words(name), shown_words(text));
  body_ += "</tbody></table>\n";
}

void HtmlPage::drawing(std::string_view svg) {
  body_ += "<div class=\"drawing\" tabindex=\"0\">\n";
  body_ += svg;
  body_ += "</div>\n";
}

void HtmlPage::text_block(std::string_view text) {
  std::string escaped;
  for (std::size_t begin = 0; begin < text.size();) {  // line by line: `xml` knows no line breaks
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    escaped += shown_text(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  body_ += "<pre>" + escaped + "</pre>\n";
}

std::string HtmlPage::narrow_style() const {
  const std::string heads = narrow_.empty() ? "" : fmt::format("{}{{\n{}}}\n", kNarrow, narrow_);
  return fmt::format("{}{}{}", kNarrow, kNarrowStyle, heads);
}

std::string HtmlPage::document() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src "
      "data:\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n{}"
      "<footer>pipewright {}</footer>\n</body>\n</html>\n",
      xml(title_), kPageStyle, narrow_style(), body_, PIPEWRIGHT_VERSION);
}

}  // namespace pipewright::io
