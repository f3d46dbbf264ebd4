// DualPipeV: DualPipe cut in the middle. Each worker has a chunk on the way to the last worker and one on the way back,
// and runs DualPipe's order with the second in place of the other direction: no weights are held twice.
//
// [PyTorchPP26] ScheduleDualPipeV, by the authors' dualpipev.py; cells of a forward and a backward are made to overlap and
// priced one after the other.                                                 tests/papers/published_orders_test.cpp

#include "sim/schedules/dualpipe.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

std::string dualpipev_refusal(const ScheduleShape& shape) {
  if (shape.micro_batches < 2 * shape.stages)
    return "dualpipev fills the way there and back before it drains, but M = " + std::to_string(shape.micro_batches) +
           " is less than 2 K = " + std::to_string(2 * shape.stages) + ": use " + std::to_string(2 * shape.stages) +
           " micro-batches or more";
  return "";
}

Schedule dualpipev_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("dualpipev", shape, true);
  for (StageId k = 0; k < shape.stages; ++k) {
    Lane& lane = schedule.positions[as<PositionId>(k)];
    const Seating seating = shape.seating();
    append_dualpipe(lane, {{{seating.chunk_of(k, 0), 0}, {seating.chunk_of(k, 1), 0}}}, shape.micro_batches, k,
                    shape.stages);
  }
  return schedule;
}

// Equal passes, one after the other, and free communication: as DualPipe on twice the workers:
//     (K - 1) / (6 M + K - 1)                                      derived from [DeepSeekIII24] section 3.2.1, table 2
// K = 4, M = 10: 63 in all, 60 of them work.                                   tests/papers/zero_bubble_test.cpp "DualPipe"
std::optional<Formula> dualpipev_bubble(const ScheduleShape& shape, const PassTimes& times) {
  if (!times.equal()) return std::nullopt;
  return Formula{"(K-1)/(6M+K-1)", shape.stages - 1, std::int64_t{6} * shape.micro_batches + shape.stages - 1};
}

// In chunks, on every worker alike; two of DualPipe's workers make one of these:
//     peak = 2 K + 1                                                       the table of the authors' repository
std::optional<std::int64_t> dualpipev_peak(const ScheduleShape& shape, StageId) {
  return 2 * std::int64_t{shape.stages} + 1;
}

}  // namespace

ScheduleRule dualpipev() {
  return {.name = "dualpipev",
          .title = "DualPipe's order on two chunks per stage, there and back (DualPipeV)",
          .source = "DeepSeekIII24",
          .memory = "2K + 1 chunks on every stage",
          .flush = true,
          .splits_backward = true,
          .compute = dualpipev_schedule,
          .also_refused = dualpipev_refusal,
          .peak_in_flight = dualpipev_peak,
          .bubble_of_times = dualpipev_bubble,
          .facts = {.backward_at_once = false, .takes_chunks = true, .pairs = true, .pytorch = "DualPipeV"},
          .chunk_order = ChunkOrder::V,
          .chunks = 2};
}

}  // namespace pipewright::sim
