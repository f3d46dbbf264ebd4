#include "planner/partitioners/fitting.hpp"

#include <cstdint>
#include <utility>

#include "core/folds.hpp"
#include "core/plan/op_index.hpp"
#include "planner/partitioners/min_max.hpp"
#include "planner/partitioners/rebuilt_layers.hpp"
#include "planner/partitioners/stage_needs.hpp"
#include "planner/price.hpp"
#include "sim/simulate.hpp"

namespace pipewright::planner {
namespace {

constexpr int kMostTries = 8;  // cuts that are simulated for their buffers

// Longest ranges from every start, by memory and by a bound on the time; those by memory are asked for once.
class Ranges {
 public:
  explicit Ranges(const CutProblem& problem)
      : problem_(problem), longest_(problem.replicas.size(), std::vector<LayerId>(problem.load.size() + 1, -1)) {
    for (const Time time : problem.load)
      sums_.push_back(checked_sum(sums_.back(), time.value, "the sum of the layer times"));
  }

  LayerId layers() const { return layers_; }
  StageId stages() const { return static_cast<StageId>(problem_.replicas.size()); }
  std::int64_t most_time() const { return sums_.back(); }

  // Largest end of a range [begin, end) that stage k can hold within `bound` per replica; `begin`: not even one layer.
  LayerId end(StageId k, LayerId begin, std::int64_t bound) {
    const std::int64_t r = problem_.replicas[at(k)];
    const std::int64_t room = bound > kLargest / r ? kLargest : bound * r;
    const auto over = std::upper_bound(sums_.begin() + begin, sums_.end(), sums_[at(begin)] + room);
    const LayerId timely = static_cast<int>(over - sums_.begin()) - 1;
    const LayerId known = longest_[at(k)][at(begin)];
    const LayerId end = known >= 0 ? std::min(known, timely) : by_memory(k, begin, timely);
    if (end == timely && end < layers_) next_bound_ = std::min(next_bound_, time(k, {begin, end + 1}));
    return end;
  }

  // The smallest bound with which one of the ranges asked for since `forget_bounds` would be longer.
  std::int64_t next_bound() const { return next_bound_; }
  void forget_bounds() { next_bound_ = kLargest; }

  // ceil(time / replicas)
  std::int64_t time(StageId k, LayerRange range) const {
    const std::int64_t r = problem_.replicas[at(k)];
    return (sums_[at(range.end)] - sums_[at(range.begin)] + r - 1) / r;
  }

 private:
  // By memory alone, as far as `most`.
  LayerId by_memory(StageId k, LayerId begin, LayerId most) {
    const LayerId good = longest_fit(begin, most, std::min<LayerId>(most, begin + guess_), [&](LayerId end) {
      return problem_.fits(k, {begin, end});
    });
    if (good < most || most == layers_) longest_[at(k)][at(begin)] = good;
    if (good > begin) guess_ = good - begin;
    return good;
  }

  const CutProblem& problem_;
  LayerId layers_ = static_cast<LayerId>(problem_.load.size());
  std::vector<std::int64_t> sums_{0};
  std::vector<std::vector<LayerId>> longest_;  // by memory, [stage][begin]; -1: not known
  LayerId guess_ = 1;
  std::int64_t next_bound_ = kLargest;
};

using FittingCut = std::optional<std::vector<LayerRange>>;

// As much as fits on every stage, but a layer for each stage behind. What it finds is a cut; that it finds none is
// proof only where no stage went empty and no layer had to be left for the stages behind (`proven`).
FittingCut greedy(Ranges& ranges, std::int64_t bound, bool& proven) {
  std::vector<LayerRange> cut;
  LayerId begin = 0;
  proven = true;
  for (StageId k = 0; k < ranges.stages(); ++k) {
    const LayerId most = ranges.layers() - (ranges.stages() - 1 - k);
    const LayerId end = ranges.end(k, begin, bound);
    proven &= end > begin && end <= most;
    if (end <= begin) return std::nullopt;
    cut.push_back({begin, std::min(end, most)});
    begin = cut.back().end;
  }
  if (begin < ranges.layers()) return std::nullopt;
  return cut;
}

// Every cut is kept: reach[k] holds the starts of stage k that some cut before it leads to. Of the ways back, the
// earliest start is taken, so that the answer does not depend on anything but the problem.
FittingCut exhaustive(Ranges& ranges, std::int64_t bound) {
  const StageId stages = ranges.stages();
  const LayerId layers = ranges.layers();
  std::vector<std::vector<char>> reach(at(stages) + 1, std::vector<char>(at(layers) + 1, 0));
  reach[0][0] = 1;
  std::vector<int> change(at(layers) + 2);
  for (StageId k = 0; k < stages; ++k) {
    std::ranges::fill(change, 0);
    for (LayerId begin = 0; begin < layers; ++begin) {
      if (reach[at(k)][at(begin)] == 0) continue;
      ++change[at(begin + 1)];
      --change[at(std::max(begin, ranges.end(k, begin, bound)) + 1)];
    }
    int open = 0;
    for (LayerId i = 0; i <= layers; ++i) {
      open += change[at(i)];
      reach[at(k) + 1][at(i)] = open > 0 ? 1 : 0;
    }
  }
  if (reach[at(stages)][at(layers)] == 0) return std::nullopt;
  std::vector<LayerRange> cut(at(stages));
  LayerId end = layers;
  for (StageId k = stages; k-- > 0;) {
    LayerId begin = 0;
    while (begin >= end || reach[at(k)][at(begin)] == 0 || ranges.end(k, begin, bound) < end)
      ++begin;
    cut[at(k)] = {begin, end};
    end = begin;
  }
  return cut;
}

FittingCut cut_within(const CutProblem& problem, Ranges& ranges, std::int64_t bound) {
  bool proven = false;
  if (FittingCut found = greedy(ranges, bound, proven)) return found;
  if (problem.later_needs_less && proven) return std::nullopt;
  return exhaustive(ranges, bound);
}

std::int64_t bottleneck(const Ranges& ranges, const std::vector<LayerRange>& cut) {
  return most_over<std::int64_t>(counted_to(cut.size()),
                                 [&](std::size_t k) { return ranges.time(static_cast<StageId>(k), cut[k]); });
}

}  // namespace

std::optional<std::vector<LayerRange>> fitting_cut(const CutProblem& problem) {
  PP_CHECK(!problem.replicas.empty() && problem.replicas.size() <= problem.load.size());
  Ranges ranges(problem);
  FittingCut best = cut_within(problem, ranges, ranges.most_time());
  if (!best) return best;
  std::int64_t low = 0, high = bottleneck(ranges, *best);
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    ranges.forget_bounds();
    if (FittingCut found = cut_within(problem, ranges, middle)) {
      high = bottleneck(ranges, *found);
      best = std::move(found);
    } else {
      low = std::max(middle + 1, std::min(high, ranges.next_bound()));  // below it nothing changes
    }
  }
  return best;
}

LeastCut least_cut(CutProblem problem, const StageNeed& need, Bytes fine, Bytes most) {
  LeastCut result;
  const auto stages = static_cast<StageId>(problem.replicas.size());
  const auto layers = static_cast<LayerId>(problem.load.size());
  std::int64_t low = 0, high = 0;
  for (StageId k = 0; k < stages && high < most.value; ++k)
    high = std::max(high, need(k, {0, layers}).value);
  high = std::min(high, most.value);
  while (result.layers.empty() || high - low >= fine.value) {
    const std::int64_t middle = result.layers.empty() ? high : low + (high - low) / 2;
    std::int64_t next = kLargest;  // the smallest amount with which one of the questions had another answer
    problem.fits = [&, middle](StageId k, LayerRange range) {
      const std::int64_t needed = need(k, range).value;
      if (needed > middle) next = std::min(next, needed);
      return needed <= middle;
    };
    Ranges ranges(problem);
    if (FittingCut found = cut_within(problem, ranges, ranges.most_time())) {
      high = 0;
      for (StageId k = 0; k < stages; ++k)
        high = std::max(high, need(k, (*found)[at(k)]).value);
      result = {std::move(*found), Bytes{high}};
    } else if (result.layers.empty()) {
      if (next > most.value) return {{}, Bytes{next}};
      low = high = next;  // a stage that begins later may need more than all layers on one
    } else {
      low = std::max(middle + 1, std::min(next, high));
    }
  }
  return result;
}

// ---- on a plan ------------------------------------------------------------------------------------------------------

namespace {

// What every stage needs, simulated, buffers included; and what of it are buffers.
struct SimulatedNeeds {
  std::vector<Bytes> needs, buffers;
};
SimulatedNeeds simulated(Plan plan, const CostModel& cost) {
  choose_rebuilt(plan, cost);
  const StepCosts costs = folded_costs(plan, cost);
  const Schedule schedule = make_schedule(plan, costs.shape);
  const Timeline timeline = simulate(schedule, costs);
  const MemoryModel memory = memory_model(plan, cost);
  SimulatedNeeds result{std::vector<Bytes>(at(plan.stages)), std::vector<Bytes>(at(plan.stages))};
  std::vector<Bytes> walked(at(plan.stages));
  const std::vector<MemoryPeak> all = peaks(memory, schedule, costs, timeline);
  for (std::size_t w = 0; w < all.size(); ++w) {
    const PositionId position = schedule.position_of(WorkerId{w});
    const std::size_t k = at(schedule.seating().stage_at(position));
    result.needs[k] = std::max(result.needs[k], need(memory, all[w].bytes, static_cast<StageId>(k)).to_fit);
    if (w < schedule.positions.size())
      walked[k] =
          std::max(walked[k], need(memory, peak(memory, schedule, position).bytes, static_cast<StageId>(k)).to_fit);
  }
  for (std::size_t k = 0; k < walked.size(); ++k)
    result.buffers[k] = result.needs[k] - walked[k];
  return result;
}

CutProblem problem_of(const Plan& plan, const CostModel& cost, const StageNeeds& needs) {
  const LayerCosts layers = cost.layers(plan.micro_batch_size);
  CutProblem problem{
      .load = {}, .replicas = plan.replicas, .fits = {}, .later_needs_less = needs.tensors_do_not_grow()};
  for (std::size_t i = 0; i < layers.forward.size(); ++i)
    problem.load.push_back(checked_sum(layers.forward[i], layers.backward[i]));
  return problem;
}

// Found to a 2^14th of a device.
LeastCut least_cut(const CutProblem& problem, StageNeeds& needs, const std::vector<Bytes>& buffers) {
  return least_cut(
      problem, [&](StageId k, LayerRange range) { return needs.need(k, range) + buffers[at(k)]; },
      Bytes{std::max<std::int64_t>(1, needs.capacity().value >> 14)});
}

}  // namespace

bool some_cut_fits(const Plan& plan, const CostModel& cost) {
  StageNeeds needs(plan, cost);
  CutProblem problem = problem_of(plan, cost, needs);
  problem.fits = [&](StageId k, LayerRange range) { return needs.need(k, range) <= needs.capacity(); };
  Ranges ranges(problem);
  return cut_within(problem, ranges, ranges.most_time()).has_value();
}

Bytes least_memory(const Plan& plan, const CostModel& cost) {
  StageNeeds needs(plan, cost);
  return least_cut(problem_of(plan, cost, needs), needs, simulated(plan, cost).buffers).memory;
}

FittingPlan fitting_layers(const Plan& plan, const CostModel& cost) {
  StageNeeds needs(plan, cost);
  CutProblem problem = problem_of(plan, cost, needs);
  std::vector<Bytes> buffers(at(plan.stages));
  problem.fits = [&](StageId k, LayerRange range) { return needs.need(k, range) + buffers[at(k)] <= needs.capacity(); };
  for (int tries = 0; tries < kMostTries; ++tries) {
    FittingCut cut = fitting_cut(problem);
    if (!cut) break;
    Plan whole = plan;
    whole.layers = *cut;
    const SimulatedNeeds run = simulated(whole, cost);
    bool all = true;
    for (StageId k = 0; k < plan.stages; ++k) {
      if (run.needs[at(k)] <= needs.capacity()) continue;
      all = false;
      buffers[at(k)] = std::max(buffers[at(k)], run.buffers[at(k)]);
    }
    if (all) return {std::move(*cut), true, {}};
  }
  LeastCut nearest = least_cut(problem, needs, buffers);
  return {std::move(nearest.layers), false, nearest.memory};
}

}  // namespace pipewright::planner
