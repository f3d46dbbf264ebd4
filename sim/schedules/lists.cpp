#include "sim/schedules/lists.hpp"

#include <cstdint>
#include <limits>
#include <numeric>

#include "core/check.hpp"
#include "core/units.hpp"

namespace pipewright::sim {
namespace {

// 12 bytes each: 1.6 GB of lists. 32 times the largest run that the benchmarks price (K = 64, M = 4096), and the point
// where a typing error in the number of micro-batches would take the machine's memory instead of a message.
constexpr double kMostOps = double(1 << 27);

Op op(Kind kind, VirtualStageId v, int micro_batch) {
  return {kind, static_cast<std::uint16_t>(v), static_cast<std::uint32_t>(micro_batch), 0};
}

}  // namespace

std::vector<Seat> seats(const ScheduleShape& shape) {
  std::vector<Seat> all;
  for (StageId k = 0; k < shape.stages; ++k) {
    for (int j = 0; j < shape.replicas_of(k); ++j)
      all.push_back(
          {shape.seating(), k, j, static_cast<int>(shape.seating().turns(shape.seating().chunk_of(k, 0), j))});
  }
  return all;
}

Schedule empty_schedule(std::string_view name, const ScheduleShape& shape, bool flush) {
  PP_CHECK(shape_refusal(shape, shape.chunk_order).empty());
  Schedule schedule{std::string(name), shape, {}, flush};
  for (const Seat& seat : seats(shape)) {
    // F and BW of every micro-batch, R where the stage recomputes, an update behind each where there is no flush.
    const int ops = 2 + (shape.recomputes(seat.stage) ? 1 : 0) + (flush ? 0 : 1);
    Lane& lane = schedule.positions.emplace_back();
    lane.compute.reserve((at(seat.count) * at(ops) + 2) * at(seat.seating.held()));
  }
  return schedule;
}

void append_forward(Lane& lane, VirtualStageId v, MicroBatchId m) {
  lane.compute.push_back(op(Kind::F, v, m));
}

void append_backward(Lane& lane, VirtualStageId v, MicroBatchId m) {
  lane.compute.push_back(op(Kind::BW, v, m));
}

void append_input_backward(Lane& lane, VirtualStageId v, MicroBatchId m) {
  lane.compute.push_back(op(Kind::B, v, m));
}

void append_weights(Lane& lane, VirtualStageId v, MicroBatchId m) {
  lane.compute.push_back(op(Kind::W, v, m));
}

void append_split_backwards(const ScheduleShape& shape, Lane& lane, StageId k, int warm_up, int late) {
  MicroBatchId next = 0;  // whose W is the next one
  one_forward_one_backward(
      shape.micro_batches, warm_up, [&](MicroBatchId m) { append_forward(lane, only_chunk(k), m); },
      [&](MicroBatchId m) {
        append_input_backward(lane, only_chunk(k), m);
        if (m >= late) append_weights(lane, only_chunk(k), next++);
      });
  while (next < shape.micro_batches)
    append_weights(lane, only_chunk(k), next++);
}

Schedule in_turns(std::string_view name, const ScheduleShape& shape, bool flush) {
  Schedule schedule = empty_schedule(name, shape, flush);
  PositionId position;
  for (const Seat& seat : seats(shape)) {
    Lane& lane = schedule.positions[position++];
    one_forward_one_backward(
        seat.count, in_flight(shape, seat.stage) - 1,
        [&](int i) { append_forward(lane, seat.chunk(), seat.micro_batch(i)); },
        [&](int i) { append_backward(lane, seat.chunk(), seat.micro_batch(i)); });
  }
  return schedule;
}

Formula idle_share(std::string_view text, const ScheduleShape& shape, const PassTimes& times, std::int64_t idle) {
  const std::int64_t f = times.forward, b = times.input_gradient, w = times.weight_gradient;
  const std::int64_t shared = std::max<std::int64_t>(1, std::gcd(std::gcd(f, b), w));
  const std::int64_t work = checked_product(shape.micro_batches, (f + b + w) / shared, "the work of a stage");
  const std::int64_t all_idle = checked_product(shape.stages - 1, idle / shared, "the idle time of a stage");
  const std::int64_t step = checked_sum(work, all_idle, "the step");
  const std::int64_t both = std::max<std::int64_t>(1, std::gcd(all_idle, step));
  return {std::string(text), all_idle / both, std::max<std::int64_t>(1, step / both)};
}

int in_flight(const ScheduleShape& shape, StageId stage) {
  int workers = 0;
  for (StageId j = stage; j < shape.stages; ++j)
    workers += shape.replicas_of(j);
  const int r = shape.replicas_of(stage);
  return (workers + r - 1) / r;
}

std::string shape_refusal(const ScheduleShape& shape, ChunkOrder order) {
  if (shape.chunk_order != order) return "its chunks lie in another order than those of the plan";
  if (shape.stages < 1 || shape.virtual_stages < 1 || shape.data_parallel < 1 || shape.units < 1)
    return "stages, virtual stages and copies are counted from 1";
  if (shape.micro_batches < 1)
    return "M = " + std::to_string(shape.micro_batches) + " micro-batches: at least 1 is needed";
  const std::int64_t chunks = std::int64_t{shape.stages} * shape.virtual_stages * shape.units;
  if (chunks > std::numeric_limits<std::uint16_t>::max())
    return std::to_string(chunks) + " virtual stages: at most 65535 have a name in an op";
  const auto fits = [](const auto& list, std::int64_t size) { return list.empty() || std::ssize(list) == size; };
  if (!fits(shape.replicas, shape.stages) || !fits(shape.recompute, shape.stages) || !fits(shape.buckets, chunks))
    return "replicas and recompute have one entry per stage, buckets one per virtual stage";
  const auto below_one = [](int count) { return count < 1; };
  if (std::ranges::any_of(shape.replicas, below_one) || std::ranges::any_of(shape.buckets, below_one))
    return "replicas and buckets are counted from 1";
  if (both_ways(shape.chunk_order) && (shape.stages % 2 != 0 || shape.virtual_stages != 1))
    return "both ways each rank has one stage for each direction, so their number is even; use " +
           (shape.stages > 1 ? std::to_string(shape.stages - 1) + " or " : "") + std::to_string(shape.stages + 1) +
           " stages of one chunk";
  double ops = 0, workers = 0;  // as doubles: a product of three large numbers of a scenario passes 2^63
  for (StageId k = 0; k < shape.stages; ++k)
    workers += shape.replicas_of(k);
  for (int v = 0; v < static_cast<int>(chunks); ++v)
    ops += double(shape.micro_batches) *
           (3 + (shape.recomputes(shape.stage_of(v)) ? 1 : 0) + (shape.seating().reduced(v) ? shape.buckets_of(v) : 0) +
            (shape.resharding ? 2 : 0) + (shape.updated != UpdatedParts::None ? 1 : 0));
  if (ops + workers > kMostOps)
    return "M = " + std::to_string(shape.micro_batches) + " micro-batches over " + std::to_string(chunks) +
           " virtual stages: the lists would hold more than 134 million ops; use fewer micro-batches";
  return "";
}

bool has_replicas(const ScheduleShape& shape) {
  return std::ranges::any_of(shape.replicas, [](int r) { return r > 1; });
}

bool has_recompute(const ScheduleShape& shape) {
  return std::ranges::find(shape.recompute, true) != shape.recompute.end();
}

}  // namespace pipewright::sim
