#include "core/plan/op_index.hpp"

#include "core/check.hpp"

namespace pipewright::core {

OpIndex::OpIndex(const Schedule& schedule, PositionId only)
    : micro_batches_(static_cast<std::size_t>(schedule.shape.micro_batches)),
      forward_(static_cast<std::size_t>(schedule.shape.chunks()) * micro_batches_, -1),
      backward_(forward_.size(), -1) {
  if (only >= 0) add(schedule.positions[only]);
}

OpIndex::OpIndex(const Schedule& schedule) : OpIndex(schedule, -1) {
  for (const Lane& lane : schedule.positions)
    add(lane);
}

void OpIndex::add(const Lane& lane) {
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    const Op& op = lane.compute[i];
    if (!rule(op.kind).forward && !rule(op.kind).backward) continue;
    auto& places = rule(op.kind).forward ? forward_ : backward_;
    places[at(op.virtual_stage, static_cast<MicroBatchId>(op.micro_batch))] = static_cast<std::int32_t>(i);
  }
}

}  // namespace pipewright::core
