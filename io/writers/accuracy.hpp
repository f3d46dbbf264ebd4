// Published beside predicted, cell by cell, with the error of the trivial baseline.
#pragma once

#include <string>
#include <vector>

#include "core/answers/expectation.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {

std::string accuracy_text(const TableResult& table, const TableOptions& options);
std::string accuracy_markdown(const TableResult& table);

// All tables as one page. `command`: how it was made.
std::string accuracy_html(const std::vector<TableResult>& tables, const std::string& command);

// One row per cell: table, cell, quantity, published, predicted, unit, error, tolerance, baseline, its error, verdict.
std::string accuracy_csv(const std::vector<TableResult>& tables);

// Every cell with all that is known of it, and each table's averages. `written`: files of the same. Schema
// pipewright.reproduction/1.
std::string accuracy_json(const std::vector<TableResult>& tables, const std::vector<std::string>& written);

// Of a cell's figures: the row's own, else the SI unit of the quantity, "" where it has none.
std::string unit_of(const Expectation& row);

// One line per table: cells, misses, errors, the baseline's.
std::string accuracy_summary_text(const std::vector<TableResult>& tables, const TableOptions& options);
std::string accuracy_summary_markdown(const std::vector<TableResult>& tables);

// Known misses that are within their tolerance after all: a sentence each.
std::vector<std::string> misses_that_hit(const std::vector<TableResult>& tables);

}  // namespace pipewright::io
