// How a sweep's figures and keys are shown, in its table, its plot and its answer.
#pragma once

#include <cstddef>
#include <string>

#include "core/answers/sweep.hpp"
#include "io/text/format_quantity.hpp"

namespace pipewright::io {

// Of a key: the last part is enough for a column, unless another key ends alike.
std::string head_of(const SweepQuestion& question, std::size_t axis);

std::string head_of(SweepFigure figure, const Scale& scale);
std::string cell_of(SweepFigure figure, double value, const Scale& scale);
// One unit for the column.
Scale scale_of(const Sweep& sweep, SweepFigure figure);

}  // namespace pipewright::io
