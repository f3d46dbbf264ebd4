#include "io/writers/sweep_cells.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace pipewright::io {

std::string head_of(const SweepQuestion& question, std::size_t axis) {
  const auto last = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  const std::string head = last(question.axes[axis].key);
  const auto alike =
      std::ranges::count_if(question.axes, [&](const SweepAxis& other) { return last(other.key) == head; });
  return alike > 1 ? question.axes[axis].key : head;
}

std::string head_of(SweepFigure figure, const Scale& scale) {
  const SweepFigureName& column = name_of(figure);
  return std::string(column.head) + (column.form == CellForm::Scaled ? " " + scale.name : "");
}

std::string cell_of(SweepFigure figure, double value, const Scale& scale) {
  const SweepFigureName& column = name_of(figure);
  switch (column.form) {
    case CellForm::Scaled:
      return in_scale(column.unit == Unit::Second ? std::llround(value * 1e9) : static_cast<std::int64_t>(value),
                      scale);
    case CellForm::Percent: return percent(value);
    case CellForm::ThreeDigits: return significant(value);
    case CellForm::FourDigits: return significant(value, 4);
    case CellForm::Whole: return fmt::format("{:.0f}", value);
    case CellForm::Times: return significant(value) + "x";
  }
  return "";
}

Scale scale_of(const Sweep& sweep, SweepFigure figure) {
  double largest = 0;
  for (const SweepRow& row : sweep.rows)
    largest = std::max(largest, std::abs(core::figure(row, figure).value_or(0)));
  if (name_of(figure).unit == Unit::Second) return time_scale(Time{std::llround(largest * 1e9)});
  // One point that is far too large must not blur the others.
  constexpr double kGiB = 1073741824, kTiB = 1024 * kGiB;
  if (largest >= kTiB) return {kGiB, "GiB", 1};
  return bytes_scale(Bytes{static_cast<std::int64_t>(largest)});
}

}  // namespace pipewright::io
