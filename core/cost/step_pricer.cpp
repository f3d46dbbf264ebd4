// What step_costs does for one plan, for many cuts of it: layers are priced once, groups when they are first asked for.
#include "core/cost/step_pricer.hpp"

#include <algorithm>
#include <utility>

#include "core/cost/amax_reductions.hpp"
#include "core/cost/host_copies.hpp"
#include "core/cost/messages.hpp"
#include "core/cost/moves.hpp"
#include "core/cost/op_durations.hpp"
#include "core/cost/simulated_copies.hpp"
#include "core/cost/table_exchange.hpp"

namespace pipewright::core {
namespace {

Collective without_phases(Collective collective) {
  collective.phases.clear();
  return collective;
}

}  // namespace

StepPricer::StepPricer(Plan shell, const CostModel& cost)
    : plan_(std::move(shell)), cost_(cost), full_(cost.layers(plan_.micro_batch_size)) {
  PP_CHECK(plan_.last_micro_batch_size == plan_.micro_batch_size);
  PP_CHECK(cost.scenario().cluster.classes() == 1);
  over_ = tensors_over_cuts(cost.scenario().model, full_.activation);
  fold_ = fold_copies(plan_, cost, Alike::InTime);
  for (int slice = 0; plan_.uneven_slices() && slice < plan_.slices->value; ++slice)
    slices_.push_back(cost.layers(plan_.micro_batch_size, 0, 0, slice));
  sending_ = std::make_shared<Sending>(plan_, cost.scenario().cluster, cost.topology());
  amax_reductions_ = amax_reductions(plan_, cost);
  exchanges_.resize(at(plan_.stages));
  prices_.resize(exchanges_.size()), gathers_.resize(exchanges_.size());
}

const StateExchange& StepPricer::exchange(StageId k) {
  std::shared_ptr<const StateExchange>& known = exchanges_[at(k)];
  if (known) return *known;
  std::vector<DeviceId> place = members(plan_, plan_.seating().chunk_of(k, 0));
  const int period = cost_.topology().period(), before = place.front() / period * period;
  for (DeviceId& device : place)
    device -= before;
  place.push_back(plan_.sharded_over(k));
  std::shared_ptr<const StateExchange>& alike = alike_[std::move(place)];
  if (!alike) alike = std::make_shared<const StateExchange>(plan_, k, cost_);
  return *(known = alike);
}

StepCosts StepPricer::costs(const std::vector<LayerRange>& layers, const std::vector<Recompute>& recompute,
                            const std::vector<LayerId>& rebuilt) {
  const Scenario& scenario = cost_.scenario();
  plan_.layers = layers, plan_.recompute = recompute, plan_.rebuilt = rebuilt;
  StepCosts costs;
  costs.shape = schedule_shape(plan_, scenario.model, scenario.training);
  const SimulatedCopies placed(plan_, cost_.topology(), fold_.get());
  costs.shape.data_parallel = placed.count();
  costs.duration = op_durations(plan_, OnStages{full_}, cost_, amax_reductions_);
  costs.duration_last = costs.duration;
  for (const LayerCosts& slice : slices_)
    costs.slices.push_back({op_durations(plan_, OnStages{slice}, cost_, amax_reductions_),
                            ready_before_end(plan_, cost_, OnStages{slice})});
  EdgeTraffic tensors = edge_traffic(plan_, scenario.model, full_.activation, over_);
  costs.edges = std::move(tensors.edges);
  check_pairs(costs, scenario.plan.replicas.place);
  lay_messages(
      costs, tensors.bytes, tensors.bytes,
      [&](WorkerId from, WorkerId to) { return cost_.topology().route(placed.device(from), placed.device(to)); },
      [&](Bytes bytes, WorkerId from, WorkerId to) {
        return (*sending_)(bytes, placed.device(from), placed.device(to));
      });
  if (scenario.cost == CostSourceKind::Profile) add_handing_over(costs, cost_.source(), tensors.bytes, tensors.bytes);
  add_all_reduces(costs);
  for (const TiedTable& one : tied_tables(plan_, scenario.model))
    costs.tied.push_back(table(one));
  if (costs.shape.norm && !norm_) norm_ = without_phases(norm_of_gradients(plan_, cost_));
  if (costs.shape.norm) costs.norm = *norm_;
  for (auto* const duration : {&costs.duration, &costs.duration_last})
    delay_late_gathers(costs, *duration, plan_, cost_, OnStages{full_});
  price_moves(
      costs, plan_, cost_, [&](WorkerId from, WorkerId to) { return placed.route(from, to); },
      [&](WorkerId worker) { return placed.device(worker); });
  price_host_copies(costs, plan_, cost_);
  for (auto* const copies : {&costs.moves, &costs.host_copies})
    for (Collective& one : *copies)
      one.phases.clear();
  costs.ready_before_end = ready_before_end(plan_, cost_, OnStages{full_});
  return costs;
}

std::vector<Time> StepPricer::fastest_hops() const {
  std::vector<Time> hops(full_.forward.size());
  if (plan_.skips == Skips::Direct || plan_.stages < 2) return hops;
  std::vector<Route> routes;
  const int positions = plan_.positions();
  const SimulatedCopies placed(plan_, cost_.topology(), fold_.get());
  for (int copy = 0; copy < placed.count(); ++copy)
    for (int k = 0; k + 1 < positions; ++k) {
      const DeviceId here = placed.device(copy * positions + k), next = placed.device(copy * positions + k + 1);
      routes.push_back(cost_.topology().route(here, next));
      routes.push_back(cost_.topology().route(next, here));
    }
  const int shares = plan_.scatter_gather ? plan_.tensor_parallel : 1;
  for (std::size_t i = 0; i + 1 < hops.size(); ++i) {
    if (over_.count[i + 1] == Bytes{}) continue;
    Time fastest = kNever;
    const Bytes sent{over_.bytes[i + 1].value / shares};  // at least; what the receivers gather comes on top
    for (const Route& route : routes) {
      const Time transfer = route.bandwidth.value > 0 ? transfer_time(sent, route.bandwidth) : Time{};
      fastest = std::min(fastest, checked_sum(transfer, route.latency));
    }
    hops[i] = fastest;
  }
  return hops;
}

void StepPricer::add_all_reduces(StepCosts& costs) {
  const Scenario& scenario = cost_.scenario();
  if (!costs.shape.seating().any_reduced()) return;
  costs.collectives.resize(plan_.layers.size());
  resize_gathers(costs, plan_);
  const bool few = plan_.resharding && plan_.resharding->over > 0;
  for (int v = 0; v < plan_.chunks(); ++v) {
    const StageId stage = plan_.stage_of(v);
    if (!costs.shape.seating().reduced(v)) continue;
    for (const Bucket& bucket : buckets(plan_, v, scenario.model, scenario.training))
      costs.collectives[static_cast<std::size_t>(v)].push_back({bucket.bytes, all_reduce(stage, bucket), {}});
    if (costs.shape.updated == UpdatedParts::BesideForwards) {
      auto [first, second] = beside_forward(plan_, v, cost_, OnStages{full_},
                                            [&](StageId k, const auto& weights) { return gather(k, weights); });
      costs.gathers[v] = without_phases(std::move(first)), costs.other_gathers[v] = without_phases(std::move(second));
    }
    if (!gathers_chunks(costs, plan_)) continue;
    const StateExchange::Share weights = gathered_with_copies(plan_, v, plan_.layers[v], scenario);
    costs.gathers[v] = without_phases(gather(stage, weights));
    if (few) costs.other_gathers[v] = without_phases(exchange(stage).gather_of_few(weights.all));
  }
}

Collective StepPricer::table(const TiedTable& tied) {
  const auto [known, absent] = tables_.try_emplace({tied.owner, tied.chunks});
  if (absent) known->second = without_phases(TableExchange(plan_, tied, cost_).price());
  return known->second;
}

Collective StepPricer::gather(StageId k, StateExchange::Share weights) {
  const auto [known, absent] = gathers_[at(k)].try_emplace({weights.all.value, weights.of_experts.value});
  if (absent) {
    known->second = exchange(k).gather(weights);
    for (CollectivePhase& phase : known->second.phases)
      phase.links.clear();
  }
  return known->second;
}

Time StepPricer::all_reduce(StageId k, const Bucket& bucket) {
  const auto [known, absent] = prices_[at(k)].try_emplace({bucket.bytes.value, bucket.of_experts.value});
  if (absent) known->second = exchange(k).reduce({bucket.bytes, bucket.of_experts}).time;
  return known->second;
}

Time StepPricer::tail(StageId k, LayerRange layers) {
  const Scenario& scenario = cost_.scenario();
  Time tail = update_time(plan_, k, scenario, cost_.source(), layers, 0);
  if (!plan_.seating().reduced(plan_.seating().chunk_of(k, 0))) return tail;
  const std::vector<Bucket> all =  // in order of completion
      buckets(plan_, plan_.seating().chunk_of(k, 0), layers, scenario.model, scenario.training);
  const bool blocking = plan_.gradient_sync == GradientSync::Blocking;
  for (std::size_t i = blocking ? 0 : all.size() - 1; i < all.size(); ++i)
    tail = checked_sum(tail, all_reduce(k, all[i]));
  if (scenario.training.zero == kOptimizerSharded && !plan_.overlap_param_gather.value)
    tail = checked_sum(tail, gather(k, gathered_weights(plan_, k, layers, scenario)).time);
  return tail;
}

Time StepPricer::least_gathers_behind() {
  const Scenario& scenario = cost_.scenario();
  if (schedule_shape(plan_, scenario.model, scenario.training).updated != UpdatedParts::BehindUpdate) return {};
  const auto chunks = at(plan_.seating().held());
  Time least = kNever;
  for (StageId k = 0; k < plan_.stages; ++k) {
    if (!plan_.seating().reduced(plan_.seating().chunk_of(k, 0))) return {};
    std::vector<Time> times;
    for (LayerId i = 0; i < std::ssize(scenario.model.layers); ++i)
      times.push_back(gather(k, gathered_weights(plan_, k, {i, i + 1}, scenario)).time);
    if (times.size() < chunks) return {};
    std::ranges::partial_sort(times, times.begin() + static_cast<std::ptrdiff_t>(chunks));
    Time sum;
    for (std::size_t i = 0; i < chunks; ++i)
      sum = checked_sum(sum, times[i]);
    least = std::min(least, sum);
  }
  return least;
}

}  // namespace pipewright::core
