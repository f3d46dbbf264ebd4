// A comparison with a run that was imported: as text, JSON and a page.
#include <fmt/format.h>

#include "cli/imported.hpp"
#include "cli/shapes.hpp"
#include "io/format_quantity.hpp"
#include "io/utf8.hpp"
#include "io/writers/html_page.hpp"

namespace pipewright {
namespace {

std::string table_text(const std::string& title, const std::vector<ImportedRow>& rows,
                       const std::vector<std::string>& notes, int what, int figures) {
  std::string text = "\n" + title + "\n" + rows_text(rows, what, figures);
  for (const std::string& note : notes)
    text += "  " + note + "\n";
  return text;
}

// The first row is the head.
std::vector<TextColumn> columns(const std::vector<ImportedRow>& rows) {
  std::vector<TextColumn> all = {{"", true}, {"predicted"}, {"measured"}, {"error"}};
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const std::string* const cells[] = {&rows[i].what, &rows[i].predicted, &rows[i].measured, &rows[i].error};
    for (std::size_t k = 0; k < all.size(); ++k)
      all[k].cells.push_back(*cells[k]);
  }
  return all;
}

void add_table(HtmlPage& page, const std::string& title, const std::vector<ImportedRow>& rows,
               const std::vector<std::string>& notes) {
  page.heading(title);
  page.table(columns(rows));
  if (!notes.empty()) page.list(notes);
}

}  // namespace

std::string imported_text(const ImportedComparison& c) {
  std::string text = one_line(c.predicted.name) + ": predicted, next to a run that was imported\n";
  if (c.log) text += table_text(log_title(*c.log), log_rows(c.predicted, *c.log), log_notes(*c.log), 38, 14);
  if (c.trace) text += table_text(trace_title(*c.trace), trace_rows(*c.trace), trace_notes(*c.trace), 36, 12);
  return c.tolerance ? text + "\n  verdict: " + c.verdict + "\n" : text;
}

std::string imported_json(const ImportedComparison& c) {
  JsonText json;
  json.open('{').field("schema", "pipewright.imported/1").field("scenario", c.predicted.name);
  json.key("verdict");
  c.tolerance ? json.value(c.within ? "within" : "outside") : json.null();
  json.field("tolerance", c.tolerance).key("log");
  c.log ? write_log(json, c.predicted, *c.log) : (void)json.null();
  json.key("trace");
  c.trace ? write_trace(json, *c.trace) : (void)json.null();
  json.close();
  return std::move(json).text();
}

std::string imported_html(const ImportedComparison& c, const std::string& command) {
  HtmlPage page(c.predicted.name, "Predicted, next to a run that was imported.");
  const Time predicted = c.log ? c.predicted.step_time : c.trace->predicted_step();
  const Time measured = c.log ? c.log->median : c.trace->measured_step();
  std::vector<HtmlPage::Figure> figures = {
      {"error of the step", fmt::format("{:+.1f} %", 100 * error_of(predicted, measured)), "predicted / measured - 1"}};
  if (c.tolerance) figures.push_back({"verdict", c.within ? "within" : "outside", c.verdict});
  page.figures(figures);
  if (c.log && !c.log->other_layout.empty()) page.warning(c.log->other_layout + "; are they of one run?");
  if (c.log) add_table(page, log_title(*c.log), log_rows(c.predicted, *c.log), log_notes(*c.log));
  if (c.trace) add_table(page, trace_title(*c.trace), trace_rows(*c.trace), trace_notes(*c.trace));
  page.heading("Made by");
  page.text_block(command);
  return page.document();
}

JsonShape imported_shape() {
  using namespace shape;
  return bare_document("pipewright.imported/1", {{"scenario", text()},
                                                 {"verdict", maybe(one_of({"within", "outside"}))},
                                                 {"tolerance", maybe(number())},
                                                 {"log", maybe(log_shape())},
                                                 {"trace", maybe(trace_shape())}});
}

}  // namespace pipewright
