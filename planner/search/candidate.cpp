#include "planner/search/candidate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include "core/cost/memory_model.hpp"
#include "core/cost/step_pricer.hpp"
#include "core/model/graph.hpp"
#include "planner/find_plan.hpp"
#include "planner/partitioners/exact.hpp"
#include "planner/partitioners/fitting.hpp"
#include "planner/partitioners/min_max.hpp"
#include "planner/partitioners/rank_balance.hpp"
#include "planner/partitioners/rebuilt_layers.hpp"
#include "planner/partitioners/stage_needs.hpp"
#include "planner/search/run_bound.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"

namespace pipewright {
namespace {

std::size_t at(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

bool cuts_can_be_bounded(const Layout& layout) {
  return layout.virtual_stages == 1 &&
         (layout.schedule == "1f1b" || layout.schedule == "gpipe" || layout.schedule == "eager_1f1b");
}

// What recomputation adds to a layer's backward; of some layers only: not known here, at least nothing.
Time added(const LayerCosts& layers, std::size_t layer, Recompute mode) {
  if (mode == Recompute::Full) return layers.forward[layer];
  return mode == Recompute::Selective ? layers.rebuild[layer] : Time{};
}

std::vector<Time> loads(const LayerCosts& layers, Recompute mode) {
  std::vector<Time> load;
  for (std::size_t i = 0; i < layers.forward.size(); ++i)
    load.push_back(checked_sum(checked_sum(layers.forward[i], layers.backward[i]), added(layers, i, mode)));
  return load;
}

// Whether something passes from each stage to the next one under any cut: else stages may run side by side, as branches
// do whose tensors go to their users directly.
bool every_cut_is_crossed(const Scenario& scenario) {
  const std::vector<Layer>& layers = scenario.model.layers;
  bool each_reads_the_last = true;
  for (std::size_t i = 1; i < layers.size(); ++i)
    each_reads_the_last &= std::find(layers[i].inputs.begin(), layers[i].inputs.end(), static_cast<LayerId>(i) - 1) !=
                           layers[i].inputs.end();
  if (each_reads_the_last || scenario.plan.skips == Skips::Direct) return each_reads_the_last;
  const std::vector<Bytes> crossing = bytes_over_cuts(scenario.model, std::vector<Bytes>(layers.size(), Bytes{1}));
  return std::all_of(crossing.begin() + 1, crossing.end() - 1, [](Bytes count) { return count > Bytes{}; });
}

Time below(double nanoseconds) {
  return {static_cast<std::int64_t>(std::max(0.0, std::floor(nanoseconds * (1 - 1e-12)) - 1))};
}

}  // namespace

struct Evaluator::World {
  explicit World(Scenario of) : scenario(std::move(of)), cost(scenario) {
    for (const Layer& layer : scenario.model.layers)
      parameters += layer.held();
    // At the batch that the figures of layers are stated for, where nothing is rounded.
    run = equal_run(scenario.model, cost.layers(scenario.model.batch));
    straight = every_cut_is_crossed(scenario);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const LayerCosts& layers(std::int64_t samples) {
    const auto found = by_samples.find(samples);
    return found != by_samples.end() ? found->second : by_samples.emplace(samples, cost.layers(samples)).first->second;
  }

  // W and w of Evaluator::bound, nanoseconds.
  struct Work {
    double all = 0, largest = 0;
  };
  const Work& work(std::int64_t samples, Recompute mode) {
    const auto [known, absent] = work_by_samples.try_emplace({samples, mode});
    if (!absent) return known->second;
    const LayerCosts& of = layers(samples);
    for (std::size_t i = 0; i < of.forward.size(); ++i) {
      const double load = static_cast<double>(of.forward[i].value) + static_cast<double>(of.backward[i].value) +
                          static_cast<double>(added(of, i, mode).value);
      known->second.all += load, known->second.largest = std::max(known->second.largest, load);
    }
    return known->second;
  }

  Scenario scenario;  // its plan request changes from layout to layout
  CostModel cost;
  std::map<std::int64_t, LayerCosts> by_samples;
  std::map<std::pair<std::int64_t, Recompute>, Work> work_by_samples;
  std::int64_t parameters = 0;
  std::optional<EqualRun> run;
  bool straight = true;  // every stage waits for the one before it, however the layers are cut
};

// What evaluating one layout needs.
class Evaluator::Workbench {
 public:
  Workbench(World& world, Plan shell, std::vector<Recompute> modes, const std::vector<Bytes>& set_aside)
      : world_(world),
        shell_(std::move(shell)),
        modes_(std::move(modes)),
        set_aside_(set_aside),
        rule_(find_schedule(shell_.schedule)),
        pricer_(shell_, world.cost) {
    if (modes_.empty()) modes_.push_back(shell_.recompute.front()), fixed_ = true;
    // Listed once for all stages: of another cut, other stages have them.
    if (fixed_ && world.scenario.plan.recompute.value == std::vector{Recompute::Layers})
      shell_.recompute.assign(at(shell_.stages), Recompute::Layers);
    knapsack_ = static_cast<std::size_t>(std::find(modes_.begin(), modes_.end(), Recompute::Knapsack) - modes_.begin());
    needs_.resize(modes_.size());
    longest_.resize(modes_.size());
    added_before_.resize(modes_.size());
  }

  const Plan& shell() const { return shell_; }
  StepPricer& pricer() { return pricer_; }
  Recompute lightest() const { return modes_.front(); }
  Bytes capacity() const { return world_.scenario.cluster.device.memory; }
  std::int64_t simulations() const { return simulations_; }

  struct Fit {
    std::vector<Recompute> recompute;  // empty: does not fit
    std::vector<LayerId> rebuilt;
    std::vector<Time> extra;  // by stage, what that adds to each of its micro-batches
    Bytes need;               // of the fullest stage; where it does not fit, with the last of the recomputations
    StageId stage = 0;
  };
  // Of each stage the recomputation that adds least and fits.
  Fit lightest_fit(const std::vector<LayerRange>& cut) {
    return shell_.virtual_stages == 1 ? fit_of_stages(cut) : fit_of_chunks(cut);
  }

  // The step of the cut with the lightest recomputation. Layers are rebuilt inside the backward, full recomputation may
  // run before the gradient arrives: where a stage waits for it anyway, that is the better one, so it is tried on every
  // stage that recomputes and has room for more work: all combinations of a few such stages, else one after the other,
  // then all.
  Time step(const std::vector<LayerRange>& cut, Fit& fit) {
    Time best = simulated(cut, fit);
    std::vector<StageId> more = may_run_early(cut, fit, best);
    constexpr std::size_t kFew = 4;
    const bool few = more.size() <= kFew;
    const std::size_t all = more.size() + 1;
    const std::size_t tries = few ? std::size_t{1} << more.size() : all + 1;
    const Fit lightest = fit;
    for (std::size_t number = 1; number < tries; ++number) {
      Fit other = few ? lightest : fit;
      for (std::size_t i = 0; i < more.size(); ++i)
        if (few ? (number >> i & 1) != 0 : number == i + 1 || number == all) make_full(other, cut, more[i]);
      const Time time = simulated(cut, other);
      if (time < best) best = time, fit = std::move(other);
    }
    return best;
  }

  // No step of the cut is shorter: what its busiest stage computes, with `extra` (by stage; empty: none) on top.
  Time busiest(const std::vector<LayerRange>& cut, const std::vector<Time>& extra = {}) {
    if (work_before_.empty()) {
      work_before_.push_back(0);
      for (const Time load : loads(pricer_.layers(), Recompute::None))
        work_before_.push_back(checked_sum(work_before_.back(), load.value, "a stage's work"));
    }
    std::int64_t most = 0;
    for (StageId k = 0; k < shell_.stages; ++k) {
      std::int64_t work = extra.empty() || shell_.recompute_except_last ? 0 : extra[at(k)].value;
      for (std::size_t chunk = at(k); chunk < cut.size(); chunk += at(shell_.stages))
        work += work_before_[at(cut[chunk].end)] - work_before_[at(cut[chunk].begin)];
      most = std::max(most, work);
    }
    return Time{checked_product(most, shell_.micro_batches, "a stage's work")};
  }

  // The least that recomputation adds to these layers on stage k, where anything fits.
  Time extra(StageId k, LayerRange range) {
    if (knapsack_ == modes_.size()) {
      std::size_t mode = 0;
      while (mode + 1 < modes_.size() && longest(mode, k, range.begin) < range.end)
        ++mode;
      return added_by(mode, range);
    }
    if (modes_.front() == Recompute::None && longest(0, k, range.begin) >= range.end) return {};
    return lightest_of_stage(k, range).extra;
  }

  // Last end of the ranges of stage k that begin so and fit with recomputation number `mode`; `begin`: none.
  LayerId longest(std::size_t mode, StageId k, LayerId begin) {
    const auto layers = static_cast<LayerId>(world_.scenario.model.layers.size());
    auto& known = longest_[mode];
    if (known.empty()) known.assign(at(shell_.stages), std::vector<LayerId>(at(layers), -1));
    LayerId& end = known[at(k)][at(begin)];
    if (end >= 0) return end;
    const LayerId guess = begin > 0 ? known[at(k)][at(begin) - 1] : begin;
    return end = longest_fit(begin, layers, guess, [&](LayerId to) { return need(mode, k, {begin, to}) <= room(k); });
  }

  // A cut into chunks in which every stage fits with the lightest recomputation, from one in which some do not by a
  // little: the first chunks of a stage have the most micro-batches in flight, so single layers go from an early chunk
  // of the fullest stage to a later chunk, of this stage or another, as long as that takes something off the fullest
  // stage. Nothing: not found.
  std::optional<std::vector<LayerRange>> fitting_chunks(std::vector<LayerRange> cut) {
    constexpr int kMostMoves = 32;
    constexpr double kByALittle = 1.15;
    for (int moves = 0; moves < kMostMoves; ++moves) {
      const auto [most, stage] = fullest_of_chunks(cut);
      if (most <= room(stage)) return cut;
      if (static_cast<double>(most.value) > kByALittle * static_cast<double>(room(stage).value)) return std::nullopt;
      Bytes best = most;
      std::vector<LayerRange> next;
      const int chunks = static_cast<int>(cut.size());
      for (int from = stage; from < chunks && next.empty(); from += shell_.stages)
        for (int to = from + 1; to < chunks && cut[at(from)].size() > 1; ++to) {
          std::vector<LayerRange> moved = cut;
          for (int c = from; c < to; ++c)
            --moved[at(c)].end, --moved[at(c) + 1].begin;
          if (const Bytes need = fullest_of_chunks(moved, stage, best).first; need < best)
            best = need, next = std::move(moved);
        }
      if (next.empty()) return std::nullopt;
      cut = std::move(next);
    }
    return std::nullopt;
  }

  // With any recomputation: where a layer keeps less than what enters it, full recomputation needs the most.
  bool fits_somehow(StageId k, LayerRange range) {
    for (std::size_t mode = modes_.size(); mode-- > 0;)
      if (need(mode, k, range) <= room(k)) return true;
    return false;
  }
  bool reaches_somehow(StageId k, LayerRange range) {
    for (std::size_t mode = modes_.size(); mode-- > 0;)
      if (longest(mode, k, range.begin) >= range.end) return true;
    return false;
  }

  // The least bottleneck among the cuts whose stages fit with the heaviest recomputation, counted with it.
  std::optional<std::vector<LayerRange>> fitting() {
    const std::size_t heaviest = modes_.size() - 1;
    CutProblem problem{.load = loads(pricer_.layers(), modes_[heaviest]),
                       .replicas = shell_.replicas,
                       .fits = [&](StageId k, LayerRange range) { return fits_somehow(k, range); },
                       .later_needs_less = needs(heaviest).tensors_do_not_grow()};
    return fitting_cut(problem);
  }

 private:
  StageNeeds& needs(std::size_t mode) {
    if (!needs_[mode]) {
      Plan plan = shell_;
      if (!fixed_) plan.recompute.assign(at(shell_.stages), modes_[mode]);
      needs_[mode] = std::make_unique<StageNeeds>(plan, world_.cost, pricer_.layers());
    }
    return *needs_[mode];
  }
  Bytes need(std::size_t mode, StageId k, LayerRange range) { return needs(mode).need(k, range); }
  Bytes room(StageId k) const { return set_aside_.empty() ? capacity() : capacity() - set_aside_[at(k)]; }

  void count(Fit& fit, StageId k, Bytes need) const {
    if (need > fit.need) fit.need = need, fit.stage = k;
  }

  // A recomputation of one stage.
  struct Choice {
    Recompute recompute{};
    std::vector<LayerId> rebuilt;
    Time extra;
    Bytes need;
    bool fits = false;
  };
  void offer(Choice& best, Choice other) const {
    if (best.fits && (!other.fits || other.extra >= best.extra)) return;
    best = std::move(other);
  }
  static Choice of(const RebuiltStage& set) {
    return {set.layers.empty() ? Recompute::None : Recompute::Layers, set.layers, set.extra, set.need, set.fits};
  }

  // What a recomputation of all layers of a range adds.
  Time added_by(std::size_t mode, LayerRange range) {
    std::vector<std::int64_t>& sums = added_before_[mode];
    if (sums.empty()) {
      const LayerCosts& layers = pricer_.layers();
      const std::vector<Layer>& model = world_.scenario.model.layers;
      sums.push_back(0);
      for (std::size_t i = 0; i < layers.forward.size(); ++i) {
        const bool block = modes_[mode] == Recompute::Blocks && model[i].block;
        const Time more = block ? layers.forward[i] : added(layers, i, modes_[mode]);
        sums.push_back(checked_sum(sums.back(), more.value, "a recomputation"));
      }
    }
    return Time{sums[at(range.end)] - sums[at(range.begin)]};
  }

  Choice lightest_of_stage(StageId k, LayerRange range) {
    Choice best;
    for (std::size_t mode = 0; mode < modes_.size(); ++mode) {
      if (mode == knapsack_) {
        const auto [known, absent] = sets_.try_emplace({k, range.begin, range.end});
        if (absent) known->second = of(needs(mode).rebuilt(k, range, room(k)));
        offer(best, known->second);
      } else {
        const Time extra = added_by(mode, range);
        if (best.fits && extra >= best.extra) continue;
        const Bytes needed = need(mode, k, range);
        offer(best, {modes_[mode], {}, extra, needed, needed <= room(k)});
      }
      if (best.fits && best.extra == Time{}) break;
    }
    return best;
  }

  // All stages, where each fits.
  Fit together(const std::vector<Choice>& choices) const {
    Fit fit;
    bool all = true;
    for (std::size_t k = 0; k < choices.size(); ++k) {
      all &= choices[k].fits;
      count(fit, static_cast<StageId>(k), choices[k].need);
      fit.recompute.push_back(choices[k].recompute);
      fit.extra.push_back(choices[k].extra);
      fit.rebuilt.insert(fit.rebuilt.end(), choices[k].rebuilt.begin(), choices[k].rebuilt.end());
    }
    std::sort(fit.rebuilt.begin(), fit.rebuilt.end());
    if (fixed_) fit.recompute = shell_.recompute, fit.rebuilt = shell_.rebuilt;
    if (!all) fit.recompute.clear();
    return fit;
  }

  Fit fit_of_stages(const std::vector<LayerRange>& cut) {
    std::vector<Choice> choices;
    for (StageId k = 0; k < shell_.stages; ++k)
      choices.push_back(lightest_of_stage(k, cut[at(k)]));
    return together(choices);
  }

  // The fullest stage with the lightest recomputation; stages are asked in turn from `first` on, and none after one
  // that needs `enough`.
  std::pair<Bytes, StageId> fullest_of_chunks(const std::vector<LayerRange>& cut, StageId first = 0,
                                              Bytes enough = Bytes{kLargest}) {
    Plan plan = shell_;
    plan.layers = cut;
    if (!fixed_) plan.recompute.assign(at(shell_.stages), modes_.front());
    const Schedule& schedule = walked(plan);
    const MemoryModel memory = memory_of_stages(plan, world_.cost, sizes());
    std::pair<Bytes, StageId> most{Bytes{-1}, 0};
    for (StageId i = 0; i < shell_.stages && most.first < enough; ++i) {
      const StageId k = (first + i) % shell_.stages;
      const Bytes needed = pipewright::need(memory, peak(memory, schedule, k).bytes, k).with_reserve;
      if (needed > most.first || (needed == most.first && k < most.second)) most = {needed, k};
    }
    return most;
  }

  Fit fit_of_chunks(const std::vector<LayerRange>& cut) {
    std::vector<Choice> choices(at(shell_.stages));
    Plan plan = shell_;
    plan.layers = cut;
    for (std::size_t mode = 0; mode < modes_.size(); ++mode) {
      const auto settled = [&](StageId k) {
        const Choice& best = choices[at(k)];
        return best.fits && (best.extra == Time{} || (mode != knapsack_ && added_on(mode, cut, k) >= best.extra));
      };
      std::optional<MemoryModel> memory;
      if (!fixed_) plan.recompute.assign(at(shell_.stages), modes_[mode]);
      for (StageId k = 0; k < shell_.stages; ++k) {
        if (settled(k)) continue;
        const Schedule& schedule = walked(plan);
        if (mode == knapsack_) {
          offer(choices[at(k)], of(rebuild_stage(plan, world_.cost, sizes(), schedule, k, room(k))));
          continue;
        }
        if (!memory) memory = memory_of_stages(plan, world_.cost, sizes());
        const Bytes needed = pipewright::need(*memory, peak(*memory, schedule, k).bytes, k).with_reserve;
        offer(choices[at(k)], {modes_[mode], {}, added_on(mode, cut, k), needed, needed <= room(k)});
      }
    }
    return together(choices);
  }
  const std::array<LayerCosts, 2>& sizes() {
    if (!sizes_) sizes_ = {pricer_.layers(), pricer_.layers()};
    return *sizes_;
  }
  Time added_on(std::size_t mode, const std::vector<LayerRange>& cut, StageId k) {
    Time sum;
    for (std::size_t chunk = at(k); chunk < cut.size(); chunk += at(shell_.stages))
      sum = checked_sum(sum, added_by(mode, cut[chunk]));
    return sum;
  }

  Time simulated(const std::vector<LayerRange>& cut, const Fit& fit) {
    ++simulations_;
    const StepCosts costs = pricer_.costs(cut, fit.recompute, fit.rebuilt);
    return static_order_makespan(rule_->generate(costs.shape), costs);
  }

  // Stages that recompute, fit with full recomputation, and could do that much more work in less than `best`.
  std::vector<StageId> may_run_early(const std::vector<LayerRange>& cut, const Fit& fit, Time best) {
    std::vector<StageId> stages;
    const auto full = std::find(modes_.begin(), modes_.end(), Recompute::Full);
    if (fixed_ || knapsack_ == modes_.size() || full == modes_.end()) return stages;
    const auto mode = static_cast<std::size_t>(full - modes_.begin());
    for (StageId k = 0; k < shell_.stages; ++k) {
      if (fit.recompute[at(k)] == Recompute::None || fit.recompute[at(k)] == Recompute::Full) continue;
      std::vector<Time> extra(at(shell_.stages));
      extra[at(k)] = added_on(mode, cut, k);
      if (busiest(cut, extra) < best && need_in_full(cut, k) <= room(k)) stages.push_back(k);
    }
    return stages;
  }
  Bytes need_in_full(const std::vector<LayerRange>& cut, StageId k) {
    Plan plan = shell_;
    plan.layers = cut;
    plan.recompute.assign(at(shell_.stages), Recompute::Full);
    const MemoryModel memory = memory_of_stage(plan, world_.cost, sizes(), k);
    return pipewright::need(memory, peak(memory, walked(plan), k).bytes, k).with_reserve;
  }
  void make_full(Fit& fit, const std::vector<LayerRange>& cut, StageId k) {
    fit.recompute[at(k)] = Recompute::Full;
    for (std::size_t chunk = at(k); chunk < cut.size(); chunk += at(shell_.stages))
      std::erase_if(fit.rebuilt, [range = cut[chunk]](LayerId i) { return i >= range.begin && i < range.end; });
    count(fit, k, need_in_full(cut, k));
  }

  // The schedule for a walk over the memory; an interleaved one repeats itself once the pipeline is full.
  const Schedule& walked(const Plan& plan) {
    const bool full = std::find(plan.recompute.begin(), plan.recompute.end(), Recompute::Full) != plan.recompute.end();
    Schedule& known = walked_[full ? 1 : 0];
    if (known.positions.empty()) {
      ScheduleShape shape = schedule_shape(plan, world_.scenario.model, world_.scenario.training);
      shape.buckets.clear();
      if (shell_.schedule == "interleaved_1f1b" && !plan.recompute_except_last)
        shape.micro_batches = std::min(shape.micro_batches, 4 * shape.stages);
      known = rule_->generate(shape);
    }
    return known;
  }

  World& world_;
  Plan shell_;
  std::array<Schedule, 2> walked_;  // without and with full recomputation
  std::vector<Recompute> modes_;
  bool fixed_ = false;
  std::size_t knapsack_ = 0;  // its number among the modes; their count: none of them
  const std::vector<Bytes>& set_aside_;
  const ScheduleRule* rule_;
  StepPricer pricer_;
  std::vector<std::unique_ptr<StageNeeds>> needs_;          // by mode
  std::vector<std::vector<std::vector<LayerId>>> longest_;  // by mode, stage, first layer; -1: not known
  std::vector<std::vector<std::int64_t>> added_before_;     // by mode and layer: what it adds to those before; empty
  std::map<std::tuple<StageId, LayerId, LayerId>, Choice> sets_;  // of layers, as far as asked for
  std::optional<std::array<LayerCosts, 2>> sizes_;
  std::vector<std::int64_t> work_before_;  // forward and backward of the layers before each
  std::int64_t simulations_ = 0;
};

Evaluator::Evaluator(const Scenario& scenario, std::function<bool()> stop)
    : scenario_(scenario),
      modes_(recomputations(scenario)),
      cuts_open_(is_open(scenario, "partition") || scenario.origins.find("plan.partition") == scenario.origins.end()),
      stop_(std::move(stop)) {}

Evaluator::World& Evaluator::world(const Layout& layout) {
  std::shared_ptr<World>& known = worlds_[{layout.tensor_parallel, layout.sequence_parallel, layout.zero}];
  if (!known) {
    Scenario scenario = settled(scenario_, layout, nullptr);
    if (!modes_.empty()) scenario.plan.recompute.value.clear();  // chosen here, for every cut
    known = std::make_shared<World>(std::move(scenario));
  }
  return *known;
}

const CostModel& Evaluator::cost(const Layout& layout) {
  return world(layout).cost;
}

Time Evaluator::bound(const LayoutGroup& group) {
  Layout layout = group.first;
  layout.zero = group.zeros.front();
  Time least = kNever;
  for (const std::string& schedule : group.schedules) {
    layout.schedule = schedule;
    layout.virtual_stages = schedule == "interleaved_1f1b" ? 2 : 1;
    least = std::min(least, bound(layout));
  }
  return least;
}

Time Evaluator::bound(const Layout& layout) {
  World& here = world(layout);
  const auto [work, largest] = here.work(layout.micro_batch_size, surely());
  const ScheduleRule* rule = find_schedule(layout.schedule);
  const auto micro_batches = static_cast<double>(layout.micro_batches);
  const double busy = micro_batches * std::max(work / layout.stages, largest);
  if (!here.straight || (rule != nullptr && !rule->flush)) return below(busy);
  const double filling = layout.virtual_stages > 1 || rule == nullptr
                             ? work
                             : work / -std::expm1(layout.stages * std::log1p(-1 / micro_batches));
  return below(std::max(filling, busy));
}

Recompute Evaluator::surely() const {
  if (scenario_.plan.recompute_except_last) return Recompute::None;
  if (!modes_.empty()) return modes_.front();
  const std::vector<Recompute>& asked = scenario_.plan.recompute.value;
  return asked.size() == 1 ? asked.front() : Recompute::None;
}

namespace {

// The layout's plan with everything but layers and recomputation, or why the schedule refuses it.
std::variant<Plan, std::string> shell_of(Scenario& scenario, const CostModel& cost, const Layout& layout,
                                         bool cuts_open) {
  PlanRequest& request = scenario.plan;
  request.stages.value = layout.stages, request.virtual_stages.value = layout.virtual_stages;
  request.data_parallel.value = layout.data_parallel;
  request.schedule.value = layout.schedule;
  if (std::holds_alternative<PlacementOrder>(request.placement)) request.placement = layout.placement;
  const auto number = [](std::int64_t value) { return Placed<std::int64_t>{value, {}}; };
  scenario.training.global_batch_size = number(layout.global_batch());
  scenario.training.micro_batch_size = number(layout.micro_batch_size);
  scenario.training.micro_batches.reset();
  if (cuts_open) request.partition.value = EqualLayers{};
  try {
    return find_plan(scenario, cost);
  } catch (const OverflowError&) {
    throw;
  } catch (const InputError& error) {
    return std::string(error.what());
  }
}

}  // namespace

Time Evaluator::tight_bound(const Layout& layout) {
  const Time simple = bound(layout);
  const ScheduleRule* rule = find_schedule(layout.schedule);
  if (!cuts_open_ || rule == nullptr || !rule->flush || layout.schedule == "naive") return simple;
  World& here = world(layout);
  auto shell = shell_of(here.scenario, here.cost, layout, true);
  const Plan* plan = std::get_if<Plan>(&shell);
  if (plan == nullptr) return simple;  // `evaluate` says why
  const LayerCosts& layers = here.layers(layout.micro_batch_size);
  if (here.run && here.straight && !plan->recompute_except_last) {
    const bool alike = std::adjacent_find(plan->recompute.begin(), plan->recompute.end(), std::not_equal_to<>()) ==
                       plan->recompute.end();
    if (!modes_.empty() || alike)
      return std::max(simple, run_bound(*here.run, *plan, here.cost, layers,
                                        modes_.empty() ? std::vector<Recompute>{plan->recompute.front()} : modes_));
  }
  if (layout.virtual_stages > 1) return simple;
  const std::vector<Time> load = loads(layers, surely());
  const Time bottleneck = rank_load(load, min_max(load, layout.stages), layout.stages);
  return std::max(simple, Time{checked_product(bottleneck.value, layout.micro_batches, "a bound")});
}

Bytes Evaluator::least_states(const Layout& layout) {
  World& here = world(layout);
  const Training& training = here.scenario.training;
  const double owners = layout.zero == 1 ? layout.data_parallel : 1;
  const double each = static_cast<double>(weight_bytes(training.precision).value + gradient_bytes(training).value) +
                      static_cast<double>(optimizer_bytes(training.precision, training.optimizer).value) / owners;
  const double per_device = static_cast<double>(here.parameters) * each / layout.stages;
  return {static_cast<std::int64_t>(per_device * (1 - 1e-9))};
}

Evaluation Evaluator::evaluate(const Layout& layout, const std::vector<Bytes>& set_aside) {
  Evaluation result;
  World& here = world(layout);
  auto shell = shell_of(here.scenario, here.cost, layout, cuts_open_);
  if (const auto* refused = std::get_if<std::string>(&shell)) {
    result.miss.reason = *refused;
    return result;
  }
  Workbench bench(here, std::move(std::get<Plan>(shell)), modes_, set_aside);
  const std::vector<Time> load = loads(bench.pricer().layers(), bench.lightest());
  const Time bound = tight_bound(layout);
  std::vector<std::vector<LayerRange>> cuts;
  if (!cuts_open_) {
    cuts.push_back(bench.shell().layers);
  } else {
    cuts.push_back(min_max(load, bench.shell().chunks()));
    if (layout.virtual_stages > 1)
      for (const double first_round : {1.0, 0.75, 0.5, 0.25})
        cuts.push_back(rank_balanced(load, layout.stages, layout.virtual_stages, first_round));
  }
  const auto consider = [&](const std::vector<LayerRange>& cut) {
    Workbench::Fit fit = bench.lightest_fit(cut);
    if (fit.recompute.empty()) {
      if (result.miss.reason.empty() || fit.need < result.miss.need) result.miss = {"memory", fit.need, fit.stage};
      return;
    }
    const Time step = bench.step(cut, fit);
    if (result.candidate && result.candidate->step <= step) return;
    Plan plan = bench.shell();
    plan.layers = cut, plan.recompute = fit.recompute, plan.rebuilt = fit.rebuilt;
    result.candidate = Candidate{layout, std::move(plan), step, std::min(bound, step), fit.need, !cuts_open_};
  };
  for (const std::vector<LayerRange>& cut : cuts)
    consider(cut);
  if (cuts_open_ && layout.virtual_stages > 1 && modes_.size() > 1)
    for (std::size_t i = 1; i < cuts.size(); ++i)
      if (const auto repaired = bench.fitting_chunks(cuts[i])) consider(*repaired);
  if (!result.candidate && cuts_open_ && layout.virtual_stages == 1)
    if (const auto cut = bench.fitting()) consider(*cut);
  if (result.candidate && !cuts_open_) result.candidate->bound = result.candidate->step;
  result.miss.proven = !cuts_open_ || layout.virtual_stages == 1;
  result.simulations = bench.simulations();
  return result;
}

std::int64_t Evaluator::refine(Candidate& candidate, std::int64_t simulations, const std::vector<Bytes>& set_aside) {
  if (candidate.refined) return 0;
  candidate.refined = true;
  const Layout& layout = candidate.layout;
  World& here = world(layout);
  auto shell = shell_of(here.scenario, here.cost, layout, cuts_open_);
  PP_CHECK(std::holds_alternative<Plan>(shell));
  Workbench bench(here, std::move(std::get<Plan>(shell)), modes_, set_aside);
  const auto take = [&](const std::vector<LayerRange>& cut, const Workbench::Fit& fit, Time step) {
    if (step >= candidate.step) return false;
    candidate.plan.layers = cut, candidate.plan.recompute = fit.recompute, candidate.plan.rebuilt = fit.rebuilt;
    candidate.step = step, candidate.need = fit.need;
    return true;
  };
  if (!here.straight || !cuts_can_be_bounded(layout)) {
    if (here.straight && layout.virtual_stages == 1) return 0;
    // Single layers from one chunk to the chunks up to a round of stages away.
    bool better = true;
    while (better && bench.simulations() < simulations && !stopped()) {
      better = false;
      const std::vector<LayerRange> from = candidate.plan.layers;
      const int chunks = static_cast<int>(from.size());
      for (int i = 0; i < chunks && bench.simulations() < simulations && !stopped(); ++i)
        for (int j = std::max(0, i - layout.stages); j < std::min(chunks, i + layout.stages + 1); ++j) {
          if (j == i || candidate.plan.layers != from || from[at(i)].size() < 2) continue;
          std::vector<LayerRange> cut = from;
          for (int c = std::min(i, j); c < std::max(i, j); ++c) {
            cut[at(c)].end += i < j ? -1 : 1;
            cut[at(c) + 1].begin += i < j ? -1 : 1;
          }
          if (bench.busiest(cut) >= candidate.step) continue;
          Workbench::Fit fit = bench.lightest_fit(cut);
          if (fit.recompute.empty() || bench.simulations() >= simulations) continue;
          if (bench.busiest(cut, fit.extra) >= candidate.step) continue;
          const Time time = bench.step(cut, fit);
          better |= take(cut, fit, time);
        }
    }
    return bench.simulations();
  }
  const LayerCosts& layers = bench.pricer().layers();
  const auto extra = [&](StageId k, LayerRange range) { return bench.extra(k, range); };
  const auto step = [&](const std::vector<LayerRange>& cut) {
    Workbench::Fit fit = bench.lightest_fit(cut);
    PP_CHECK(!fit.recompute.empty());
    const Time time = bench.step(cut, fit);
    take(cut, fit, time);
    return time;
  };
  const bool per_micro_batch = !candidate.plan.recompute_except_last;
  const ExactAnswer answer =
      exact({.schedule = layout.schedule,
             .stages = layout.stages,
             .micro_batches = static_cast<int>(layout.micro_batches),
             .forward = layers.forward,
             .backward = layers.backward,
             .hop = bench.pricer().fastest_hops(),
             .fits = [&](StageId k, LayerRange range) { return bench.reaches_somehow(k, range); },
             .extra = per_micro_batch ? std::function<Time(StageId, LayerRange)>(extra) : nullptr,
             .tail = [&](LayerRange range) { return bench.pricer().tail(0, range); },
             .step = step,
             .stop = stop_,
             .most_simulations = simulations,
             .most_prefixes = std::int64_t{1} << 17});
  if (!answer.layers.empty()) candidate.bound = std::max(candidate.bound, std::min(answer.lower_bound, candidate.step));
  return bench.simulations();
}

}  // namespace pipewright
