// Published beside predicted, cell by cell, with the error of the trivial baseline.
#pragma once

#include <string>
#include <vector>

#include "core/plan/expectation.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {

std::string accuracy_text(const TableResult& table, const TableOptions& options);
std::string accuracy_markdown(const TableResult& table);

// All tables as one page. `command`: how it was made.
std::string accuracy_html(const std::vector<TableResult>& tables, const std::string& command);

// One row per cell: table, cell, quantity, published, predicted, unit, error, tolerance, baseline, its error, verdict.
std::string accuracy_csv(const std::vector<TableResult>& tables);

// One line per table: cells, misses, errors, the baseline's.
std::string accuracy_summary_text(const std::vector<TableResult>& tables, const TableOptions& options);
std::string accuracy_summary_markdown(const std::vector<TableResult>& tables);

// Known misses that are within their tolerance after all: a sentence each.
std::vector<std::string> misses_that_hit(const std::vector<TableResult>& tables);

}  // namespace pipewright
