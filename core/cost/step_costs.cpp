// The prices of one step: compiled from a plan and its layers (`step_costs`), or stated without one (`plain_costs`).
#include "core/cost/step_costs.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "core/cost/amax_reductions.hpp"
#include "core/cost/buckets.hpp"
#include "core/cost/cell_parts.hpp"
#include "core/cost/contention.hpp"
#include "core/cost/host_copies.hpp"
#include "core/cost/messages.hpp"
#include "core/cost/moves.hpp"
#include "core/cost/op_durations.hpp"
#include "core/cost/simulated_copies.hpp"
#include "core/cost/state_exchange.hpp"
#include "core/cost/table_exchange.hpp"
#include "core/cost/tensor_flows.hpp"

namespace pipewright::core {
namespace {

void add_chain(StepCosts& costs) {
  for (int e = 0; e + 1 < costs.shape.chunks(); ++e)
    costs.edges.push_back({static_cast<std::uint16_t>(e), static_cast<std::uint16_t>(e + 1)});
}

// Over the members of all copies, whichever are simulated.
void add_all_reduces(StepCosts& costs, const Plan& plan, const CostModel& cost, const OnStages& on_stages) {
  const Scenario& scenario = cost.scenario();
  if (!costs.shape.seating().any_reduced()) return;
  costs.collectives.resize(plan.layers.size());
  resize_gathers(costs, plan);
  for (StageId k = 0; k < plan.stages; ++k) {
    const VirtualStageId first = plan.seating().chunk_of(k, 0);
    if (!costs.shape.seating().reduced(first)) continue;
    StateExchange exchange(plan, k, cost);
    if (costs.fold != nullptr) exchange.keep_links(*costs.fold);
    for (int i = 0; i < plan.seating().lying(); ++i) {
      const VirtualStageId v = plan.seating().chunk_of(k, i);
      for (const Bucket& bucket : buckets(plan, v, scenario.model, scenario.training))
        costs.collectives[v].push_back(exchange.reduce({bucket.bytes, bucket.of_experts}));
      if (costs.shape.updated == UpdatedParts::BesideForwards)
        std::tie(costs.gathers[v], costs.other_gathers[v]) = beside_forward(
            plan, v, cost, on_stages, [&](StageId, const auto& weights) { return exchange.gather(weights); });
      if (!gathers_chunks(costs, plan)) continue;
      const StateExchange::Share weights = gathered_with_copies(plan, v, plan.layers[v], scenario);
      costs.gathers[v] = exchange.gather(weights);
      if (plan.resharding && plan.resharding->over > 0) costs.other_gathers[v] = exchange.gather_of_few(weights.all);
    }
  }
}

// The loads up to the first that is not fewer than the plan's workers: theirs lies on the line between it and the one
// before. The source's last has the prices of all, so it says nothing more where that is the plan's workers.
std::vector<int> loads_for(int workers, std::vector<int> loads) {
  const auto enough = std::lower_bound(loads.begin(), loads.end(), workers);
  if (enough == loads.end()) return loads;
  const bool all = *enough == workers && enough + 1 == loads.end();
  loads.erase(all ? enough : enough + 1, loads.end());
  return loads;
}

// What the ops of cells compute, and what they wait for meanwhile.
StepCosts::Together together(const Plan& plan, const CostModel& cost, const OnStages& all,
                             const std::vector<Time>& duration, const std::vector<Time>& amax) {
  StepCosts::Together result{
      .parts = {}, .share = plan.exchange_share.value, .delay_wgrad = plan.delay_wgrad.value, .pair = std::nullopt};
  if (plan.pair_time) result.pair = plan.pair_time->value;
  if (!plan.split().sends_tokens()) return result;
  const auto alone = std::make_shared<Scenario>(cost.scenario());
  ExpertExchange& exchange = alone->plan.expert_exchange.value;
  exchange = exchange == ExpertExchange::AllGather ? ExpertExchange::Unpriced : ExpertExchange::OnlySorted;
  const CostModel without(alone);
  const OnStages computing(plan, without, plan.micro_batch_size);
  const std::vector<Time> computed = op_durations(plan, computing, without, amax);
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const StageId stage = plan.stage_of(v);
    const CellParts parts(plan, v, cost.scenario().model, cost.source(all.class_of(stage)), all.of(stage),
                          computing.of(stage));
    for (int kind = 0; kind < kKinds; ++kind) {
      const std::size_t row = at(v) * kKinds + at(kind);
      result.parts.push_back(parts.of(static_cast<Kind>(kind), duration[row], std::min(duration[row], computed[row])));
    }
  }
  return result;
}

}  // namespace

StepCosts step_costs(const Plan& plan, const CostModel& cost, std::shared_ptr<const Fold> fold) {
  const Scenario& scenario = cost.scenario();
  StepCosts costs;
  costs.shape = schedule_shape(plan, scenario.model, scenario.training);
  costs.fold = std::move(fold);
  const SimulatedCopies placed(plan, cost.topology(), costs.fold.get());
  costs.shape.data_parallel = placed.count();
  costs.links = placed.links();
  costs.sharing = scenario.cluster.sharing;
  const OnStages full(plan, cost, plan.micro_batch_size);
  const bool ragged = plan.last_micro_batch_size != plan.micro_batch_size;
  const OnStages last = ragged ? OnStages(plan, cost, plan.last_micro_batch_size) : full;
  const std::vector<Time> amax = amax_reductions(plan, cost);
  costs.duration = op_durations(plan, full, cost, amax);
  costs.duration_last = ragged ? op_durations(plan, last, cost, amax) : costs.duration;
  for (int slice = 0; plan.uneven_slices() && slice < costs.shape.slices; ++slice) {
    const OnStages of_slice(plan, cost, plan.micro_batch_size, 0, slice);
    costs.slices.push_back({op_durations(plan, of_slice, cost, amax), ready_before_end(plan, cost, of_slice)});
  }
  if (plan.pairs.value == Pairs::Fused) costs.together = together(plan, cost, full, costs.duration, amax);
  if (costs.shape.seating().any_reduced())
    costs.contention = contention_of(plan, cost, costs.duration, [&](const CostModel& beside) {
      return op_durations(plan, OnStages(plan, beside, plan.micro_batch_size), beside, amax);
    });
  costs.tensor_flows = tensor_flows(
      plan, cost, costs,
      [&](const CostModel& without, bool of_last) {
        const auto size = of_last ? plan.last_micro_batch_size : plan.micro_batch_size;
        return op_durations(plan, OnStages(plan, without, size), without, amax);
      },
      [&](WorkerId worker) { return placed.device(worker); });
  if (scenario.cluster.classes() == 1)
    for (const int active : loads_for(plan.workers(), cost.source().loads())) {
      StepCosts::Load load{
          active, op_durations(plan, OnStages(plan, cost, plan.micro_batch_size, active), cost, amax), {}};
      load.duration_last =
          ragged ? op_durations(plan, OnStages(plan, cost, plan.last_micro_batch_size, active), cost, amax)
                 : load.duration;
      costs.loads.push_back(std::move(load));
    }
  const auto tensors_of = [&](const OnStages& on_stages) {
    const std::vector<Bytes>& tensor = on_stages.of(0).activation;  // the same on every device
    return edge_traffic(plan, scenario.model, tensor, tensors_over_cuts(scenario.model, tensor));
  };
  EdgeTraffic tensors = tensors_of(full);
  const EdgeTraffic tensors_last = ragged ? tensors_of(last) : tensors;
  costs.edges = std::move(tensors.edges);
  check_pairs(costs, scenario.plan.replicas.place);
  Sending sending(plan, scenario.cluster, cost.topology());
  lay_messages(
      costs, tensors.bytes, tensors_last.bytes, [&](WorkerId from, WorkerId to) { return placed.route(from, to); },
      [&](Bytes bytes, WorkerId from, WorkerId to) { return sending(bytes, placed.device(from), placed.device(to)); });
  if (scenario.cost == CostSourceKind::Profile)
    add_handing_over(costs, cost.source(), tensors.bytes, tensors_last.bytes);
  add_all_reduces(costs, plan, cost, full);
  for (const TiedTable& table : tied_tables(plan, scenario.model)) {
    TableExchange exchange(plan, table, cost);
    if (costs.fold != nullptr) exchange.group().keep_links(*costs.fold);
    costs.tied.push_back(exchange.price());
  }
  if (costs.shape.norm) costs.norm = norm_of_gradients(plan, cost);
  delay_late_gathers(costs, costs.duration, plan, cost, full);
  delay_late_gathers(costs, costs.duration_last, plan, cost, last);
  price_moves(
      costs, plan, cost, [&](WorkerId from, WorkerId to) { return placed.route(from, to); },
      [&](WorkerId worker) { return placed.device(worker); });
  price_host_copies(costs, plan, cost);
  costs.ready_before_end = ready_before_end(plan, cost, full);
  if (ragged) costs.ready_before_end_last = ready_before_end(plan, cost, last);
  return costs;
}

StepCosts plain_costs(const ScheduleShape& shape, const std::vector<Time>& forward, const std::vector<Time>& backward,
                      Time hop) {
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  PP_CHECK(forward.size() == chunks && backward.size() == chunks);
  StepCosts costs;
  costs.shape = shape;
  costs.duration.resize(chunks * kKinds);
  for (std::size_t v = 0; v < chunks; ++v) {
    Time* const row = &costs.duration[v * kKinds];
    const Time half{backward[v].value / 2};
    row[at(Kind::F)] = row[at(Kind::R)] = forward[v];
    row[at(Kind::BW)] = backward[v];
    row[at(Kind::B)] = half;
    row[at(Kind::W)] = backward[v] - half;
  }
  costs.duration_last = costs.duration;
  add_chain(costs);
  const std::vector<Bytes> nothing(costs.edges.size());
  lay_messages(
      costs, nothing, nothing,
      [&](WorkerId, WorkerId) {
        Route route;
        route.latency = hop;
        return route;
      },
      [](Bytes bytes, WorkerId, WorkerId) {
        return SentShare{bytes, {}, {}};
      });
  if (shape.seating().any_reduced()) costs.collectives.resize(chunks);
  costs.moves.resize(chunks * 4 * at(shape.data_parallel));
  costs.tied.resize(shape.tied.size());
  if (shape.weights_on_host()) costs.host_copies.resize(chunks * 3);
  costs.ready_before_end.resize(chunks);
  for (VirtualStageId v = 0; v < shape.chunks(); ++v) {
    const auto count = static_cast<std::size_t>(shape.buckets_of(v));
    costs.ready_before_end[v].resize(count);
    if (shape.seating().reduced(v)) costs.collectives[v].resize(count);
  }
  return costs;
}

}  // namespace pipewright::core
