#include "planner/order_problem.hpp"

#include "core/cost/cells.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "core/folds.hpp"
#include "planner/price.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {

namespace {

// Cells of a forward and a whole backward, as plan.pairs prices them.
void add_pairs(OrderProblem& problem, const Plan& plan, const StepCosts& costs) {
  const OrderPricer pricer(problem);
  const Seating seating = plan.seating();
  for (int f = 0; f < problem.chunks(); ++f)
    for (int row = 0; row < problem.virtual_stages; ++row) {
      const VirtualStageId b = seating.of_number_in_file(pricer.chunk_at(pricer.stage_of(f), row)).chunk;
      const auto op = [&](Kind kind, VirtualStageId chunk, std::uint32_t m) {
        return Op{.kind = kind, .virtual_stage = static_cast<std::uint16_t>(chunk), .micro_batch = m, .with_next = 1};
      };
      std::vector<Op> cell = {op(Kind::F, seating.of_number_in_file(f).chunk, 0)};
      if (costs.shape.recomputes(plan.stage_of(b))) cell.push_back(op(Kind::R, b, 0));
      cell.push_back(op(Kind::BW, b, 0));
      cell.back().with_next = 0;
      problem.pair.push_back(cell_time(costs, cell).value);
    }
}

// A pass of a chunk in units, by itself: what it waits for its own activations on their way to the host and back. Beside
// other passes it may take longer.
class PassOfUnits {
 public:
  PassOfUnits(const StepCosts& costs, VirtualStageId first, bool recomputes)
      : costs_(costs), recomputes_(recomputes), first_(first) {}

  // Unit by unit, each when what left before the latest is out.
  Time forward() const {
    Time now, gone, latest;  // when what left before the latest is out, and when the latest is
    for (int i = 0; i < units_; ++i) {
      now = std::max(now, gone) + time(Kind::F, i);
      if (moves(i)) gone = latest, latest = std::max(latest, now) + move(Kind::Offload, i);
    }
    return now;
  }

  // The recomputation of the last unit, which does not wait for the gradient.
  Time again() const { return recomputes_ ? time(Kind::R, units_ - 1) : Time{}; }

  // From the last unit on, with the other recomputations. What a unit reads is asked for when the op before it begins; that of
  // the last unit may be back before.
  Time input() const {
    Time now, begin, back;
    for (int i = units_ - 1; i >= 0; --i) {
      if (moves(i) && i + 1 < units_) back = std::max(back, begin) + move(Kind::Reload, i), now = std::max(now, back);
      if (recomputes_ && i + 1 < units_) now += time(Kind::R, i);
      begin = now;
      now += time(Kind::B, i);
    }
    return now;
  }

  Time weights() const {
    return sum_over<Time>(counted_to(units_), [&](int i) { return time(Kind::W, i); });
  }

 private:
  bool moves(int unit) const { return !costs_.shape.offloaded.empty() && costs_.shape.offloaded[at(first_ + unit)]; }
  Time time(Kind kind, int unit) const { return costs_.duration[at(first_ + unit) * kKinds + at(kind)]; }
  Time move(Kind kind, int unit) const {
    return costs_.collective({.kind = kind, .virtual_stage = static_cast<std::uint16_t>(first_ + unit)}, 0).time;
  }

  const StepCosts& costs_;
  int units_ = costs_.shape.units;
  bool recomputes_;
  VirtualStageId first_;
};

// Both ways the chunks of the plan twice, and half of its micro-batches each.
OrderProblem times_of_passes(const Plan& plan, const StepCosts& costs) {
  const bool two_ways = both_ways(costs.shape.chunk_order);
  OrderProblem problem{.stages = plan.stages,
                       .virtual_stages = two_ways ? 2 : plan.virtual_stages,
                       .micro_batches = static_cast<int>(plan.micro_batches) / (two_ways ? 2 : 1),
                       .chunk_order = two_ways ? ChunkOrder::V : costs.shape.chunk_order,
                       .two_ways = two_ways,
                       .measure = OrderMeasure::Step};
  const Seating seating = plan.seating();
  bool has_again = false;
  for (int i = 0; i < problem.chunks(); ++i) {
    const VirtualStageId first = seating.unit(seating.of_number_in_file(i).chunk, 0);
    const PassOfUnits pass(costs, first, costs.shape.recomputes(plan.stage_of(first)));
    problem.forward.push_back(pass.forward().value);
    problem.again.push_back(pass.again().value), has_again |= pass.again() > Time{};
    problem.input.push_back(pass.input().value);
    problem.weights.push_back(pass.weights().value);
  }
  problem.again_count = has_again ? problem.micro_batches - (costs.shape.recompute_except_last ? 1 : 0) : 0;
  if (costs.together && plan.units == 1 && find_schedule(plan.schedule)->facts.pairs &&
      problem.virtual_stages <= kMostRowsOfPairs)
    add_pairs(problem, plan, costs);
  problem.down.assign(at(problem.chunks() - 1), 0), problem.up = problem.down;
  for (std::size_t edge = 0; edge < costs.edges.size(); ++edge) {
    const auto [from, to] = costs.edges[edge];
    if (to != from + 1 || seating.unit_of(to) != 0) continue;
    for (int way = 0; way < (two_ways ? 2 : 1); ++way) {
      const auto hop = [&, from = from](Direction direction) {
        const auto m = static_cast<MicroBatchId>(two_ways ? seating.micro_batch(from, way, 0) : 0);
        const Message& message = costs.message(edge, direction, 0, m);
        return message.channel < 0 ? 0 : (message.occupancy + message.latency).value;
      };
      const std::size_t chunk = at(seating.number_in_file({seating.whole_of(from), way}));
      problem.down[chunk] = hop(Direction::Forward), problem.up[chunk] = hop(Direction::Backward);
    }
  }
  return problem;
}

}  // namespace

OrderProblem order_times(const Plan& plan, const CostModel& cost) {
  return times_of_passes(plan, folded_costs(plan, cost));
}

OrderProblem order_problem(const Plan& plan, const CostModel& cost) {
  const StepCosts costs = folded_costs(plan, cost);
  OrderProblem problem = times_of_passes(plan, costs);
  const MemoryModel memory = memory_model(plan, cost);
  const Seating seating = plan.seating();
  for (int i = 0; i < problem.chunks(); ++i) {
    std::int64_t held = 0, back = 0, working = 0;
    for (int unit = 0; unit < plan.units; ++unit) {
      const VirtualStageId v = seating.unit(seating.of_number_in_file(i).chunk, unit);
      const ChunkMemory& chunk = memory.chunks[v];
      const bool again = costs.shape.recomputes(plan.stage_of(v));
      const bool away = !plan.offloaded.empty() && plan.offloaded[at(v)];
      (away ? back : held) += (again ? chunk.boundary : chunk.stash)[0].value;
      working += again ? chunk.working[0].value : 0;
    }
    problem.held.push_back(held);
    problem.kept_after_input.push_back(held + back + working);
  }
  problem.cap.assign(at(plan.stages), 0);
  return problem;
}

}  // namespace pipewright::planner
