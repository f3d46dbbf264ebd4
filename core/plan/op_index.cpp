#include "core/plan/op_index.hpp"

#include "core/check.hpp"

namespace pipewright {

OpIndex::OpIndex(const Schedule& schedule, PositionId only)
    : micro_batches_(static_cast<std::size_t>(schedule.shape.micro_batches)),
      forward_(static_cast<std::size_t>(schedule.shape.chunks()) * micro_batches_, -1),
      backward_(forward_.size(), -1) {
  if (only >= 0) add(schedule.positions[static_cast<std::size_t>(only)]);
}

OpIndex::OpIndex(const Schedule& schedule) : OpIndex(schedule, -1) {
  for (const Lane& lane : schedule.positions)
    add(lane);
}

void OpIndex::add(const Lane& lane) {
  for (std::size_t i = 0; i < lane.compute.size(); ++i) {
    const Op& op = lane.compute[i];
    if (op.kind != Kind::F && op.kind != Kind::B && op.kind != Kind::BW) continue;
    auto& places = op.kind == Kind::F ? forward_ : backward_;
    places[at(op.virtual_stage, static_cast<MicroBatchId>(op.micro_batch))] = static_cast<std::int32_t>(i);
  }
}

StageId stage_at(const ScheduleShape& shape, PositionId position) {
  if (shape.replicas.empty()) {
    PP_CHECK(position < shape.stages);
    return position;
  }
  for (StageId stage = 0; stage < shape.stages; ++stage) {
    position -= shape.replicas_of(stage);
    if (position < 0) return stage;
  }
  PP_CHECK(position < 0);
  return shape.stages;
}

PositionId first_position(const ScheduleShape& shape, StageId stage) {
  if (shape.replicas.empty()) return stage;
  PositionId position = 0;
  for (StageId before = 0; before < stage; ++before)
    position += shape.replicas_of(before);
  return position;
}

}  // namespace pipewright
