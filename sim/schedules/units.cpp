#include "sim/schedules/units.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/check.hpp"

namespace pipewright::sim {
namespace {

std::vector<Op> cut(const std::vector<Op>& whole, int units) {
  std::vector<Op> ops;
  ops.reserve(whole.size() * at(units));
  std::vector<std::pair<std::uint16_t, std::uint32_t>> rebuilt;  // chunks whose recomputation waits for its backward
  for (const Op& op : whole) {
    const std::pair chunk{op.virtual_stage, op.micro_batch};
    if (op.kind == Kind::R) {
      rebuilt.push_back(chunk);
      continue;
    }
    const bool again = rule(op.kind).backward && std::erase(rebuilt, chunk) > 0;
    for (int i = 0; i < units; ++i) {
      Op part = op;
      part.with_next = 0;  // halves of a pair are no longer next to one another
      part.virtual_stage =
          static_cast<std::uint16_t>(op.virtual_stage * units + (rule(op.kind).forward ? i : units - 1 - i));
      if (again) ops.push_back({Kind::R, part.virtual_stage, part.micro_batch});
      ops.push_back(part);
    }
  }
  return ops;
}

}  // namespace

void cut_into_units(Schedule& schedule, int units) {
  PP_CHECK(schedule.flush && schedule.shape.units == 1);
  schedule.shape.units = units;
  for (Lane& lane : schedule.positions)
    lane.compute = cut(lane.compute, units);
}

}  // namespace pipewright::sim
