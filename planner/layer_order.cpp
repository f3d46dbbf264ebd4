#include "planner/layer_order.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/graph_cut.hpp"
#include "planner/partitioners/min_max.hpp"
#include "planner/plan_errors.hpp"
#include "planner/search/candidate.hpp"
#include "planner/search/deadline.hpp"
#include "planner/search/found.hpp"
#include "planner/search/merged.hpp"
#include "planner/search/replicas.hpp"
#include "planner/search/space.hpp"

namespace pipewright::planner {
namespace {

constexpr double kNoBound = std::numeric_limits<double>::infinity();

std::vector<LayerId> as_it_stands(const Model& model) {
  std::vector<LayerId> order(model.layers.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// A path through all layers: they have one order only.
bool one_order_only(const Model& model) {
  for (LayerId i = 1; i < std::ssize(model.layers); ++i) {
    const auto& inputs = model.layers[i].inputs;
    if (std::ranges::find(inputs, LayerId{i - 1}) == inputs.end()) return false;
  }
  return true;
}

// Every down-set then passes something on, so that stages follow one another whatever the order.
bool connected(const Model& model) {
  std::vector<std::size_t> root(model.layers.size());
  std::iota(root.begin(), root.end(), std::size_t{0});
  const auto root_of = [&](std::size_t layer) {
    while (root[layer] != layer)
      layer = root[layer] = root[root[layer]];
    return layer;
  };
  std::size_t parts = root.size();
  for (LayerId i = 0; i < std::ssize(root); ++i)
    for (const LayerId input : model.layers[i].inputs)
      if (const std::size_t a = root_of(at(i)), b = root_of(at(input)); a != b) root[a] = b, --parts;
  return parts <= 1;
}

std::string milliseconds(Time time) {
  return fmt::format("{:.4g} ms", static_cast<double>(time.value) * 1e-6);
}

// Forward + backward of every layer, with what a recomputation adds that all stages have.
std::vector<Time> work_of(const LayerCosts& layers, Recompute recompute) {
  std::vector<Time> work;
  for (std::size_t i = 0; i < layers.forward.size(); ++i) {
    work.push_back(checked_sum(layers.forward[i], layers.backward[i]));
    if (recompute == Recompute::Full) work.back() = checked_sum(work.back(), layers.forward[i]);
    if (recompute == Recompute::Selective) work.back() = checked_sum(work.back(), layers.rebuild[i]);
  }
  return work;
}

const Place& place_of_order(const Scenario& scenario) {
  return or_else(scenario.plan.order.place, scenario.plan.place);
}

void check_partition(const Scenario& scenario) {
  const PlanRequest& plan = scenario.plan;
  refuse_classes(scenario.cluster, place_of_order(scenario), "plan.order: graph");
  if (std::holds_alternative<LayerCounts>(plan.partition.value) ||
      std::holds_alternative<CutLayers>(plan.partition.value))
    throw InputError(place_of_order(scenario), "plan.order",
                     "graph chooses the order by where its best cut lies, and plan.partition gives the "
                     "cuts; list the order, or write partition: balanced");
  const std::vector<Recompute>& modes = plan.recompute.value;
  if (std::ranges::find(modes, Recompute::Layers) != modes.end())
    throw InputError(place_of_order(scenario), "plan.order",
                     "graph chooses the order, and plan.recompute lists layers by their place in it; list "
                     "the order, or write recompute: knapsack");
  if (asks_for_replicas(scenario))
    throw InputError(place_of_order(scenario), "plan.order",
                     "graph is for a number of stages without replicas of their own, and this plan leaves "
                     "both to the planner; write another partition (and no replicas: auto), or order: model");
}

Scenario with_order(const Scenario& scenario, LayerOrder::Kind kind, const std::vector<LayerId>& order) {
  Scenario result = scenario;
  result.plan.order.value = {kind, order};
  result.model = reordered(as_given(scenario.model), order);
  return result;
}

class OrderSearch {
 public:
  OrderSearch(const Scenario& scenario, const SearchOptions& options)
      : scenario_(with_order(scenario, LayerOrder::Kind::Listed, as_it_stands(scenario.model))), options_(options) {}

  SearchResult answer() {
    find_orders();
    SearchResult model = search_settled(scenario_, within_time());
    merged_.take(model);
    for (const auto& [order, stages] : stages_of_) {
      if (deadline_.over()) {
        merged_.one_is_left_out();
        break;
      }
      auto there = search_settled(restricted(order, stages), within_time());
      merged_.take(there);
    }
    if (!merged_.any() && deadline_.ended() != Ended::No && std::holds_alternative<Infeasible>(model))
      return NoPlanYet{deadline_.ended(),
                       space_.layouts,
                       0,
                       {"in the model's order no plan fits; not all other orders were looked at"}};
    if (!merged_.any()) return model;  // why there is none
    finish();
    return std::move(merged_.answer());
  }

 private:
  // stages, tensor_parallel, sequence_parallel, context_parallel, expert_parallel, micro_batch_size
  using Key = std::tuple<int, int, bool, int, int, std::int64_t>;
  static Key key(const Layout& layout) {
    return {layout.stages,           layout.tensor_parallel, layout.sequence_parallel,
            layout.context_parallel, layout.expert_parallel, layout.micro_batch_size};
  }

  SearchOptions within_time() const {
    SearchOptions options = options_;
    options.time_limit = std::max(deadline_.left(), options_.time_limit * 0.1);
    return options;
  }

  // By number of stages, the largest first, the order of its first layout; and the least bottleneck of every other
  // micro-batch. As far as half of the time goes: what is not reached keeps the model's order.
  void find_orders() {
    const std::vector<Recompute>& asked = scenario_.plan.recompute.value;
    const bool everywhere =
        asked.size() == 1 && !is_open(scenario_, "recompute") && !scenario_.plan.recompute_except_last;
    std::map<Key, const Layout*, std::greater<>> layouts;
    for (const LayoutGroup& group : space_.groups)
      layouts.emplace(key(group.first), &group.first);
    for (const auto& [key, layout] : layouts) {
      if (deadline_.left() < options_.time_limit / 2 || deadline_.asked_to_stop()) break;
      const LayerCosts costs = evaluator_.cost(*layout).layers(layout->micro_batch_size);
      OrderFound found = best_order(scenario_.model, work_of(costs, everywhere ? asked.front() : Recompute::None),
                                    std::vector<int>(at(layout->stages), 1));
      bounds_.emplace(key, found.lower_bound);
      const auto [first, absent] = by_stages_.try_emplace(layout->stages, std::move(found));
      if (absent && first->second.better()) stages_of_[first->second.order].insert(layout->stages);
    }
  }

  Scenario restricted(const std::vector<LayerId>& order, const std::set<int>& stages) const {
    Scenario result = with_order(scenario_, LayerOrder::Kind::Listed, order);
    if (const auto open = result.plan.open.find("stages"); open != result.plan.open.end()) {
      open->second.among.clear();
      for (const int each : stages)
        open->second.among.push_back(std::to_string(each));
    }
    return result;
  }

  // Of layouts in both orders the better plan stays.
  void finish() {
    SearchAnswer& all = merged_.answer();
    const double least_value = merged_.rank(options_);
    if (all.ended == Ended::No) all.ended = deadline_.ended();
    const bool one_order = stages_of_.empty() && one_order_only(scenario_.model);
    const double bound = (one_order || !evaluator_.cuts_open()) && merged_.all_bounded()
                             ? merged_.least_bound()
                             : std::min(merged_.least_bound(), bound_of_all_orders());
    all.bound = std::min(bound, least_value);
    all.gap_left = gap_of_orders(all);
    const Found& best = all.plans.front();
    all.idle_devices = scenario_.cluster.devices() - best.plan.devices();
    const auto& order = best.scenario->model.order;
    const auto found = by_stages_.find(best.layout.stages);
    all.order = found == by_stages_.end() ? "the model's: the time was not enough to look for others"
                                          : found->second.how(std::ranges::is_sorted(order));
  }

  // Where one order is all, its search has said it.
  std::string gap_of_orders(const SearchAnswer& all) const {
    if (all.ended != Ended::No || all.proven() || (all.bound > 0 && all.gap() <= options_.gap)) return "";
    if (!all.gap_left.empty() && all.bound >= merged_.least_bound()) return all.gap_left;
    return "bounds that hold for every order of the layers are those of the work and of the largest stage alone";
  }

  // Evaluator::bound knows no order where stages follow one another in all of them; the largest stage has a bound of
  // its own, whatever the cut.
  double bound_of_all_orders() {
    const bool in_line = connected(scenario_.model) || scenario_.plan.skips == Skips::Direct;
    double least = kNoBound;
    try {
      for (const LayoutGroup& group : space_.groups)
        for (const Layout& layout : members(group)) {
          Time time = in_line ? evaluator_.bound(layout) : Time{};
          if (const auto found = bounds_.find(key(layout)); found != bounds_.end() && layout.virtual_stages == 1)
            time = std::max(time, Time{checked_product(found->second.value, layout.micro_batches, "a bound")});
          const Bytes states = options_.objective == Objective::Memory ? evaluator_.least_states(layout) : Bytes{};
          least = std::min(least, objective_value(options_.objective, layout, scenario_, time, states));
        }
    } catch (const OverflowError&) {
      return 0;
    }
    return least;
  }

  const Scenario scenario_;  // in the model's order
  const SearchOptions& options_;
  const Space space_ = layouts_of(scenario_, options_.within);
  Evaluator evaluator_{scenario_};
  Deadline deadline_ = Deadline(options_.time_limit, options_.stop);
  std::map<Key, Time> bounds_;                               // least bottleneck of all orders
  std::map<int, OrderFound> by_stages_;                      // of the first layout of so many stages
  std::map<std::vector<LayerId>, std::set<int>> stages_of_;  // orders better than the model's, and for which stages
  MergedSearches merged_;
};

}  // namespace

std::string OrderFound::how(bool keeps_the_models) const {
  if (bottleneck == Time{}) return "the model's: " + proof;
  const std::string least = milliseconds(bottleneck), given = milliseconds(as_given);
  if (!better()) return fmt::format("the model's, largest stage {} per micro-batch; {}", given, proof);
  if (keeps_the_models)
    return fmt::format(
        "the model's, largest stage {} per micro-batch; with the one of which it is {} a plan is slower; "
        "{}",
        given, least, proof);
  return fmt::format("the graph's, largest stage {} per micro-batch, {} in the model's order; {}", least, given, proof);
}

OrderFound best_order(const Model& model, const std::vector<Time>& work, const std::vector<int>& replicas,
                      std::int64_t most_down_sets) {
  const GraphProblem problem{.compute = work, .replicas = replicas, .most_down_sets = most_down_sets};
  OrderFound found{as_it_stands(model), {}, bottleneck_of(model, problem, min_max(work, replicas)), {}, ""};
  found.bottleneck = found.lower_bound = found.as_given;
  if (one_order_only(model)) {
    found.proof = "each layer uses the one before it, so there is no other order";
    return found;
  }
  const std::optional<GraphCut> cut = graph_cut(model, problem);
  if (!cut) {
    found.lower_bound = {};
    found.proof = "fewer layers have work than there are stages, so no other was looked for";
    return found;
  }
  found.lower_bound = std::min(cut->lower_bound, found.as_given);
  if (cut->bottleneck < found.as_given) found.order = cut->order, found.bottleneck = cut->bottleneck;
  found.proof = found.bottleneck <= found.lower_bound
                    ? "exact: no order and no cut has a smaller one"
                    : fmt::format("not exact: at least {} in any order", milliseconds(found.lower_bound));
  if (cut->down_sets > 0) found.proof += fmt::format(" ({} down-sets)", cut->down_sets);
  if (found.bottleneck > found.lower_bound) found.proof += "; " + cut->how;
  return found;
}

InOrder in_graph_order(std::shared_ptr<const Scenario> scenario) {
  const PlanRequest& plan = scenario->plan;
  if (plan.order.value.kind != LayerOrder::Kind::Graph) return {std::move(scenario), ""};
  check_partition(*scenario);
  const auto shared =
      std::make_shared<const Scenario>(with_order(*scenario, LayerOrder::Kind::Graph, as_it_stands(scenario->model)));
  const Scenario& given = *shared;
  const auto layers = static_cast<std::int64_t>(given.model.layers.size());
  const auto as_it_is = [&] { return InOrder{shared, ""}; };
  if (plan.stages.value < 1 || plan.virtual_stages.value < 1 || plan.stages.value > layers ||
      plan.virtual_stages.value > layers / plan.stages.value)
    return as_it_is();
  std::vector<int> replicas(at(plan.stages.value * plan.virtual_stages.value), 1);
  if (!plan.replicas.value.empty()) {
    if (plan.replicas.value.size() != replicas.size()) return as_it_is();
    for (std::size_t k = 0; k < replicas.size(); ++k)
      replicas[k] = static_cast<int>(std::clamp<std::int64_t>(plan.replicas.value[k], 1, given.cluster.devices()));
  }
  try {
    const CostModel cost(shared);
    const std::int64_t samples = batch_split(given.training, plan.data_parallel.value).micro_batch_size;
    const OrderFound found = best_order(given.model, work_of(cost.layers(samples), Recompute::None), replicas);
    return {std::make_shared<const Scenario>(with_order(given, LayerOrder::Kind::Graph, found.order)),
            "order of layers: " + found.how()};
  } catch (const OverflowError&) {
    throw;
  } catch (const InputError&) {
    return as_it_is();
  }
}

SearchResult search_orders(const Scenario& scenario, const SearchOptions& options) {
  check_partition(scenario);
  if (!scenario.plan.replicas.value.empty())
    throw InputError(place_of_order(scenario), "plan.order",
                     "graph finds orders for stages without replicas here, and plan.replicas is given; "
                     "leave one of them out, or list the order");
  return OrderSearch(scenario, options).answer();
}

}  // namespace pipewright::planner
