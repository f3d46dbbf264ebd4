// The report on a terminal: the question, the answer, the drawing, then what it is made of and how it is known.
#include <algorithm>

#include <fmt/format.h>

#include "io/writers/campaign_lines.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/html.hpp"
#include "io/writers/report_tables.hpp"
#include "io/writers/text_table.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
namespace {

constexpr int kStageRows = 16;  // more stages than that: evenly spread ones, the limiting and the fullest
constexpr std::size_t kLinkRows = 4;
constexpr std::size_t kFormulaRows = 8;
constexpr std::size_t kPathParts = 6;
constexpr int kLabel = 13;  // columns of the labels "throughput   ", ...
constexpr int kNarrowest = 40;

class Page {
 public:
  Page(const Answer& answer, const TableOptions& options)
      : answer_(answer), report_(answer.report), width_(std::max(kNarrowest, options.width)), colour_(options.colour) {}

  std::string print() {
    text_ += paint(wrapped("", headline(answer_), width_), "1");
    summary();
    text_ += whole_training_text(answer_, {width_, colour_});
    heading("timeline");
    text_ += text_timeline(answer_, width_);
    table(stage_table(answer_, kStageRows));
    table(idle_table(answer_, kStageRows));
    table(memory_table(answer_, kStageRows));
    table(link_table(answer_, kLinkRows));
    critical_path();
    table(sensitivity_table(answer_));
    formulas();
    references();
    remarks();
    return std::move(text_);
  }

 private:
  // Escapes stand around whole lines only, so that widths never count them.
  std::string paint(std::string line, std::string_view code) const {
    if (!colour_) return line;
    const auto end = line.find_last_not_of('\n') + 1;
    return fmt::format("\x1b[{}m{}\x1b[0m{}", code, line.substr(0, end), line.substr(end));
  }
  void heading(std::string_view name) { text_ += "\n" + paint(wrapped("", name, width_), "1"); }
  void line(std::string_view label, std::string_view value) {
    text_ += wrapped(padded(label, kLabel) + " ", value, width_);
  }

  void summary() {
    for (const auto& [label, text] : summary_lines(answer_))
      line(label, text);
  }

  void table(const ReportTable& table) {
    if (table.columns.empty()) return;
    heading(table.heading);
    text_ += text_table(table.columns, width_);
    for (const std::string& note : table.notes)
      text_ += wrapped("  ", note, width_);
  }

  void critical_path() {
    const std::string parts = critical_path_text(answer_, kPathParts);
    if (parts.empty()) return;
    heading("critical path");
    text_ += wrapped("  ", parts, width_);
  }

  // Figures in columns, then the formula and what differs from its assumptions, in words.
  void formulas() {
    if (report_.formulas.empty()) return;
    heading("textbook formulas next to the simulation");
    const FormulaTable table = formula_table(answer_, kFormulaRows);
    constexpr int kUnlimited = 1000;
    std::string rows = text_table({table.quantity, table.by_formula, table.simulated}, kUnlimited);
    const auto next_row = [&] {
      const auto end = rows.find('\n');
      const std::string row = rows.substr(0, end);
      rows.erase(0, end + 1);
      return row;
    };
    text_ += next_row() + "  formula\n";
    for (const std::string& words : table.words)
      text_ += wrapped(next_row() + "  ", words, width_);
    if (table.words.size() < report_.formulas.size())
      text_ += fmt::format("  {} more formulas; -o FILE.json has them\n", report_.formulas.size() - table.words.size());
  }

  void references() {
    if (report_.references.empty()) return;
    heading("for comparison");
    for (const std::string& text : reference_lines(answer_))
      text_ += wrapped("  ", text, width_);
  }

  void remarks() {
    const std::vector<std::string> warnings = all_warnings(report_);
    if (!warnings.empty() || !report_.hints.empty()) text_ += "\n";
    for (const auto& warning : warnings)
      text_ += paint(wrapped("warning: ", warning, width_), "33");
    for (const auto& hint : report_.hints)
      text_ += wrapped("hint: ", hint, width_);
    heading("how it is known");
    for (const auto& entry : report_.provenance)
      text_ += wrapped("  ", entry, width_);
  }

  const Answer& answer_;
  const Report& report_;
  int width_;
  bool colour_;
  std::string text_;
};

}  // namespace

std::string infeasible_text(const Infeasible& why) {
  std::string text = "infeasible: " + why.reason + "\n";
  for (const std::string& line : why.details)
    text += "  " + line + "\n";
  if (!why.remedies.empty()) text += "what would make it fit:\n";
  for (const std::string& line : why.remedies)
    text += "  " + line + "\n";
  for (const std::string& warning : why.warnings)
    text += "warning: " + warning + "\n";
  return text;
}

std::string terminal_report(const Answer& answer, const TableOptions& options) {
  return Page(answer, options).print();
}

}  // namespace pipewright::io
