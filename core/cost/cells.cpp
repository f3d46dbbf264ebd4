#include "core/cost/cells.hpp"

#include <algorithm>
#include <cmath>

namespace pipewright::core {

std::span<const Op> cell_of(const StepCosts& costs, std::span<const Op> ops) {
  std::size_t size = 1;
  if (costs.together)
    while (size < ops.size() && ops[size - 1].with_next)
      ++size;
  return ops.first(std::min(size, ops.size()));
}

Time cell_time(const StepCosts& costs, std::span<const Op> cell) {
  if (cell.size() == 1) return costs.time_of(cell.front());
  const StepCosts::Together& together = *costs.together;
  Time alone, computing, beside;
  bool forward = false, backward = false;
  for (const Op& op : cell) {
    const Time time = costs.time_of(op);
    alone = checked_sum(alone, time);
    computing +=
        together.computing[static_cast<std::size_t>(op.virtual_stage) * kKinds + static_cast<std::size_t>(op.kind)];
    if (!rule(op.kind).forward && !rule(op.kind).backward) beside += time;
    forward |= rule(op.kind).forward, backward |= rule(op.kind).backward;
  }
  if (together.pair && forward && backward) return checked_sum(*together.pair, beside);
  const Time exchanged = alone - computing;
  const double slowed = static_cast<double>(computing.value) + together.share * static_cast<double>(exchanged.value);
  return std::max(exchanged, Time{std::llround(slowed)});
}

std::vector<Time> ends_in_cell(const StepCosts& costs, std::span<const Op> cell) {
  const Time all = cell_time(costs, cell);
  double alone = 0, before = 0;
  for (const Op& op : cell)
    alone += static_cast<double>(costs.time_of(op).value);
  std::vector<Time> ends;
  for (const Op& op : cell) {
    before += static_cast<double>(costs.time_of(op).value);
    ends.push_back(alone > 0 ? Time{std::llround(static_cast<double>(all.value) * (before / alone))} : Time{});
  }
  ends.back() = all;
  return ends;
}

}  // namespace pipewright::core
