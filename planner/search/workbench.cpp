#include "planner/search/workbench.hpp"

#include <algorithm>

#include "core/cost/buckets.hpp"
#include "core/cost/memory_model.hpp"
#include "core/folds.hpp"
#include "core/plan/op_index.hpp"
#include "planner/partitioners/rebuilt_layers.hpp"
#include "planner/search/run_bound.hpp"

namespace pipewright::planner {
Time added(const LayerCosts& layers, std::size_t layer, Recompute mode) {
  if (mode == Recompute::Full) return layers.forward[layer];
  return mode == Recompute::Selective ? layers.rebuild[layer] : Time{};
}

std::vector<Time> loads(const LayerCosts& layers, Recompute mode) {
  return mapped<Time>(counted_to(layers.forward.size()), [&](std::size_t i) {
    return checked_sum(checked_sum(layers.forward[i], layers.backward[i]), added(layers, i, mode));
  });
}

Workbench::Workbench(const CostModel& cost, Plan shell, std::vector<Recompute> modes, std::vector<Bytes> set_aside)
    : cost_(cost),
      scenario_(cost.scenario()),
      shell_(std::move(shell)),
      modes_(std::move(modes)),
      set_aside_(std::move(set_aside)),
      level_(scenario_.cluster.device.memory),
      rule_(find_schedule(shell_.schedule)),
      makespan_(*rule_),
      pricer_(shell_, cost) {
  if (modes_.empty()) modes_.push_back(shell_.recompute.front()), fixed_ = true;
  // Listed once for all stages: of another cut, other stages have them.
  if (fixed_ && scenario_.plan.recompute.value == std::vector{Recompute::Layers})
    shell_.recompute.assign(at(shell_.stages), Recompute::Layers);
  knapsack_ = at(std::ranges::find(modes_, Recompute::Knapsack) - modes_.begin());
  const auto tied = [](const Layer& layer) { return layer.tied_to > 0; };  // the first layer lies in the first chunk
  alone_ = !shell_.facts.uses_partner && std::ranges::none_of(scenario_.model.layers, tied);
  const bool by_layer = std::ranges::find(shell_.recompute, Recompute::Layers) != shell_.recompute.end();
  if (!fixed_ || !by_layer) run_ = equal_run(scenario_.model, pricer_.layers());
  needs_.resize(modes_.size());
  longest_.resize(modes_.size());
  added_before_.resize(modes_.size());
}

void Workbench::set_level(Bytes level) {
  if (level == level_) return;
  level_ = level;
  sets_.clear();
  for (auto& by_stage : longest_)
    by_stage.clear();
}

Workbench::Fit Workbench::lightest_fit(const std::vector<LayerRange>& cut) {
  if (shell_.seating().held() > 1) return fit_of_chunks(cut, Aim::Lightest);
  auto choices = mapped<Choice>(counted_to(shell_.stages), [&](StageId k) { return lightest_of_stage(k, cut[at(k)]); });
  return together(choices);
}

Workbench::Fit Workbench::least_fit(const std::vector<LayerRange>& cut) {
  if (shell_.seating().held() > 1) return fit_of_chunks(cut, Aim::Least);
  auto choices = mapped<Choice>(counted_to(shell_.stages), [&](StageId k) { return least_of_stage(k, cut[at(k)]); });
  return together(choices);
}

CutProblem Workbench::problem_of(std::size_t mode) {
  return {.load = loads(pricer_.layers(), modes_[mode]),
          .replicas = shell_.replicas,
          .fits = {},
          .later_needs_less = needs(mode).tensors_do_not_grow()};
}

std::optional<std::vector<LayerRange>> Workbench::fitting() {
  CutProblem problem = problem_of(modes_.size() - 1);
  problem.fits = [&](StageId k, LayerRange range) { return fits_somehow(k, range); };
  return fitting_cut(problem);
}

LeastCut Workbench::least_cut(Bytes most) {
  return planner::least_cut(
      problem_of(modes_.size() - 1),
      [&](StageId k, LayerRange range) {
        Bytes least = need(0, k, range);
        for (std::size_t mode = 1; mode < modes_.size(); ++mode)
          least = std::min(least, need(mode, k, range));
        return least + set_aside(k);
      },
      Bytes{1}, most);
}

Workbench::Choice Workbench::of(const RebuiltStage& set) {
  return {set.layers.empty() ? Recompute::None : Recompute::Layers, set.layers, set.extra, set.need, set.fits, true};
}

void Workbench::offer(Choice& best, Choice other) {
  if (best.known && best.fits && (!other.fits || other.extra >= best.extra)) return;
  if (best.known && !best.fits && !other.fits && other.need >= best.need) return;
  best = std::move(other);
}

void Workbench::offer_least(Choice& best, Choice other) {
  if (best.known && (other.need > best.need || (other.need == best.need && other.extra >= best.extra))) return;
  best = std::move(other);
}

Time Workbench::step(const std::vector<LayerRange>& cut, Fit& fit) {
  Time best = simulated(cut, fit);
  std::vector<StageId> more = may_run_early(cut, fit, best);
  constexpr std::size_t kFew = 4;
  const bool few = more.size() <= kFew;
  all_tried_ = few && (shell_.seating().held() == 1 || !chooses_layers());
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

Time Workbench::busiest(const std::vector<LayerRange>& cut, const std::vector<Time>& extra) {
  if (work_before_.empty()) {
    work_before_.push_back(0);
    for (const Time load : loads(pricer_.layers(), Recompute::None))
      work_before_.push_back(checked_sum(work_before_.back(), load.value, "a stage's work"));
  }
  std::int64_t most = 0;
  for (StageId k = 0; k < shell_.stages; ++k) {
    std::int64_t work = extra.empty() || shell_.recompute_except_last ? 0 : extra[at(k)].value;
    for (int i = 0; i < shell_.seating().held(); ++i) {
      const LayerRange& chunk = cut[at(shell_.seating().chunk_of(k, i))];
      work += work_before_[at(chunk.end)] - work_before_[at(chunk.begin)];
    }
    most = std::max(
        most, checked_product(work, shell_.seating().most_turns(shell_.seating().chunk_of(k, 0)), "a stage's work"));
  }
  return Time{most};
}

Time Workbench::extra(StageId k, LayerRange range) {
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
LayerId Workbench::longest(std::size_t mode, StageId k, LayerId begin) {
  const auto layers = static_cast<LayerId>(scenario_.model.layers.size());
  auto& known = longest_[mode];
  if (known.empty()) known.assign(at(shell_.stages), std::vector<LayerId>(at(layers), -1));
  LayerId& end = known[at(k)][at(begin)];
  if (end >= 0) return end;
  const LayerId guess = begin > 0 ? known[at(k)][at(begin) - 1] : begin;
  return end = longest_fit(begin, layers, guess, [&](LayerId to) { return need(mode, k, {begin, to}) <= room(k); });
}

std::optional<std::vector<LayerRange>> Workbench::fitting_chunks(std::vector<LayerRange> cut) {
  constexpr int kMostMoves = 32;
  constexpr double kByALittle = 1.15;
  for (int moves = 0; moves < kMostMoves; ++moves) {
    std::vector<Bytes> needs;
    std::vector<StageId> order;  // fullest first
    for (StageId k = 0; k < shell_.stages; ++k)
      needs.push_back(need_of_chunks(0, cut, k)), order.push_back(k);
    std::ranges::stable_sort(order, [&](StageId a, StageId b) { return needs[at(a)] > needs[at(b)]; });
    const StageId stage = order.front();
    const Bytes most = needs[at(stage)];
    if (most <= room(stage)) return cut;
    if (static_cast<double>(most.value) > kByALittle * static_cast<double>(room(stage).value)) return std::nullopt;
    Bytes best = most;
    std::vector<LayerRange> next;
    const int chunks = static_cast<int>(cut.size());
    for (int i = 0; i < shell_.seating().held() && next.empty(); ++i) {
      const VirtualStageId from = shell_.seating().chunk_of(stage, i);
      for (int to = from + 1; to < chunks && cut[at(from)].size() > 1; ++to) {
        std::vector<LayerRange> moved = cut;
        for (int c = from; c < to; ++c)
          --moved[at(c)].end, --moved[at(c) + 1].begin;
        if (const Bytes need = fullest_of_chunks(moved, order, shell_.stage_of(to), best); need < best)
          best = need, next = std::move(moved);
      }
    }
    if (next.empty()) return std::nullopt;
    cut = std::move(next);
  }
  return std::nullopt;
}

bool Workbench::fits_somehow(StageId k, LayerRange range) {
  for (std::size_t mode = modes_.size(); mode-- > 0;)
    if (need(mode, k, range) <= room(k)) return true;
  return false;
}

bool Workbench::reaches_somehow(StageId k, LayerRange range) {
  for (std::size_t mode = modes_.size(); mode-- > 0;)
    if (longest(mode, k, range.begin) >= range.end) return true;
  return false;
}

StageNeeds& Workbench::needs(std::size_t mode) {
  if (!needs_[mode]) {
    Plan plan = shell_;
    if (!fixed_) plan.recompute.assign(at(shell_.stages), modes_[mode]);
    needs_[mode] = std::make_unique<StageNeeds>(plan, cost_, pricer_.layers());
  }
  return *needs_[mode];
}

void Workbench::count(Fit& fit, StageId k, Bytes need) const {
  if (need > fit.need) fit.need = need, fit.stage = k;
  fit.level = std::max(fit.level, need + set_aside(k));
}

// What a recomputation of all layers of a range adds.
Time Workbench::added_by(std::size_t mode, LayerRange range) {
  std::vector<std::int64_t>& sums = added_before_[mode];
  if (sums.empty()) {
    const LayerCosts& layers = pricer_.layers();
    const std::vector<Layer>& model = scenario_.model.layers;
    sums.push_back(0);
    for (std::size_t i = 0; i < layers.forward.size(); ++i) {
      const bool block = modes_[mode] == Recompute::Blocks && model[i].block;
      const Time more = block ? layers.again[i] : added(layers, i, modes_[mode]);
      sums.push_back(checked_sum(sums.back(), more.value, "a recomputation"));
    }
  }
  return Time{sums[at(range.end)] - sums[at(range.begin)]};
}

Workbench::Choice Workbench::lightest_of_stage(StageId k, LayerRange range) {
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
      offer(best, {modes_[mode], {}, extra, needed, needed <= room(k), true});
    }
    if (best.fits && best.extra == Time{}) break;
  }
  return best;
}

Workbench::Choice Workbench::least_of_stage(StageId k, LayerRange range) {
  Choice best;
  for (std::size_t mode = 0; mode < modes_.size(); ++mode) {
    const Bytes needed = need(mode, k, range);
    if (best.known && needed > best.need) continue;
    Choice choice{modes_[mode], {}, {}, needed, needed <= room(k), true};
    if (mode == knapsack_)
      choice = of(needs(mode).rebuilt(k, range, needed));
    else
      choice.extra = added_by(mode, range);
    offer_least(best, std::move(choice));
  }
  best.fits = best.need <= room(k);
  return best;
}

// All stages, where each fits.
Workbench::Fit Workbench::together(const std::vector<Choice>& choices) const {
  Fit fit;
  bool all = true;
  for (std::size_t k = 0; k < choices.size(); ++k) {
    all &= choices[k].fits;
    count(fit, static_cast<StageId>(k), choices[k].need);
    fit.recompute.push_back(choices[k].recompute);
    fit.extra.push_back(choices[k].extra);
    fit.rebuilt.insert(fit.rebuilt.end(), choices[k].rebuilt.begin(), choices[k].rebuilt.end());
  }
  std::ranges::sort(fit.rebuilt);
  if (fixed_) fit.recompute = shell_.recompute, fit.rebuilt = shell_.rebuilt;
  if (!all) fit.recompute.clear(), fit.rebuilt.clear();
  return fit;
}

// What the chunks of stage k need. Ranges of its own decide that where nothing else of the cut does: neighbouring cuts ask
// for the same again and again.
Bytes Workbench::need_of_chunks(std::size_t mode, const std::vector<LayerRange>& cut, StageId k) {
  const auto need = [&] {
    Plan plan = shell_;
    plan.layers = cut;
    if (!fixed_) plan.recompute.assign(at(shell_.stages), modes_[mode]);
    const MemoryModel memory = memory_of_stage(plan, cost_, sizes(), k);
    return core::need(memory, peak(memory, walked(plan), plan.seating().first_position(k)).bytes, k).to_fit;
  };
  if (!alone_) return need();
  std::vector<int> ranges = {static_cast<int>(mode), k};
  for (int i = 0; i < shell_.seating().held(); ++i) {
    const LayerRange range = cut[at(shell_.seating().chunk_of(k, i))];
    const bool alike = run_ && range.begin >= run_->begin && range.end <= run_->end;  // wherever in the run it lies
    const int begin = alike ? run_->begin : range.begin;
    ranges.push_back(begin), ranges.push_back(begin + range.size());
  }
  const auto [known, absent] = needs_of_chunks_.try_emplace(std::move(ranges));
  if (absent) known->second = need();
  return known->second;
}

// The most that a stage needs with the lightest recomputation. They are asked in this order, the fullest and the one that
// has got a layer first, and none after one that needs `enough`.
Bytes Workbench::fullest_of_chunks(const std::vector<LayerRange>& cut, const std::vector<StageId>& order,
                                   StageId receiver, Bytes enough) {
  Bytes most = need_of_chunks(0, cut, order.front());
  const auto ask = [&](StageId k) {
    if (most < enough) most = std::max(most, need_of_chunks(0, cut, k));
  };
  if (receiver != order.front()) ask(receiver);
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i] != receiver) ask(order[i]);
  return most;
}

Workbench::Fit Workbench::fit_of_chunks(const std::vector<LayerRange>& cut, Aim aim) {
  std::vector<Choice> choices(at(shell_.stages));
  Plan plan = shell_;
  plan.layers = cut;
  for (std::size_t mode = 0; mode < modes_.size(); ++mode) {
    const auto settled = [&](StageId k) {
      const Choice& best = choices[at(k)];
      return aim == Aim::Lightest && best.fits &&
             (best.extra == Time{} || (mode != knapsack_ && added_on(mode, cut, k) >= best.extra));
    };
    if (!fixed_) plan.recompute.assign(at(shell_.stages), modes_[mode]);
    for (StageId k = 0; k < shell_.stages; ++k) {
      if (settled(k)) continue;
      Choice choice;
      if (mode == knapsack_) {
        const Schedule& schedule = walked(plan);
        choice = of(aim == Aim::Least ? least_need_of_stage(plan, cost_, sizes(), schedule, k)
                                      : rebuild_stage(plan, cost_, sizes(), schedule, k, room(k)));
      } else {
        const Bytes needed = need_of_chunks(mode, cut, k);
        choice = {modes_[mode], {}, added_on(mode, cut, k), needed, needed <= room(k), true};
      }
      (aim == Aim::Least ? offer_least : offer)(choices[at(k)], std::move(choice));
      if (aim == Aim::Least) choices[at(k)].fits = choices[at(k)].need <= room(k);
    }
  }
  return together(choices);
}

const std::array<LayerCosts, 2>& Workbench::sizes() {
  if (!sizes_) sizes_ = {pricer_.layers(), pricer_.layers()};
  return *sizes_;
}

Time Workbench::added_on(std::size_t mode, const std::vector<LayerRange>& cut, StageId k) {
  Time sum;
  for (int i = 0; i < shell_.seating().held(); ++i)
    sum = checked_sum(sum, added_by(mode, cut[at(shell_.seating().chunk_of(k, i))]));
  return sum;
}

Time Workbench::simulated(const std::vector<LayerRange>& cut, const Fit& fit) {
  ++simulations_;
  const StepCosts costs = pricer_.costs(cut, fit.recompute, fit.rebuilt);
  return makespan_(costs);
}

// Stages that recompute, fit with full recomputation, and could do that much more work in less than `best`.
std::vector<StageId> Workbench::may_run_early(const std::vector<LayerRange>& cut, const Fit& fit, Time best) {
  std::vector<StageId> stages;
  const auto full = std::ranges::find(modes_, Recompute::Full);
  if (fixed_ || full == modes_.end()) return stages;
  const auto mode = at(full - modes_.begin());
  for (StageId k = 0; k < shell_.stages; ++k) {
    if (fit.recompute[at(k)] == Recompute::None || fit.recompute[at(k)] == Recompute::Full) continue;
    std::vector<Time> extra(at(shell_.stages));
    extra[at(k)] = added_on(mode, cut, k);
    if (busiest(cut, extra) < best && need_in_full(cut, k) <= room(k)) stages.push_back(k);
  }
  return stages;
}

Bytes Workbench::need_in_full(const std::vector<LayerRange>& cut, StageId k) {
  Plan plan = shell_;
  plan.layers = cut;
  plan.recompute.assign(at(shell_.stages), Recompute::Full);
  const MemoryModel memory = memory_of_stage(plan, cost_, sizes(), k);
  return core::need(memory, peak(memory, walked(plan), plan.seating().first_position(k)).bytes, k).to_fit;
}

void Workbench::make_full(Fit& fit, const std::vector<LayerRange>& cut, StageId k) {
  fit.recompute[at(k)] = Recompute::Full;
  for (int i = 0; i < shell_.seating().held(); ++i)
    std::erase_if(fit.rebuilt, [range = cut[at(shell_.seating().chunk_of(k, i))]](LayerId layer) {
      return layer >= range.begin && layer < range.end;
    });
  count(fit, k, need_in_full(cut, k));
}

// The schedule for a walk over the memory, which repeats itself once the pipeline is full.
const Schedule& Workbench::walked(const Plan& plan) {
  const bool full = std::ranges::find(plan.recompute, Recompute::Full) != plan.recompute.end();
  Schedule& known = walked_[full ? 1 : 0];
  if (known.positions.empty()) {
    ScheduleShape shape = schedule_shape(plan, scenario_.model, scenario_.training);
    shape.buckets.clear();
    if (rule_->bounded_in_flight && !plan.recompute_except_last)
      shape.micro_batches = std::min(shape.micro_batches, 4 * shape.stages);
    known = rule_->generate(shape);
  }
  return known;
}
}  // namespace pipewright::planner
