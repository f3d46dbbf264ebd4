// GPipe: all forwards of a mini-batch, then all backwards in reverse order, then one update.
//
//   0123......ddccbbaa     K = 3, M = 4, f = 1, b = 2; letters are backwards. More in
//   .0123...ddccbbaa..     tests/sim/schedule_pictures_test.cpp
//   ..0123ddccbbaa....
//
// A replicated stage deals its micro-batches out in turn: replica j runs j, j + r, ...
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

Schedule gpipe_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("gpipe", shape, true);
  PositionId position;
  for (const Seat& seat : seats(shape)) {
    Lane& lane = schedule.positions[position++];
    for (int i = 0; i < seat.count; ++i)
      append_forward(lane, seat.chunk(), seat.micro_batch(i));
    for (int i = seat.count; i-- > 0;)
      append_backward(lane, seat.chunk(), seat.micro_batch(i));
  }
  return schedule;
}

// K - 1 of the M + K - 1 slots of every worker pass before its first or after its last micro-batch:
//     bubble = (K - 1) / (M + K - 1)                                                [GPipe19] section 2.3
// K = 4, M = 8: 3/11 = 27.3 %.             tests/papers/identities_test.cpp "GPipe and 1F1B take (M+K-1)(f+b)"
// With recomputation a worker's busy time holds R as well and the share depends on R / (F + B): no formula here.
std::optional<Formula> gpipe_bubble(const ScheduleShape& shape) {
  if (has_replicas(shape) || has_recompute(shape)) return std::nullopt;
  return Formula{"(K-1)/(M+K-1)", shape.stages - 1, std::int64_t{shape.micro_batches} + shape.stages - 1};
}

// Every forward is done before the first backward begins:
//     peak = M, of a replica ceil(M / r)                                            [GPipe19] section 2.3
// M = 8, r = 1: 8.                         tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> gpipe_peak(const ScheduleShape& shape, StageId stage) {
  return shape.seating().most_turns(shape.seating().chunk_of(stage, 0));
}

}  // namespace

ScheduleRule gpipe() {
  return {.name = "gpipe",
          .title = "GPipe: all forwards, then all backwards in reverse",
          .source = "GPipe19",
          .memory = "M micro-batches on every stage",
          .flush = true,
          .compute = gpipe_schedule,
          .bubble = gpipe_bubble,
          .peak_in_flight = gpipe_peak,
          .facts = {.backward_at_once = false, .takes_replicas = true, .pytorch = "GPipe"},
          .bound = StepBound::Phases,
          .bounded_in_flight = false,
          .on_one_stage = "1f1b",
          .leaner = "1f1b",
          .searched = 2};
}

}  // namespace pipewright::sim
