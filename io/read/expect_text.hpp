// expect: and vary: of a scenario between the YAML and what they ask for. Inside io only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/yaml/sections.hpp"

namespace pipewright::io {

constexpr std::size_t kMostVariedPoints = 10'000;

// ---- changes (read_vary.cpp) ----------------------------------------------------------------------------------------
// {plan.stages: 8, training.micro_batches: 32}
void read_changes(Reader& reader, const At& at, std::vector<Assignment>& changes);

// The number of these changes; equal ones share it, so that their scenario is priced once.
int number_of(ExpectAndVary& more, const std::vector<Assignment>& changes);

SectionDoc vary_doc();

// ---- a figure (read_expect_row.cpp) ---------------------------------------------------------------------------------
bool read_quantity(Reader& reader, const At& at, FigureSought& quantity);  // whether it is one; else an error was added
void read_where(Reader& reader, const At& at, std::optional<std::pair<Where, std::int64_t>>& where);
// `where` stands in the map `at`; a figure of the whole run has none.
void place_quantity(Reader& reader, const At& at, FigureSought& quantity,
                    const std::optional<std::pair<Where, std::int64_t>>& where);
// Size of a unit in SI base units, or nothing: not a unit of this dimension.
std::optional<double> unit_size(Dimension dimension, const std::string& unit);
const char* units_of(Dimension dimension);  // those that it has

// ---- one row (read_expect_row.cpp) ----------------------------------------------------------------------------------
// A row as written, and the table's defaults before it is read.
struct RowText {
  Expectation row;
  std::vector<Assignment> changes;
  std::optional<std::pair<Where, std::int64_t>> where;
  std::optional<std::vector<Assignment>> search;
  YamlPlace unit_at, ratio_at, published_at;
};

std::span<const Field<RowText>> expect_row_fields();

// What a table may state for its rows.
void read_row_set(Reader& reader, const At& at, RowText& text);
void read_row_quantity(Reader& reader, const At& at, RowText& text);
void read_row_unit(Reader& reader, const At& at, RowText& text);
void read_row_where(Reader& reader, const At& at, RowText& text);
void read_tolerance(Reader& reader, const At& at, RowText& text);
void read_baseline(Reader& reader, const At& at, RowText& text);
template <auto Member>
void read_row_text(Reader& reader, const At& at, RowText& text) {
  read_value(reader, at, text.row.*Member);
}

// What a cell must have, told once it is read.
void check_row(Reader& reader, const At& at, RowText& text);

}  // namespace pipewright::io
