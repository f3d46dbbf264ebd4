#include "planner/partitioners/balanced.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/cost/buckets.hpp"
#include "core/cost/step_pricer.hpp"
#include "core/folds.hpp"
#include "planner/partitioners/exact.hpp"
#include "planner/partitioners/least_step.hpp"
#include "planner/partitioners/min_max.hpp"
#include "planner/partitioners/rebuilt_layers.hpp"
#include "planner/partitioners/stage_needs.hpp"
#include "planner/price.hpp"
#include "sim/compiled_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"

namespace pipewright::planner {

std::vector<LayerRange> moved(std::vector<LayerRange> cut, int from, int to) {
  const int shift = from < to ? -1 : 1;
  for (int c = std::min(from, to); c < std::max(from, to); ++c) {
    cut[at(c)].end += shift;
    cut[at(c) + 1].begin += shift;
  }
  return cut;
}

namespace {

constexpr std::int64_t kMostSimulatedOps = std::int64_t{1}
                                           << 19;  // ops and messages simulated for one answer: some 20 ms
constexpr std::int64_t kQueueTimes = 4;            // as long as a fixed order takes the event queue, about
constexpr std::int64_t kMostSimulations = 256;
constexpr std::int64_t kMostBounded = 32;                      // by `exact`, and as many by neighbours after it
constexpr std::int64_t kMostPrefixes = std::int64_t{1} << 14;  // of `exact`
constexpr std::int64_t kMostRanges = std::int64_t{1} << 20;    // of which it fills its tables
constexpr std::int64_t kMostLooks = std::int64_t{1} << 22;     // at chunks of neighbours

using Cut = std::vector<LayerRange>;

bool replicated(const Plan& plan) {
  return std::ranges::any_of(plan.replicas, [](int r) { return r > 1; });
}

// Which chunks stay within the largest one of a cut.
class WithinLoads {
 public:
  WithinLoads(const std::vector<Time>& load, const Plan& plan, const Cut& cut) {
    for (const Time time : load)
      sums_.push_back(checked_sum(sums_.back(), time.value, "the sum of the layer times"));
    std::int64_t largest = 0;
    for (int c = 0; c < plan.chunks(); ++c) {
      const std::int64_t r = plan.seating().holders(c), sum = load_of(cut[at(c)]);
      largest = std::max(largest, sum / r + (sum % r > 0 ? 1 : 0));
    }
    for (int c = 0; c < plan.chunks(); ++c) {
      const std::int64_t r = plan.seating().holders(c);
      room_.push_back(largest > kLargest / r ? kLargest : largest * r);
    }
  }

  bool operator()(int chunk, LayerRange range) const { return load_of(range) <= room_[at(chunk)]; }

  // Whether the cut that takes as much as it may from the front is another one. Where rooms differ: always true.
  bool leaves_a_choice(const Cut& earliest) const {
    const auto layers = static_cast<LayerId>(sums_.size() - 1);
    const auto chunks = static_cast<int>(earliest.size());
    LayerId begin = 0;
    for (int c = 0; c + 1 < chunks; ++c) {
      if (room_[at(c)] != room_.front()) return true;
      LayerId end = begin + 1;
      while (end < layers - (chunks - 1 - c) && (*this)(c, {begin, end + 1}))
        ++end;
      if (end != earliest[at(c)].end) return true;
      begin = end;
    }
    return false;
  }

  // Ranges within the largest room, over all chunks.
  std::int64_t ranges() const {
    const std::int64_t room = *std::ranges::max_element(room_), chunks = std::ssize(room_);
    std::int64_t count = 0;
    std::size_t end = 0;
    for (std::size_t begin = 0; begin + 1 < sums_.size(); ++begin) {
      while (end + 1 < sums_.size() && sums_[end + 1] - sums_[begin] <= room)
        ++end;
      count += static_cast<std::int64_t>(end - begin);
    }
    return count > kLargest / chunks ? kLargest : count * chunks;
  }

 private:
  std::int64_t load_of(LayerRange range) const { return sums_[at(range.end)] - sums_[at(range.begin)]; }

  std::vector<std::int64_t> sums_{0};
  std::vector<std::int64_t> room_;  // by chunk: T* times its replicas
};

// Steps of cuts, as many as the limits allow: by fixed orders, or, where transfers of the first cut meet on a link, by
// the engine that shares it.
class Steps {
 public:
  Steps(const Plan& plan, const CostModel& cost) : plan_(plan), cost_(cost) {
    if (plan.last_micro_batch_size == plan.micro_batch_size) pricer_.emplace(plan, cost);
  }

  std::int64_t left() const { return left_; }
  void leave_at_most(std::int64_t count) { left_ = std::min(left_, count); }
  StepPricer* pricer() { return pricer_ ? &*pricer_ : nullptr; }

  Time of(const Cut& cut) {
    const StepCosts costs = costs_of(cut);
    if (std::exchange(first_, false)) return of_first(cut, rule_.generate(costs.shape), costs);
    --left_;
    return shared_ ? simulate(rule_.generate(costs.shape), costs, Engine::Auto).makespan : makespan_(costs);
  }

 private:
  Time of_first(const Cut& cut, const Schedule& schedule, const StepCosts& costs) {
    const std::int64_t size = run_size(schedule, costs) + layers();
    left_ = std::min(kMostSimulations, kMostSimulatedOps / size) - 1;
    if (left_ < kQueueTimes) return static_order_makespan(schedule, costs);
    const StepCosts on_links = whole_costs(cut);
    const Timeline timeline = simulate(schedule, on_links, Engine::Auto);
    shared_ = engine_of(timeline) == Engine::EventQueue;
    if (shared_) left_ /= kQueueTimes;
    return timeline.makespan;
  }

  // A forward and a backward of every micro-batch and chunk, and what `costs` looks at.
  std::int64_t least_size() const { return std::int64_t{2} * plan_.chunks() * plan_.micro_batches + layers(); }
  std::int64_t layers() const { return std::ssize(cost_.scenario().model.layers); }

  StepCosts costs_of(const Cut& cut) {
    return pricer_ && !shared_ ? pricer_->costs(cut, plan_.recompute, plan_.rebuilt) : whole_costs(cut);
  }

  StepCosts whole_costs(const Cut& cut) const {
    Plan whole = plan_;
    whole.layers = cut;
    return folded_costs(whole, cost_);
  }

  const Plan& plan_;
  const CostModel& cost_;
  const ScheduleRule& rule_ = *find_schedule(plan_.schedule);
  Makespans makespan_{rule_};
  std::optional<StepPricer> pricer_;  // for micro-batches of one size
  std::int64_t left_ = least_size() > kMostSimulatedOps / 2 ? 0 : 2;
  bool first_ = true, shared_ = false;
};

class BalancedSearch {
 public:
  // `memory`: what else a stage must fit; none: nothing.
  BalancedSearch(const Plan& plan, const CostModel& cost, const WithinLoads& within, Cut earliest,
                 StageFits memory = {})
      : plan_(plan), cost_(cost), within_(within), memory_(std::move(memory)), best_(std::move(earliest)) {}

  Cut shortest() {
    if (steps_.left() < 2) return best_;
    step_ = fit(best_) ? steps_.of(best_) : kNever;
    if (can_be_bounded()) {
      if (best_first()) return best_;
      steps_.leave_at_most(kMostBounded);
    }
    while (improve()) {
    }
    return best_;
  }

 private:
  bool consider(const Cut& cut, Time step) {
    if (step >= step_) return false;
    best_ = cut, step_ = step;
    return true;
  }

  bool fits(int chunk, LayerRange range) const { return within_(chunk, range) && (!memory_ || memory_(chunk, range)); }

  bool fit(const Cut& cut) const {
    for (int c = 0; c < std::ssize(cut); ++c)
      if (!fits(c, cut[at(c)])) return false;
    return true;
  }

  bool can_be_bounded() {
    return steps_.left() > 0 && least_step_refusal(plan_).empty() && every_cut_is_crossed(cost_.scenario()) &&
           within_.ranges() <= kMostRanges;
  }

  // True: nothing within is shorter than the best.
  bool best_first() {
    StepPricer& pricer = *steps_.pricer();
    const ExactAnswer answer = exact({.schedule = plan_.schedule,
                                      .stages = plan_.stages,
                                      .micro_batches = static_cast<int>(plan_.micro_batches),
                                      .forward = pricer.layers().forward,
                                      .backward = pricer.layers().backward,
                                      .hop = pricer.fastest_hops(),
                                      .fits = [&](StageId k, LayerRange range) { return fits(k, range); },
                                      .tail = [&](LayerRange range) { return pricer.tail(0, range); },
                                      .step = [&](const Cut& cut) { return steps_.of(cut); },
                                      .most_simulations = std::min(kMostBounded, (steps_.left() + 1) / 2),
                                      .most_prefixes = kMostPrefixes});
    if (answer.layers.empty()) return true;
    consider(answer.layers, answer.step);
    return answer.proven() || step_ <= answer.lower_bound;
  }

  // To the next neighbour that is shorter; pairs of chunks are gone through in a circle.
  bool improve() {
    const std::int64_t chunks = std::ssize(best_);
    for (std::int64_t tried = 0; tried < chunks * chunks && steps_.left() > 0 && looks_ > 0; ++tried) {
      next_ = (next_ + 1) % (chunks * chunks);
      const auto from = static_cast<int>(next_ / chunks), to = static_cast<int>(next_ % chunks);
      --looks_;
      if (!has_room(from, to)) continue;
      const Cut cut = moved(best_, from, to);
      looks_ -= chunks;
      if (fit(cut) && consider(cut, steps_.of(cut))) return true;
    }
    return false;
  }

  bool has_room(int from, int to) const {
    if (from == to || best_[at(from)].size() < 2) return false;
    LayerRange larger = best_[at(to)];
    from < to ? --larger.begin : ++larger.end;
    return fits(to, larger);
  }

  const Plan& plan_;
  const CostModel& cost_;
  const WithinLoads& within_;
  StageFits memory_;
  Steps steps_ = Steps(plan_, cost_);
  Cut best_;
  Time step_;
  std::int64_t next_ = 0, looks_ = kMostLooks;
};

// What no step says. A cut that does not fit its devices makes way for the shortest that does, buffers left out, or for
// the earliest cuts where they do; and where layers to be recomputed are chosen by memory (`sets`), or transfers meet on
// links, the earliest cuts stay if they are not slower.
Cut looked_over(const Plan& plan, const CostModel& cost, const WithinLoads& within, Cut earliest, Cut found) {
  const auto priced = [&](const Cut& cut) {
    Plan whole = plan;
    whole.layers = cut;
    choose_rebuilt(whole, cost);
    return price(whole, cost, Engine::Auto);
  };
  const bool sets = std::ranges::find(plan.recompute, Recompute::Knapsack) != plan.recompute.end();
  const Answer by_found = priced(found);
  const Report& there = by_found.report;
  const bool shared = engine_of(by_found.timeline) == Engine::EventQueue;
  if (there.fits && !sets && !shared) return found;
  if (!there.fits && plan.seating().held() == 1) {
    StageNeeds needs(plan, cost);
    const auto fits = [&](StageId k, LayerRange range) { return needs.need(k, range) <= needs.capacity(); };
    if (Cut inside = BalancedSearch(plan, cost, within, earliest, fits).shortest();
        inside != earliest && priced(inside).report.fits)
      return inside;
  }
  const Report here = priced(earliest).report;
  const bool back = here.fits != there.fits ? here.fits : (sets || shared) && here.step_time <= there.step_time;
  return back ? earliest : found;
}

}  // namespace

std::vector<Time> layer_loads(const Plan& plan, const CostModel& cost) {
  const LayerCosts layers = cost.layers(plan.micro_batch_size);
  return mapped<Time>(counted_to(layers.forward.size()),
                      [&](std::size_t i) { return checked_sum(layers.forward[i], layers.backward[i]); });
}

std::vector<LayerRange> least_largest(const Plan& plan, const CostModel& cost) {
  const std::vector<Time> load = layer_loads(plan, cost);
  return replicated(plan) ? min_max(load, plan.replicas) : min_max(load, plan.chunks());
}

std::vector<LayerRange> balanced_layers(const Plan& plan, const CostModel& cost) {
  Cut earliest = least_largest(plan, cost);
  const ScheduleRule& rule = *find_schedule(plan.schedule);
  if (!rule.flush || !rule.refusal(schedule_shape(plan, cost.scenario().model, cost.scenario().training)).empty())
    return earliest;
  const WithinLoads within(layer_loads(plan, cost), plan, earliest);
  if (!within.leaves_a_choice(earliest)) return earliest;
  Cut found = BalancedSearch(plan, cost, within, earliest).shortest();
  return found == earliest ? earliest : looked_over(plan, cost, within, std::move(earliest), std::move(found));
}

}  // namespace pipewright::planner
