// Measured runs against predictions, as text, Markdown, comma-separated values and JSON.
#pragma once

#include <string>
#include <vector>

#include "core/answers/expectation.hpp"
#include "core/answers/measured.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {

// One set: every run, what became of the other rows, the errors by split, how often the layout ranked first was the
// fastest, and what was fitted.
std::string measured_text(const MeasuredResult& result, const TableOptions& options);
// Several sets: a row of errors per figure and subset, and which rows no scenario can express. `published`: tables of
// papers, a row each at the end.
std::string measured_summary(const std::vector<MeasuredResult>& results, const std::vector<TableResult>& published,
                             const TableOptions& options);
std::string measured_markdown(const std::vector<MeasuredResult>& results, const std::vector<TableResult>& published);
std::string measured_csv(const std::vector<MeasuredResult>& results);  // one row per run
// Schema pipewright.measured-runs/2. `written`: files that the command wrote.
std::string measured_json(const std::vector<MeasuredResult>& results, const std::vector<TableResult>& published,
                          const std::vector<std::string>& written);

}  // namespace pipewright::io
