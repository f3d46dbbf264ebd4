// A sweep's rows: as a table, CSV, JSON (docs/reference/sweep.md) and a line plot.
#pragma once

#include <string>

#include "core/answers/sweep.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {

// A table of more than 200 rows is cut to the first that fit, and says so.
enum class SweepTable { Cut, All };
std::string sweep_text(const Sweep& sweep, const TableOptions& options, SweepTable rows = SweepTable::Cut);
std::string sweep_csv(const Sweep& sweep);
std::string sweep_json(const Sweep& sweep);  // "schema": "pipewright.sweep/1"

// Parts of the documents of sweeps: what was asked; "grid", keys with their values; "variant" and "values" of a point.
class JsonFields;
void write_question(JsonFields& json, const SweepQuestion& question);
void write_grid(JsonFields& json, const SweepQuestion& question);
void write_point(JsonFields& json, const SweepQuestion& question, std::int64_t point);

// What the plot shows: a key of the grid to the right, a figure upwards. Empty texts: the key with most numbers, two or
// more, and samples_per_s.
struct SweepAxes {
  std::string x, y;
};
// Throws InputError for axes that there are not.
void check_axes(const SweepQuestion& question, const SweepAxes& axes);
// A line per variant, or per value of one other key, and a panel per combination of the rest.
std::string sweep_svg(const Sweep& sweep, const SweepAxes& axes);

// "no_nvlink, 64": a row's variant (where there are several) and values of the grid.
std::string point_name(const SweepQuestion& question, std::int64_t point);

}  // namespace pipewright::io
