// Two results side by side: what differs in the inputs, in the figures and in the timelines.
#pragma once

#include <string>
#include <string_view>

#include "core/answers/report.hpp"
#include "io/read/read_result.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {

// One side: a scenario that was simulated, or a result document read back.
struct ComparedSide {
  std::string name;  // as given on the command line, with the changes made to it
  ResultFigures figures;
  KeysAndValues values;            // of the scenario, defaults included; empty: only `figures.inputs` are known
  const Answer* answer = nullptr;  // nullptr: a document, which has no timeline
};

// Inputs and every figure are the same.
bool same(const ComparedSide& a, const ComparedSide& b);

std::string compare_text(const ComparedSide& a, const ComparedSide& b, const TableOptions& options);
std::string compare_markdown(const ComparedSide& a, const ComparedSide& b);
std::string compare_json(const ComparedSide& a, const ComparedSide& b);  // "schema": "pipewright.comparison/1"

// Both schedules on one scale, one above the other, as text and as a drawing.
std::string text_timelines(const Answer& a, const Answer& b, int width);
std::string svg_timelines(const Answer& a, const Answer& b, std::string_view name_a = "A",
                          std::string_view name_b = "B");

}  // namespace pipewright::io
