// Measured runs from comma-separated files: a header, then a line per run. Lines that begin with # are comments; fields
// may stand in quotes.
#pragma once

#include <string>
#include <vector>

#include "core/answers/measured.hpp"

namespace pipewright::io {

// The runs of all files of the table, in the order of their lines. Columns that the table does not name are skipped.
// Throws InputError with one line per error, "file:line: column: ...": a folder or file that is not there, a column
// that the header lacks or has twice, a line with more or fewer fields, a number that is none, is not whole, or not
// more than 0. Rows that are left out, failed or cannot be expressed are among the runs, with their state.
std::vector<MeasuredRun> read_runs(const MeasuredTable& table, const std::string& folder);
std::vector<MeasuredRun> parse_runs(const MeasuredTable& table, const RunFile& group, const std::string& text,
                                    const std::string& file);

// DIR/runs/a.csv or, where that is not there, DIR/a.csv.
std::string file_of_runs(const RunFile& group, const std::string& folder);

}  // namespace pipewright::io
