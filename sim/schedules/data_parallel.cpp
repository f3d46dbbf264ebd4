// Data parallelism: every worker holds the whole model and runs its share of the batch; gradients are all-reduced in
// buckets while the last backward is still running (when a bucket is ready is a price: StepCosts::ready_before_end).
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

std::string data_parallel_refusal(const ScheduleShape& shape) {
  if (shape.stages != 1)
    return "data_parallel has one stage, but plan.stages is " + std::to_string(shape.stages) +
           ": set plan.stages: 1 and plan.data_parallel: N";
  if (has_replicas(shape))
    return "data_parallel counts its workers in plan.data_parallel, but plan.replicas is " +
           std::to_string(shape.replicas_of(0)) + ": leave it out and set plan.data_parallel: " +
           std::to_string(std::int64_t{shape.replicas_of(0)} * shape.data_parallel);
  return "";
}

Schedule data_parallel_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("data_parallel", shape, true);
  Lane& lane = schedule.positions.front();
  for (MicroBatchId m = 0; m < shape.micro_batches; ++m) {
    append_forward(lane, 0, m);
    append_backward(lane, 0, m);
  }
  return schedule;
}

// One stage waits for nobody; what is left of the all-reduce is communication, not a bubble of the schedule:
//     bubble = 0                                                                   [PyTorchDDP20] section 3.2
//                                          tests/sim/schedule_pictures_test.cpp "data parallelism sends its first
//                                          bucket"
std::optional<Formula> data_parallel_bubble(const ScheduleShape&) {
  return Formula{"0: one stage", 0, 1};
}

std::optional<std::int64_t> data_parallel_peak(const ScheduleShape&, StageId) {
  return 1;
}

}  // namespace

ScheduleRule data_parallel() {
  return {.name = "data_parallel",
          .title = "data parallelism: whole model on every worker, bucketed all-reduce",
          .source = "PyTorchDDP20",
          .memory = "1 micro-batch",
          .flush = true,
          .compute = data_parallel_schedule,
          .also_refused = data_parallel_refusal,
          .bubble = data_parallel_bubble,
          .peak_in_flight = data_parallel_peak};
}

}  // namespace pipewright::sim
