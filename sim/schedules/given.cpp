// The order that a file gives (core/plan/given_schedule.hpp). What a file does not say stands where the other schedules
// have it: a recomputation directly before its backward, all-reduces and updates at the end.
#include <algorithm>

#include "core/plan/given_schedule.hpp"
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

// Chunks that a rank holds at most, from their forward to their weights' gradient, and the first forward above `limit`.
struct MostHeld {
  int chunks = 0;
  const Op* above = nullptr;
};
MostHeld most_held(const std::vector<Op>& ops, int limit) {
  MostHeld most;
  int held = 0;
  for (const Op& op : ops) {
    if (op.kind == Kind::F) most.chunks = std::max(most.chunks, ++held);
    if (op.kind == Kind::F && held > limit && most.above == nullptr) most.above = &op;
    if (rule(op.kind).gradients) --held;
  }
  return most;
}

// "" or the first op that has more in flight than the plan allows.
std::string over_the_limit(const GivenSchedule& given, const std::string& file, const ScheduleShape& shape) {
  if (shape.most_in_flight <= 0) return "";
  int least = 0;
  std::string what;
  for (std::size_t k = 0; k < given.compute.size(); ++k) {
    const MostHeld most = most_held(given.compute[k], shape.most_in_flight * shape.virtual_stages);
    least = std::max(least, (most.chunks + shape.virtual_stages - 1) / shape.virtual_stages);
    if (most.above != nullptr && what.empty())
      what = file + " has more in flight than plan.most_in_flight: " + std::to_string(shape.most_in_flight) + " from " +
             label(*most.above) + " on rank " + std::to_string(k) + " on";
  }
  if (what.empty()) return "";
  return what + "; use " + std::to_string(least) + ", or find an order with less: pipewright schedule --memory-cap";
}

std::string given_order_refusal(const ScheduleShape& shape) {
  if (both_ways(shape.chunk_order) && shape.recompute_except_last)
    return "an order with two directions has two last micro-batches; leave plan.recompute_except_last out";
  if (!shape.given) return "file: names no file; write schedule: {file: my.schedule.csv}, or use --schedule FILE";
  const GivenSchedule& given = *shape.given;
  const std::string file = given.file.empty() ? "the order" : given.file;
  if (given.stages != shape.stages)
    return file + " has " + std::to_string(given.stages) + " ranks, the plan has " + std::to_string(shape.stages) +
           " stages: set plan.stages: " + std::to_string(given.stages);
  if (given.virtual_stages != shape.virtual_stages)
    return file + " has " + std::to_string(given.virtual_stages) + " stages on each rank, the plan has " +
           std::to_string(shape.virtual_stages) + ": set plan.virtual_stages: " + std::to_string(given.virtual_stages);
  if (given.micro_batches != shape.micro_batches)
    return file + " runs " + std::to_string(given.micro_batches) + " micro-batches, the plan has " +
           std::to_string(shape.micro_batches) +
           ": set training.micro_batches: " + std::to_string(given.micro_batches) + ", or another batch";
  return over_the_limit(given, file, shape);
}

Schedule given_order_schedule(const ScheduleShape& shape) {
  return schedule_of_lists(kGivenSchedule, shape, shape.given->compute);
}

std::optional<std::int64_t> given_order_peak(const ScheduleShape&, StageId) {
  return std::nullopt;
}

}  // namespace

Schedule schedule_of_lists(std::string_view name, const ScheduleShape& shape, const std::vector<std::vector<Op>>& ops) {
  Schedule schedule = empty_schedule(name, shape, true);
  for (PositionId k = 0; k < std::ssize(schedule.positions); ++k) {
    Lane& lane = schedule.positions[k];
    for (const Op& op : ops[k]) {
      const VirtualStageId v = op.virtual_stage;
      const auto m = static_cast<MicroBatchId>(op.micro_batch);
      if (op.kind == Kind::F) append_forward(lane, v, m);
      if (op.kind == Kind::BW) append_backward(lane, v, m);
      if (op.kind == Kind::B) append_input_backward(lane, v, m);
      if (op.kind == Kind::W) append_weights(lane, v, m);
      lane.compute.back().with_next = op.with_next;
    }
  }
  return schedule;
}

ScheduleRule given_order() {
  return {.name = kGivenSchedule,
          .title = "the order that a file gives, as PyTorch writes it",
          .source = "PyTorchPP26",
          .memory = "what the order has in flight",
          .flush = true,
          .compute = given_order_schedule,
          .also_refused = given_order_refusal,
          .peak_in_flight = given_order_peak,
          .facts = {.limits_in_flight = true},
          .bound = StepBound::Work,
          .bounded_in_flight = false,
          .from_file = true};
}

}  // namespace pipewright::sim
