#include "sim/steady_state.hpp"

#include <algorithm>
#include <numeric>

#include "core/plan/op_index.hpp"

namespace pipewright::sim {
namespace {

// Micro-batches after which every stage is back at its first replica and at the begin of a round of updates: lcm of the
// replica counts times the micro-batches of a round; `limit` if larger.
std::int64_t round_of_all(const ScheduleShape& shape, std::int64_t limit) {
  std::int64_t common = 1;
  for (StageId stage = 0; stage < shape.stages; ++stage) {
    common = std::lcm(common, static_cast<std::int64_t>(shape.replicas_of(stage)));
    if (common >= limit) return limit;
  }
  return std::min(limit, common * std::max(1, shape.update_every));
}

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

// Ends of the ops of one kind of one worker, in the order of the micro-batches that come by it. There is a steady state
// only where micro-batches are dealt in turns: no schedule without a flush goes both ways.
struct Ends {
  VirtualStageId chunk = 0;
  int holder = 0;
  std::vector<Time> end = {};  // by turn
};

struct Run {
  Seating seating;
  std::vector<Ends> ends;    // forward and backward ops of every worker
  std::int64_t deepest = 1;  // most micro-batches between F and backward at once, counted over all replicas

  std::int64_t turns(const Ends& of, std::int64_t until) const { return seating.turns(of.chunk, of.holder, until); }
};

Run run_of(const Schedule& schedule, const Timeline& timeline) {
  const Seating seating = schedule.seating();
  Run run{.seating = seating, .ends = {}};
  for (WorkerId worker = 0; worker < std::ssize(timeline.workers); ++worker) {
    const PositionId position = schedule.position_of(worker);
    const StageId stage = seating.stage_at(position);
    const int replicas = seating.replicas_of(stage);
    const int holder = position - seating.first_position(stage);
    std::vector<Ends> of_chunk;  // forwards and backwards
    for (int i = 0; i < 2 * seating.held(); ++i)
      of_chunk.push_back({.chunk = seating.chunk_of(stage, i / 2), .holder = holder});
    std::int64_t in_flight = 0;
    const auto& ops = schedule.positions[position].compute;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const bool forward = ops[i].kind == Kind::F;
      if (!forward && !rule(ops[i].kind).gradients) continue;
      in_flight += forward ? 1 : -1;
      run.deepest = std::max(run.deepest, in_flight * replicas);
      auto& ends = of_chunk[2 * at(seating.local(ops[i].virtual_stage, stage)) + (forward ? 0 : 1)].end;
      const auto j = at(seating.turn_of(ops[i].virtual_stage, ops[i].micro_batch));
      if (ends.size() <= j) ends.resize(j + 1);
      ends[j] = timeline.workers[worker].compute[i].end;
    }
    for (Ends& ends : of_chunk)
      run.ends.push_back(std::move(ends));
  }
  return run;
}

// Growth over `period` micro-batches when it is the same for every op of the micro-batches [from, until); else none.
std::optional<Time> common_growth(const Run& run, std::int64_t from, std::int64_t until, std::int64_t period) {
  std::optional<Time> growth;
  for (const Ends& ends : run.ends) {
    const std::int64_t shift = run.turns(ends, period), end = run.turns(ends, until);
    for (std::int64_t j = run.turns(ends, from); j < end; ++j) {
      const Time step = ends.end[at(j)] - ends.end[at(j - shift)];
      if (growth && *growth != step) return std::nullopt;
      growth = step;
    }
  }
  return growth;
}

// Last end of all ops of the micro-batches before `until`.
Time last_end(const Run& run, std::int64_t until) {
  Time last;
  for (const Ends& ends : run.ends)
    for (std::int64_t j = 0, turns = run.turns(ends, until); j < turns; ++j)
      last = std::max(last, ends.end[at(j)]);
  return last;
}

// Compute time of all workers for the micro-batches [from, until) and the updates of their rounds.
void add_busy(SteadyState& steady, const Schedule& schedule, const StepCosts& costs, const Timeline& timeline,
              std::int64_t from, std::int64_t until) {
  const std::vector<int> alike =
      costs.fold ? costs.fold->counts() : std::vector<int>(at(schedule.shape.data_parallel), 1);
  for (WorkerId worker = 0; worker < std::ssize(timeline.workers); ++worker) {
    const int times = alike[worker / schedule.positions.size()];
    const Seating seating = schedule.seating();
    const auto& ops = schedule.lane_of(worker).compute;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const bool update = ops[i].kind == Kind::Update;
      const std::int64_t number = ops[i].micro_batch;
      const std::int64_t m = update ? seating.micro_batch(ops[i].virtual_stage, 0, number) : number;
      if (m < from || m >= until) continue;
      const Span& span = timeline.workers[worker].compute[i];
      const Time duration{(span.end - span.start).value * times};
      steady.busy += duration;
      if (update) steady.update += duration;
    }
  }
}

}  // namespace

SteadyState steady_state(const Schedule& schedule, const StepCosts& costs, const Timeline& timeline) {
  const std::int64_t count = schedule.shape.micro_batches;
  const std::int64_t round = round_of_all(schedule.shape, count);
  const Run run = run_of(schedule, timeline);
  SteadyState steady;
  steady.simulated = count;
  steady.engine = timeline.engine;

  // The last `deepest` micro-batches see the drain: no forward follows them. Everything before runs as for ever.
  const std::int64_t until = (count - run.deepest) / round * round;
  for (std::int64_t period = round; until - 2 * period >= run.deepest; period += round) {
    const std::int64_t window = rounded_up(std::max(period, run.deepest), round);
    if (until - window - period < 0) break;
    if (const auto growth = common_growth(run, until - window, until, period)) {
      steady.micro_batches = period;
      steady.growth = *growth;
      add_busy(steady, schedule, costs, timeline, until - period, until);
      return steady;
    }
  }

  // No period: the mean over the second half, or over the whole of a run that is too short to have a steady part.
  steady.exact = false;
  const std::int64_t end = count - run.deepest, half = end / 2;
  const bool too_short = half < 1;
  steady.micro_batches = too_short ? count : end - half;
  steady.growth = too_short ? timeline.makespan : last_end(run, end) - last_end(run, half);
  add_busy(steady, schedule, costs, timeline, too_short ? 0 : half, too_short ? count : end);
  return steady;
}

int micro_batches_for_steady_state(const ScheduleShape& shape) {
  // Fill, a transient that grows with the depth, window and period of a few rounds, drain. Of random straight pipelines
  // with hops, 20 per setting, all of up to 16 stages had settled by then; of 32 and 64 nearly equal stages (within
  // 0.1 %) a half, and the average over the second half was within 3e-4 of the period that a longer run found.
  constexpr std::int64_t kMost = 4096, kTransient = 256;
  std::int64_t workers = 0;
  for (StageId stage = 0; stage < shape.stages; ++stage)
    workers += shape.replicas_of(stage);
  const std::int64_t depth = rounded_up(workers, shape.replicas_of(0));
  const std::int64_t round = round_of_all(shape, kMost);
  const std::int64_t wanted = rounded_up(kTransient + 8 * depth + 4 * std::max(depth, round), round);
  return static_cast<int>(std::min(wanted, std::max(kMost / round, std::int64_t{1}) * round));
}

}  // namespace pipewright::sim
