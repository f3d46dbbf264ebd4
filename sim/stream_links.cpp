#include "sim/stream_links.hpp"

#include <algorithm>
#include <limits>

namespace pipewright {

StreamLinks stream_links(const Schedule& schedule, const Wiring& wiring, PositionId position) {
  constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  StreamLinks links;
  const Lane& ops = schedule.positions[static_cast<std::size_t>(position)];
  if (ops.collective.empty()) {
    links.update_needs.assign(ops.compute.size(), 0);  // as many as there can be updates
    return links;
  }
  const auto round = [](const Op& op) { return static_cast<int>(op.micro_batch); };  // of AllReduce and Update
  std::vector<std::uint32_t> last_gradient(wiring.gradient_keys(), kNone), needs(wiring.meetings(), 0);
  for (std::uint32_t i = 0; i < ops.collective.size(); ++i)
    needs[wiring.meeting_key(ops.collective[i].virtual_stage, round(ops.collective[i]), 0)] = i + 1;
  for (std::uint32_t i = 0; i < ops.compute.size(); ++i) {
    const Op& op = ops.compute[i];
    if (op.kind == Kind::BW || op.kind == Kind::W)
      last_gradient[wiring.gradient_key(position, op.virtual_stage, wiring.round_of(op))] = i;
    if (op.kind == Kind::Update)
      links.update_needs.push_back(needs[wiring.meeting_key(op.virtual_stage, round(op), 0)]);
  }
  for (std::uint32_t i = 0; i < ops.collective.size(); ++i) {
    const Op& reduce = ops.collective[i];
    const std::uint32_t op = last_gradient[wiring.gradient_key(position, reduce.virtual_stage, round(reduce))];
    links.gradient_ready.push_back(op == kNone ? Time{0} : kNever);
    if (op != kNone) links.triggers.push_back({op, i});
  }
  std::stable_sort(links.triggers.begin(), links.triggers.end());
  return links;
}

}  // namespace pipewright
