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
  // Keys of this worker's (virtual stage, round) pairs, dense.
  std::vector<std::size_t> first(wiring.chunks.size());
  std::size_t keys = 0;
  const Seating seating = schedule.seating();
  const StageId stage = seating.stage_at(position);
  for (int i = 0; i < seating.held(); ++i) {
    const VirtualStageId v = seating.chunk_of(stage, i);
    first[static_cast<std::size_t>(v)] = keys;
    keys += static_cast<std::size_t>(wiring.rounds(v));
  }
  const auto key = [&first](const Op& op, int round_of_op) {
    return first[op.virtual_stage] + static_cast<std::size_t>(round_of_op);
  };
  std::vector<std::uint32_t> last_gradient(keys, kNone), needs(keys, 0);
  for (std::uint32_t i = 0; i < ops.collective.size(); ++i)
    needs[key(ops.collective[i], round(ops.collective[i]))] = i + 1;
  for (std::uint32_t i = 0; i < ops.compute.size(); ++i) {
    const Op& op = ops.compute[i];
    if (op.kind == Kind::BW || op.kind == Kind::W) last_gradient[key(op, wiring.round_of(op))] = i;
    if (op.kind == Kind::Update) links.update_needs.push_back(needs[key(op, round(op))]);
  }
  for (std::uint32_t i = 0; i < ops.collective.size(); ++i) {
    const Op& reduce = ops.collective[i];
    const std::uint32_t op = last_gradient[key(reduce, round(reduce))];
    links.gradient_ready.push_back(op == kNone ? Time{0} : kNever);
    if (op != kNone) links.triggers.push_back({op, i});
  }
  std::stable_sort(links.triggers.begin(), links.triggers.end());
  return links;
}

}  // namespace pipewright
