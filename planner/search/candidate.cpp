#include "planner/search/candidate.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "core/cost/framework_memory.hpp"
#include "core/cost/low_precision.hpp"
#include "core/cost/state_exchange.hpp"
#include "core/cost/step_pricer.hpp"
#include "core/folds.hpp"
#include "core/question/memory_anchor.hpp"
#include "planner/find_plan.hpp"
#include "planner/partitioners/balanced.hpp"
#include "planner/partitioners/exact.hpp"
#include "planner/partitioners/least_step.hpp"
#include "planner/partitioners/min_max.hpp"
#include "planner/partitioners/rank_balance.hpp"
#include "planner/plan_errors.hpp"
#include "planner/search/path_bound.hpp"
#include "planner/search/run_bound.hpp"
#include "planner/search/workbench.hpp"
#include "sim/schedules/lists.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

bool cuts_can_be_bounded(const Layout& layout) {
  return layout.virtual_stages == 1 && find_schedule(layout.schedule)->bound != StepBound::None;
}

Time below(double nanoseconds) {
  const double less = std::floor(nanoseconds * (1 - 1e-12)) - 1;
  return {less < static_cast<double>(kLargest) ? static_cast<std::int64_t>(std::max(0.0, less)) : kLargest};
}

// The plan before its chunks were cut into units: what its gathers and reductions take is left out, and so is the memory
// of what is whole for a while, but for what is so until the end of the step (run_memory.hpp). For bounds.
Plan without_exchange(Plan plan) {
  plan.layers = plan.uncut();
  plan.units = 1;
  if (plan.resharding && plan.resharding->after_backward) plan.resharding.reset(), plan.reduce_each = false;
  return plan;
}

// The layout's plan with everything but layers and recomputation, or why it is refused.
std::variant<Plan, Miss> shell_of(Scenario& scenario, const CostModel& cost, const Layout& layout, bool cuts_open) {
  PlanRequest& request = scenario.plan;
  request.stages.value = layout.stages, request.virtual_stages.value = layout.virtual_stages;
  request.data_parallel.value = layout.data_parallel, request.context_parallel.value = layout.context_parallel;
  request.expert_parallel.value = layout.expert_parallel;
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
    return Miss{.why = error.is(ErrorCode::TooLarge) ? Miss::Why::NotSimulated : Miss::Why::Invalid,
                .reason = words(error.first())};
  }
}

// Of one stage, whose gathers follow one another on a stream of their own: every pass over a unit has one, but for the
// passes whose unit is still whole from the pass before.             tests/planner/search_test.cpp "gathers of divided"
Time gather_bound(const Plan& plan, const CostModel& cost) {
  if (!plan.resharding || !plan.resharding->after_backward || plan.stages > 1 || plan.virtual_stages > 1) return {};
  const bool few = plan.resharding->over > 0, again = plan.resharding->after_forward;
  const StateExchange exchange(plan, 0, cost);
  Time all, longest;
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const StateExchange::Share weights = gathered_weights(plan, 0, plan.layers[v], cost.scenario());
    const Time forward = exchange.gather(weights).time;
    const Time backward = !again ? Time{} : few ? exchange.gather_of_few(weights.all).time : forward;
    all = checked_sum(all, checked_sum(forward, backward));
    longest = std::max({longest, forward, backward});
  }
  const Time kept = longest * (again ? 2 : 1);  // the last unit's backward, and the first one's next forward
  return all > kept ? below(static_cast<double>((all - kept).value) * static_cast<double>(plan.micro_batches)) : Time{};
}

struct Lowest {
  std::vector<LayerRange> cut;
  Workbench::Fit fit;  // with the recomputations that need least
};

// The cut whose fullest stage needs least: of all (nothing but `need` where that is more than `wanted`), or of those
// given.
Lowest lowest_level(Workbench& bench, const std::vector<std::vector<LayerRange>>& cuts, bool of_all, Bytes wanted) {
  Lowest best;
  if (of_all) {
    LeastCut least = bench.least_cut(std::min(wanted, bench.least_fit(cuts.front()).level));
    if (least.layers.empty()) {
      best.fit.need = least.memory;
      return best;
    }
    best.fit = bench.least_fit(least.layers);
    best.cut = std::move(least.layers);
    return best;
  }
  for (const std::vector<LayerRange>& cut : cuts)
    if (Workbench::Fit fit = bench.least_fit(cut); best.cut.empty() || fit.level < best.fit.level)
      best = {cut, std::move(fit)};
  return best;
}

}  // namespace

struct Evaluator::World {
  explicit World(std::shared_ptr<Scenario> of) : scenario(*of), cost(std::move(of)) {
    for (const Layer& layer : scenario.model.layers)
      if (!layer.states) parameters += layer.held(), trained += layer.trained();
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

  Scenario& scenario;  // that of `cost`; its plan request changes from layout to layout
  CostModel cost;
  std::map<std::int64_t, LayerCosts> by_samples;
  std::map<std::pair<std::int64_t, Recompute>, Work> work_by_samples;
  std::int64_t parameters = 0, trained = 0;  // that devices hold; of them, those with gradients and states
  std::optional<EqualRun> run;
  bool straight = true;  // every stage waits for the one before it, however the layers are cut
};

Evaluator::Evaluator(const Scenario& scenario, std::function<bool()> stop, Aim aim, const Within& within)
    : scenario_(scenario),
      modes_(recomputations(scenario)),
      modes_of_shared_(recomputations(scenario, 2)),
      one_for_all_(within.one_recompute && modes_.size() > 1),
      cuts_open_(is_open(scenario, "partition") || scenario.origins.find("plan.partition") == scenario.origins.end()),
      stop_(std::move(stop)),
      aim_(aim) {
  for (const std::int64_t replicas : scenario.plan.replicas.value)
    workers_ += replicas, widest_ = std::max(widest_, replicas);
}

Evaluator::World& Evaluator::world(const Layout& layout) {
  if (!depends_on_place(layout)) return world_anywhere(layout);
  return world(layout, {layout.stages, layout.data_parallel, layout.placement});
}

Evaluator::World& Evaluator::world_anywhere(const Layout& layout) {
  return world(layout, {0, 0, PlacementOrder{}});
}

Evaluator::World& Evaluator::world(const Layout& layout, const Where& where) {
  std::shared_ptr<World>& known = worlds_[{layout.tensor_parallel, layout.sequence_parallel, layout.context_parallel,
                                           layout.expert_parallel, layout.zero, layout.shard, where}];
  if (!known) {
    const auto scenario = std::make_shared<Scenario>(settled(scenario_, layout, nullptr));
    if (!modes_.empty()) scenario->plan.recompute.value.clear();  // chosen here, for every cut
    if (std::get<0>(where) == 0) scenario->plan.expert_exchange.value = ExpertExchange::Unpriced;
    known = std::make_shared<World>(scenario);
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
    layout.virtual_stages = find_schedule(schedule)->facts.takes_chunks ? 2 : 1;
    least = std::min(least, bound_anywhere(layout));
  }
  return least;
}

Time Evaluator::bound(const Layout& layout) {
  return bound(world(layout), layout);
}

Time Evaluator::bound_anywhere(const Layout& layout) {
  return bound(world_anywhere(layout), layout);
}

Time Evaluator::bound(World& here, const Layout& layout) const {
  const auto [work, largest] = here.work(layout.micro_batch_size, surely());
  const ScheduleRule* rule = find_schedule(layout.schedule);
  const auto micro_batches = static_cast<double>(layout.micro_batches);
  const auto workers = static_cast<double>(widest_ > 1 ? workers_ : layout.stages);
  const double busy = micro_batches * std::max(work / workers, largest / static_cast<double>(widest_));
  if (!here.straight || widest_ > 1 || (rule != nullptr && (!rule->flush || rule->splits_backward))) return below(busy);
  const double waited = here.work(layout.micro_batch_size, Recompute::None).all;
  const double filling = layout.virtual_stages > 1 || rule == nullptr
                             ? waited
                             : waited / -std::expm1(layout.stages * std::log1p(-1 / micro_batches));
  return below(std::max(filling, busy));
}

Recompute Evaluator::surely() const {
  if (scenario_.plan.recompute_except_last) return Recompute::None;
  if (!modes_.empty()) return modes_.front();
  const std::vector<Recompute>& asked = scenario_.plan.recompute.value;
  return asked.size() == 1 ? asked.front() : Recompute::None;
}

std::optional<Time> Evaluator::of_run(World& here, const Plan& shell,
                                      const std::function<Time(const Modes&)>& of) const {
  if (!here.run || !here.straight || shell.recompute_except_last) return std::nullopt;
  if (!one_for_all_) {
    const bool alike = std::ranges::adjacent_find(shell.recompute, std::not_equal_to<>()) == shell.recompute.end();
    if (modes_.empty() && !alike) return std::nullopt;
    return of(modes_.empty() ? Modes{shell.recompute.front()} : modes(shell.context_parallel));
  }
  return least_over<Time>(
      modes(shell.context_parallel), [&](const Recompute mode) { return of({mode}); }, kNever);
}

Time Evaluator::tight_bound(const Layout& layout) {
  const auto known = bounds_.find(layout);
  return known != bounds_.end() ? known->second : bounds_.emplace(layout, cut_bound(layout)).first->second;
}

Time Evaluator::cut_bound(const Layout& layout) {
  Time simple = bound(layout);
  const ScheduleRule* rule = find_schedule(layout.schedule);
  if (!cuts_open_ || widest_ > 1 || rule == nullptr || !rule->flush || rule->one_stage_at_a_time) return simple;
  World& here = world(layout);
  auto shell = shell_of(here.scenario, here.cost, layout, true);
  Plan* const plan = std::get_if<Plan>(&shell);
  if (plan == nullptr) return simple;  // `evaluate` says why
  simple = std::max(simple, gather_bound(*plan, here.cost));
  *plan = without_exchange(std::move(*plan));
  const LayerCosts& layers = here.layers(layout.micro_batch_size);
  const auto of = [&](const Modes& modes) { return run_bound(*here.run, *plan, here.cost, layers, modes); };
  if (const std::optional<Time> of_all = of_run(here, *plan, of)) return std::max(simple, *of_all);
  if (layout.virtual_stages > 1) return simple;
  const std::vector<Time> load = loads(layers, surely());
  const Time bottleneck = rank_load(load, min_max(load, layout.stages), Seating{.stages = layout.stages});
  return std::max(simple, Time{checked_product(bottleneck.value, layout.micro_batches, "a bound")});
}

Time Evaluator::raise_bound(const Layout& layout, Time enough, int rounds) {
  const Time known = tight_bound(layout);
  World& here = world(layout);
  if (!cuts_open_ || layout.virtual_stages == 1 || known >= enough || !here.run || !here.run->nearly_all())
    return known;
  auto shell = shell_of(here.scenario, here.cost, layout, true);
  Plan* const plan = std::get_if<Plan>(&shell);
  if (plan == nullptr) return known;
  *plan = without_exchange(std::move(*plan));
  const LayerCosts& layers = here.layers(layout.micro_batch_size);
  const EqualRunMemory memory(*here.run, *plan, here.cost, layers);
  StepPricer pricer(*plan, here.cost);
  const std::vector<Time> hops = pricer.fastest_hops();
  const ScheduleRule* const rule = find_schedule(layout.schedule);
  const Time behind = rule != nullptr && rule->flush ? pricer.least_gathers_behind() : Time{};
  const auto first = hops.begin() + here.run->begin - 1, last = hops.begin() + here.run->end;
  const auto of = [&](const Modes& modes) {
    const Time path = path_bound({.run = *here.run,
                                  .shell = *plan,
                                  .layers = layers,
                                  .memory = memory,
                                  .modes = modes,
                                  .hop = *std::min_element(first, last == hops.end() ? last - 1 : last),
                                  .block = here.scenario.model.layers[here.run->begin].block},
                                 enough == kNever ? kNever : std::max(Time{1}, enough - behind), rounds);
    return path > Time{} && path < kNever ? checked_sum(path, behind) : path;
  };
  const Time raised = of_run(here, *plan, of).value_or(known);
  return bounds_[layout] = std::max(known, raised);
}

Bytes Evaluator::least_states(const Layout& layout) {
  World& here = world_anywhere(layout);
  const Training& training = here.scenario.training;
  const auto held = [&](double state, int zero) {
    const auto& shard = here.scenario.plan.shard;
    const std::int64_t copies =
        shard ? std::min<std::int64_t>(shard->value, layout.data_parallel) : layout.data_parallel;
    // Of experts more devices may hold the same than there are copies.
    const TensorParallel split = here.scenario.plan.split();
    const double alike =
        split.sends_tokens() ? std::max(1.0, split.degree / static_cast<double>(split.expert_devices())) : 1;
    return state / (layout.zero >= zero ? static_cast<double>(copies * layout.context_parallel * widest_) * alike : 1);
  };
  const auto of_bytes = [&](Bytes state, int zero) { return held(static_cast<double>(state.value), zero); };
  const double trained =
      static_cast<double>(here.trained) / static_cast<double>(std::max<std::int64_t>(1, here.parameters));
  const double share = here.trained < here.parameters ? trained : 1;
  const double each =
      held(least_weight_bytes(training), kWeightsSharded) +
      share * of_bytes(gradient_bytes(training), kGradientsSharded) +
      share * of_bytes(optimizer_bytes(training, true), kOptimizerSharded) * (1 - training.offload_optimizer.value);
  const double per_device = static_cast<double>(here.parameters) * each / layout.stages;
  const auto measured = static_cast<double>(correction_of(here.scenario).held.value);
  return {static_cast<std::int64_t>(std::max(per_device * (1 - 1e-9) + measured, 0.0))};
}

Evaluation Evaluator::evaluate(const Layout& layout, const std::vector<Bytes>& set_aside, Bytes wanted) {
  const Modes& modes = this->modes(layout.context_parallel);
  if (!one_for_all_) return evaluate(layout, modes, set_aside, wanted);
  Evaluation best;
  bool proven = true;
  std::int64_t simulations = 0;
  for (const Recompute mode : modes) {
    Evaluation each = evaluate(layout, {mode}, set_aside, wanted);
    simulations += each.simulations, proven &= each.miss.proven;
    if (mode == modes.front() || better(each, best)) best = std::move(each);
  }
  best.simulations = simulations, best.miss.proven = proven;
  return best;
}

// A candidate, else what may yet be one, else what misses by less.
bool Evaluator::better(const Evaluation& a, const Evaluation& b) const {
  if (a.candidate && b.candidate)
    return aim_ == Aim::LeastTime ? a.candidate->step < b.candidate->step : a.candidate->need < b.candidate->need;
  if (a.candidate || b.candidate) return a.candidate.has_value();
  const auto worth_it = [](const Evaluation& each) { return each.miss.why == Miss::Why::NotWorthIt ? 0 : 1; };
  return std::pair(worth_it(a), a.miss.need) < std::pair(worth_it(b), b.miss.need);
}

Evaluation Evaluator::evaluate(const Layout& layout, const Modes& modes, const std::vector<Bytes>& set_aside,
                               Bytes wanted) {
  Evaluation result;
  World& here = world(layout);
  const bool cuts_open = searches_cuts(layout);
  auto shell = shell_of(here.scenario, here.cost, layout, cuts_open);
  if (const auto* refused = std::get_if<Miss>(&shell)) {
    result.miss = *refused;
    return result;
  }
  Workbench bench(here.cost, std::move(std::get<Plan>(shell)), modes, set_aside);
  const std::vector<Time> load = loads(bench.pricer().layers(), bench.lightest());
  const Time bound = tight_bound(layout);
  std::vector<std::vector<LayerRange>> cuts;
  if (!cuts_open) {
    cuts.push_back(bench.shell().layers);
  } else {
    cuts.push_back(layout.virtual_stages == 1 ? min_max(load, bench.shell().replicas)
                                              : min_max(load, bench.shell().chunks()));
    if (layout.virtual_stages > 1)
      for (const double first_round : {1.0, 0.75, 0.5, 0.25})
        cuts.push_back(rank_balanced(load, bench.shell().seating(), first_round));
  }
  const bool one_chunk = bench.shell().seating().held() == 1;
  Bytes least;
  if (aim_ == Aim::LeastMemory) {
    const Lowest lowest = lowest_level(bench, cuts, cuts_open && one_chunk, wanted);
    if (lowest.cut.empty()) {
      result.miss = {.why = Miss::Why::NotWorthIt, .need = lowest.fit.need};
      return result;
    }
    if (lowest.fit.level > bench.level()) {
      result.miss = {.need = lowest.fit.need, .stage = lowest.fit.stage, .proven = one_chunk && tries_all_cuts(layout)};
      return result;
    }
    bench.set_level(lowest.fit.level);
    cuts.push_back(lowest.cut);
    if (one_chunk && tries_all_cuts(layout) && set_aside.empty()) least = lowest.fit.level;
  }
  const auto consider = [&](const std::vector<LayerRange>& cut) {
    Workbench::Fit fit = bench.lightest_fit(cut);
    if (fit.recompute.empty() && aim_ == Aim::LeastMemory) fit = bench.least_fit(cut);
    if (fit.recompute.empty()) {
      if (result.miss.need == Bytes{} || fit.need < result.miss.need)
        result.miss = {.need = fit.need, .stage = fit.stage};
      return;
    }
    const Time step = bench.step(cut, fit);
    if (result.candidate && result.candidate->step <= step) return;
    Plan plan = bench.shell();
    plan.layers = cut, plan.recompute = fit.recompute, plan.rebuilt = fit.rebuilt;
    const bool refined = !cuts_open || aim_ == Aim::LeastMemory;
    result.candidate = Candidate{layout, std::move(plan), step, std::min(bound, step), fit.need, least, refined};
  };
  for (const std::vector<LayerRange>& cut : cuts)
    consider(cut);
  if (cuts_open && layout.virtual_stages > 1 && modes.size() > 1)
    for (std::size_t i = 1; i < cuts.size(); ++i)
      if (const auto repaired = bench.fitting_chunks(cuts[i])) consider(*repaired);
  if (cuts_open && one_chunk && (!result.candidate || aim_ == Aim::LeastMemory))
    if (const auto cut = bench.fitting()) consider(*cut);
  const bool all_cuts = tries_all_cuts(layout);
  if (result.candidate && all_cuts && !cuts_open && bench.all_tried()) result.candidate->bound = result.candidate->step;
  result.miss.proven = all_cuts && (one_chunk || (!cuts_open && !bench.chooses_layers()));
  result.simulations = bench.simulations();
  return result;
}

std::int64_t Evaluator::refine(Candidate& candidate, std::int64_t simulations, const std::vector<Bytes>& set_aside) {
  if (candidate.refined) return 0;
  candidate.refined = true;
  if (in_units(candidate.layout)) return 0;
  const Modes& modes = this->modes(candidate.layout.context_parallel);
  if (!one_for_all_) return refine(candidate, modes, simulations, set_aside);
  const Time known = candidate.bound;
  if (candidate.layout.virtual_stages > 1)
    return refine(candidate, {candidate.plan.recompute.front()}, simulations, set_aside);
  // Each mode alone, and the least of their bounds; one for which nothing fits has none.
  std::int64_t used = 0;
  Time least = kNever;
  for (const Recompute mode : modes) {
    if (const Evaluation there = evaluate(candidate.layout, {mode}, set_aside, Bytes{kLargest}); !there.candidate) {
      if (!there.miss.proven) least = std::min(least, known);
      continue;
    }
    candidate.bound = known;
    used += refine(candidate, {mode}, simulations, set_aside);
    least = std::min(least, candidate.bound);
  }
  candidate.bound = std::min(least == kNever ? known : least, candidate.step);
  return used;
}

std::int64_t Evaluator::refine(Candidate& candidate, const Modes& modes, std::int64_t simulations,
                               const std::vector<Bytes>& set_aside) {
  const Layout& layout = candidate.layout;
  World& here = world(layout);
  auto shell = shell_of(here.scenario, here.cost, layout, searches_cuts(layout));
  PP_CHECK(std::holds_alternative<Plan>(shell));
  Workbench bench(here.cost, std::move(std::get<Plan>(shell)), modes, set_aside);
  const auto take = [&](const std::vector<LayerRange>& cut, const Workbench::Fit& fit, Time step) {
    if (step >= candidate.step) return false;
    candidate.plan.layers = cut, candidate.plan.recompute = fit.recompute, candidate.plan.rebuilt = fit.rebuilt;
    candidate.step = step, candidate.need = fit.need;
    return true;
  };
  if (!here.straight || widest_ > 1 || !cuts_can_be_bounded(layout)) {
    if (here.straight && widest_ == 1 && layout.virtual_stages == 1) return 0;
    // Single layers from one chunk to the chunks up to a round of stages away.
    bool better = true;
    while (better && bench.simulations() < simulations && !stopped()) {
      better = false;
      const std::vector<LayerRange> from = candidate.plan.layers;
      const int chunks = static_cast<int>(from.size());
      for (int i = 0; i < chunks && bench.simulations() < simulations && !stopped(); ++i)
        for (int j = std::max(0, i - layout.stages); j < std::min(chunks, i + layout.stages + 1); ++j) {
          if (j == i || candidate.plan.layers != from || from[at(i)].size() < 2) continue;
          const std::vector<LayerRange> cut = moved(from, i, j);
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
  Time open = kNever;  // of cuts of which not every recomputation was simulated
  const auto step = [&](const std::vector<LayerRange>& cut) {
    Workbench::Fit fit = bench.lightest_fit(cut);
    PP_CHECK(!fit.recompute.empty());
    const Time least = bench.busiest(cut, fit.extra), time = bench.step(cut, fit);
    if (!bench.all_tried()) open = std::min(open, least);
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
  if (!answer.layers.empty())
    candidate.bound = std::max(candidate.bound, std::min({answer.lower_bound, candidate.step, open}));
  return bench.simulations();
}

}  // namespace pipewright::planner
