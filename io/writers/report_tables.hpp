// The parts of a report on one answer, as values: what the terminal prints and the HTML report shows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/answers/report.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {

struct ReportTable {
  std::string heading;
  std::vector<TextColumn> columns;
  std::vector<std::string> notes;  // below it
};

// "step time", "33.0 ms (31 to 35 over ...)": what the answer comes to, a line each. A label of "" goes on with the one
// before it.
std::vector<std::pair<std::string, std::string>> summary_lines(const Answer& answer);

// " of the makespan": of what the bubble is a share.
std::string bubble_of(const Answer& answer);

// Those without what a page's figures say: step time, rates, bubble and memory peak.
std::vector<std::pair<std::string, std::string>> lines_beside_figures(const Answer& answer);

// At most `rows` stages of many are listed: evenly spread ones, the limiting and the fullest.
ReportTable stage_table(const Answer& answer, int rows);
ReportTable idle_table(const Answer& answer, int rows);
ReportTable memory_table(const Answer& answer, int rows);
// The busiest first. Without rows: nothing was carried; likewise below.
ReportTable link_table(const Answer& answer, std::size_t rows);
ReportTable sensitivity_table(const Answer& answer);

// One row per formula of the report: the words are the formula with its source, and what differs from its assumptions.
struct FormulaTable {
  TextColumn quantity, by_formula, simulated;
  std::vector<std::string> words;
};
FormulaTable formula_table(const Answer& answer, std::size_t rows);

// "36.4 % forward of stage 2 · 10.0 % transfer ...": at most `parts`, and the rest; "" where there is no path.
std::string critical_path_text(const Answer& answer, std::size_t parts);

// "one device: 30.2 samples/s, this plan is 3.1x as fast"
std::vector<std::string> reference_lines(const Answer& answer);

}  // namespace pipewright::io
