// What a sweep says in the end: how many points fit, the best of them, and why others do not.
#pragma once

#include <string>
#include <vector>

#include "core/answers/sweep.hpp"

namespace pipewright::io {

class HtmlPage;
class JsonFields;

// The figure by which rows are best: the first of `metrics`, else samples_per_s.
SweepFigure main_figure(const SweepQuestion& question);

// A value of the main figure, the first row that has it, and how many others do.
struct BestRow {
  const SweepRow* row = nullptr;
  double value = 0;
  std::int64_t alike = 0;
};
// Of the rows that fit; the best value first.
std::vector<BestRow> best_rows(const Sweep& sweep, std::size_t most);

// "stages 16, tensor_parallel 8": the variant (where there are several) and what the grid varies, by name.
std::string named_point(const SweepQuestion& question, std::int64_t point);

// Of a sweep of few rows "": its table is the answer.
std::string answer_text(const Sweep& sweep, int width);
void add_answer(HtmlPage& page, const Sweep& sweep);
void write_answer(JsonFields& json, const Sweep& sweep);  // members "outcomes" and "best"

// A line per reason, with the first points that have it; many that differ in their figures only are one.
std::string reasons(const Sweep& sweep, int width);

}  // namespace pipewright::io
