#include "planner/search/explain.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include "core/check.hpp"
#include "core/cost/step_pricer.hpp"
#include "planner/search/deadline.hpp"
#include "planner/search/found.hpp"
#include "planner/search/space.hpp"
#include "planner/search/switches.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"

namespace pipewright::planner {
namespace {

constexpr double kWidest = 16;           // times today's bandwidth
constexpr double kWorthASwitch = 1.005;  // a better plan must be better by more than this
constexpr std::size_t kMostInPool = 24;
constexpr int kEnds = 2, kStepsEachWay = 8;  // of a bandwidth: short searches; steps of the square root of two
constexpr int kStepsOfOne = kEnds + 2 * kStepsEachWay;

struct Choice {
  Layout layout;
  Plan plan;
};

// Seconds per sample of a plan on a changed cluster, by fixed orders.
double per_sample(const Scenario& changed, const Choice& choice) {
  const CostModel cost(std::make_shared<const Scenario>(settled(changed, choice.layout, &choice.plan)));
  StepPricer pricer(choice.plan, cost);
  const StepCosts costs = pricer.costs(choice.plan.layers, choice.plan.recompute, choice.plan.rebuilt);
  const Schedule schedule = find_schedule(choice.plan.schedule)->generate(costs.shape);
  return seconds(static_order_makespan(schedule, costs)) / static_cast<double>(choice.layout.global_batch());
}

using Widen = std::function<void(Scenario&, double)>;

Scenario at_factor(const Scenario& scenario, const Widen& widen, double factor) {
  Scenario changed = scenario;
  widen(changed, factor);
  return changed;
}

bool priced_by_fixed_orders(const Plan& plan) {
  const ScheduleRule* rule = find_schedule(plan.schedule);
  return rule != nullptr && rule->flush && plan.last_micro_batch_size == plan.micro_batch_size;
}

// Time and patience for one of the questions below, and how far they all are.
class Patience {
 public:
  Patience(const SearchOptions& options, int question, int questions)
      : options_(options), before_(question * kStepsOfOne), all_(questions * kStepsOfOne) {}

  // Step number `step` of this question begins.
  void at(int step) {
    step_ = step;
    tell();
  }
  void tell() const {
    if (options_.progress) options_.progress({"flips", before_ + step_, all_, 0});
  }
  bool over() {
    tell();
    return deadline_.over();
  }

 private:
  const SearchOptions& options_;
  int before_, all_, step_ = 0;
  Deadline deadline_ = Deadline(options_.time_limit, options_.stop);
};

std::vector<Choice> pool_of(const Scenario& scenario, const SearchOptions& options, const SearchAnswer& answer,
                            const Widen& widen, Patience& patience) {
  std::vector<Choice> pool;
  const auto add = [&](const Layout& layout, const Plan& plan) {
    const auto known = [&](const Choice& choice) {
      return choice.layout == layout && choice.plan.layers == plan.layers;
    };
    const bool replicas = std::ranges::any_of(plan.replicas, [](int r) { return r > 1; });
    if (!replicas && priced_by_fixed_orders(plan) && std::ranges::none_of(pool, known)) pool.push_back({layout, plan});
  };
  for (const Found& found : answer.plans)
    add(found.layout, found.plan);
  for (const Candidate& candidate : answer.candidates)
    if (pool.size() < kMostInPool) add(candidate.layout, candidate.plan);
  SearchOptions quick = options;
  quick.top = 1, quick.gap = 0.02, quick.time_limit = 2, quick.most_simulations = 50;
  quick.keep_going = quick.remedies = false;
  quick.progress = [&](const Progress&) { patience.tell(); };
  int end = 0;
  for (const double factor : {1 / kWidest, kWidest}) {
    patience.at(end++);
    const Scenario changed = at_factor(scenario, widen, factor);
    const auto found = search(changed, quick);
    if (const auto* there = std::get_if<SearchAnswer>(&found))
      for (std::size_t i = 0; i < std::min<std::size_t>(3, there->candidates.size()); ++i)
        add(there->candidates[i].layout, there->candidates[i].plan);
  }
  return pool;
}

struct Rival {
  std::size_t number;
  double gain;  // over the first of the pool
};

std::optional<Rival> better_one(const Scenario& changed, const std::vector<Choice>& pool, Patience& patience) {
  const double today = per_sample(changed, pool.front());
  Rival best{0, kWorthASwitch};
  for (std::size_t i = 1; i < pool.size() && !patience.over(); ++i)
    if (const double there = per_sample(changed, pool[i]); there > 0 && today / there > best.gain)
      best = {i, today / there};
  if (best.number == 0) return std::nullopt;
  return best;
}

// From today's bandwidth to one end, in steps of the square root of two; then by halves.
std::optional<Flip> flip_towards(const Scenario& scenario, const std::vector<Choice>& pool, const Widen& widen,
                                 bool below, Patience& patience) {
  const double step = below ? 1 / std::sqrt(2.0) : std::sqrt(2.0);
  double before = 1;
  for (int i = 1; i <= kStepsEachWay; ++i) {
    patience.at(kEnds + (below ? 0 : kStepsEachWay) + i - 1);
    const double factor = std::pow(step, i);
    if (!better_one(at_factor(scenario, widen, factor), pool, patience)) {
      before = factor;
      continue;
    }
    double stays = before, flips = factor;
    while (std::max(stays / flips, flips / stays) > 1.01) {
      const double middle = std::sqrt(stays * flips);
      (better_one(at_factor(scenario, widen, middle), pool, patience) ? flips : stays) = middle;
    }
    const auto rival = better_one(at_factor(scenario, widen, flips), pool, patience);
    if (!rival || patience.over()) return std::nullopt;
    const auto further = flips * (below ? 0.5 : 2);
    const Scenario there = at_factor(scenario, widen, further);
    Flip flip;
    flip.below = below, flip.at = {flips};
    flip.plan = pool[rival->number].layout;
    flip.gain = per_sample(there, pool.front()) / per_sample(there, pool[rival->number]);
    return flip;
  }
  return std::nullopt;
}

void explain_one(const Scenario& scenario, const SearchOptions& options, SearchAnswer& answer, const std::string& what,
                 Bandwidth today, const Widen& widen, Patience patience) {
  const std::vector<Choice> pool = pool_of(scenario, options, answer, widen, patience);
  if (pool.empty()) return;
  bool any = false;
  for (const bool below : {true, false})
    if (auto flip = flip_towards(scenario, pool, widen, below, patience)) {
      any = true;
      flip->what = what;
      flip->at = {flip->at.value * today.value};
      answer.flips.push_back(*flip);
    }
  if (!any && !patience.over()) answer.unmoved.push_back({what, {today.value / kWidest}, {today.value * kWidest}});
}

double value_on(const std::string& axis, const Found& found) {
  const double time = 1 / found.report.samples_per_s;
  if (axis == "time") return time;
  if (axis == "memory") return static_cast<double>(found.to_fit.value);
  return time * price_per_hour(found.plan, *found.scenario);
}

void keep_unbeaten(std::vector<Found>& plans, const std::vector<std::string>& axes) {
  std::vector<char> beaten(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i)
    for (std::size_t j = 0; j < plans.size(); ++j) {
      bool worse = false, better = false;
      for (const std::string& axis : axes) {
        const double mine = value_on(axis, plans[i]), other = value_on(axis, plans[j]);
        worse |= other < mine, better |= mine < other;
      }
      if (!better && (worse || j < i)) beaten[i] = 1;
    }
  std::vector<Found> kept;
  for (std::size_t i = 0; i < plans.size(); ++i)
    if (beaten[i] == 0) kept.push_back(std::move(plans[i]));
  plans = std::move(kept);
}

}  // namespace

void explain_bandwidth(const Scenario& scenario, const SearchOptions& options, SearchAnswer& answer) {
  const Cluster& cluster = scenario.cluster;
  if (scenario.plan.order.value.unsettled()) return;  // its plans cut different orders of the layers
  if (asks_for_switches(scenario)) return;            // nor are its candidates those of one scenario
  const Plan& best = answer.plans.front().plan;
  if (!priced_by_fixed_orders(best)) return;                                    // asynchronous: no step of fixed orders
  if (std::ranges::any_of(best.replicas, [](int r) { return r > 1; })) return;  // nor with replicas
  const bool network = cluster.nodes > 1 && cluster.network && !cluster.network->ideal;
  const bool links = cluster.devices_per_node > 1 && cluster.links.kind != LinkKind::Ideal;
  const int questions = (network ? 1 : 0) + (links ? 1 : 0);
  if (network)
    explain_one(
        scenario, options, answer, "network bandwidth", cluster.network->bandwidth,
        [](Scenario& changed, double factor) { changed.cluster.network->bandwidth.value *= factor; },
        Patience(options, 0, questions));
  if (links)
    explain_one(
        scenario, options, answer, "link bandwidth inside a node", cluster.links.bandwidth,
        [](Scenario& changed, double factor) { changed.cluster.links.bandwidth.value *= factor; },
        Patience(options, questions - 1, questions));
}

void check_pareto_axes(const std::vector<std::string>& axes) {
  constexpr std::array<std::string_view, 2> known = {"memory", "cost"};
  for (const std::string& axis : axes)
    if (std::ranges::find(known, axis) == known.end()) throw InputError(Place{}, "--pareto", unknown_name(axis, known));
}

void add_pareto(const Scenario& scenario, const std::vector<std::string>& axes, const SearchOptions& options,
                SearchAnswer& answer) {
  check_pareto_axes(axes);
  answer.pareto_axes = {"time"};
  answer.pareto_axes.insert(answer.pareto_axes.end(), axes.begin(), axes.end());
  std::vector<Found> all = answer.plans;
  SearchOptions each = options;
  each.top = 3, each.objective = Objective::Throughput;
  each.remedies = false;
  const auto look = [&](const Scenario& changed) {
    if (options.stop && options.stop()) return false;
    const auto found = search(changed, each);
    if (const auto* there = std::get_if<SearchAnswer>(&found))
      for (Found plan : there->plans) {
        auto answered = std::make_shared<Scenario>(*plan.scenario);
        Cluster& cluster = answered->cluster;  // less was asked for than there is
        cluster.device.memory = scenario.cluster.device.memory;
        for (std::size_t c = 0; c < cluster.others.size(); ++c)
          cluster.others[c].device.memory = scenario.cluster.others[c].device.memory;
        plan.scenario = std::move(answered);
        all.push_back(std::move(plan));
      }
    return std::holds_alternative<SearchAnswer>(found);
  };
  if (std::ranges::find(axes, "memory") != axes.end())
    for (const int eighths : {6, 4, 3, 2}) {
      Scenario changed = scenario;
      const Bytes less{answer.plans.front().to_fit.value / 8 * eighths};
      each_device(changed.cluster, [&](Device& device) { device.memory = std::min(device.memory, less); });
      if (!look(changed)) break;
    }
  if (std::ranges::find(axes, "cost") != axes.end())
    for (Scenario changed = scenario; changed.cluster.devices() > 1;) {
      if (!changed.cluster.others.empty()) {
        changed.cluster.nodes -= changed.cluster.others.back().nodes;
        changed.cluster.others.pop_back();
        if (!look(changed)) break;
        continue;
      }
      int& count = changed.cluster.nodes > 1 ? changed.cluster.nodes : changed.cluster.devices_per_node;
      if (count < 2) break;
      count /= 2;
      if (!look(changed)) break;
    }
  keep_unbeaten(all, answer.pareto_axes);
  std::ranges::stable_sort(
      all, [](const Found& a, const Found& b) { return a.report.samples_per_s > b.report.samples_per_s; });
  answer.pareto = std::move(all);
}

}  // namespace pipewright::planner
