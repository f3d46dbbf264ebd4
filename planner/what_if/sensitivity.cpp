#include "planner/what_if/sensitivity.hpp"

#include <algorithm>

#include "core/cost/cost_model.hpp"
#include "planner/price.hpp"
#include "sim/at_load.hpp"
#include "sim/summarize.hpp"

namespace pipewright::planner {
namespace {

// Runs up to this size choose their engine anew: a change can make transfers meet that did not, or the reverse.
constexpr std::int64_t kLargestChecked = 200'000;

// Explicit, uniform and measured times know no FLOP rate: their compute ops take half the time, apart from the launch
// overhead.
StepCosts halved_compute(const Answer& answer, const CostModel& cost) {
  StepCosts costs = answer.costs;
  std::vector<Time> overheads;  // by chunk
  for (VirtualStageId v = 0; v < answer.plan.chunks(); ++v) {
    const int on = class_of_stage(answer.plan, answer.scenario->cluster, answer.plan.stage_of(v));
    overheads.push_back(cost.source(on).op_overhead());
  }
  std::vector<std::vector<Time>*> tables = {&costs.duration, &costs.duration_last};
  for (StepCosts::Load& load : costs.loads)
    tables.push_back(&load.duration), tables.push_back(&load.duration_last);
  std::vector<std::vector<std::vector<Time>>*> readies = {&costs.ready_before_end, &costs.ready_before_end_last};
  for (StepCosts::Slice& slice : costs.slices)
    tables.push_back(&slice.duration), readies.push_back(&slice.ready_before_end);
  costs.settled.clear();
  for (auto* table : tables)
    for (std::size_t i = 0; i < table->size(); ++i) {
      Time& time = (*table)[i];
      const Time overhead = overheads[i / kKinds];
      if (i % kKinds == at(Kind::Update) || time <= overhead) continue;
      time = overhead + Time{(time.value - overhead.value + 1) / 2};
    }
  for (auto* table : readies)
    for (auto& chunk : *table)
      for (Time& time : chunk)
        time.value /= 2;
  return costs;
}

// Twice the peak rates; layers with stated times, which no rate prices, take half of them.
void double_flop_rate(Scenario& scenario) {
  each_device(scenario.cluster, [](Device& device) {
    for (auto& [precision, rate] : device.peak)
      rate.value *= 2;
  });
  for (Layer& layer : scenario.model.layers)
    for (auto* time : {&layer.forward, &layer.backward, &layer.backward_input, &layer.backward_weight})
      if (*time) (*time)->value = (*time)->value / 2;
  for (Layer& layer : scenario.model.layers)
    if (layer.backward && layer.backward_input && layer.backward_weight)
      layer.backward = *layer.backward_input + *layer.backward_weight;
}

class Runs {
 public:
  Runs(const Answer& answer, Engine engine) : answer_(answer), engine_(engine) {}

  void add(const char* what, const StepCosts& costs) {
    const Time time = repeated_step_time(answer_, costs, engine_);
    const double speedup = time.value > 0 ? ratio(answer_.report.step_time, time) : 1.0;
    rows_.push_back({what, time, speedup});
  }
  // Prices the plan on a changed scenario; the change is undone afterwards.
  void add(const char* what, const auto& change) {
    const Cluster before = changed_->cluster;
    change(changed_->cluster);
    const CostModel cost(changed_);
    add(what, step_costs(answer_.plan, cost, answer_.costs.fold));
    changed_->cluster = before;
  }
  // The same for a change of more than the cluster: on a copy.
  void add_scenario(const char* what, const auto& change) {
    const auto scenario = std::make_shared<Scenario>(*changed_);
    change(*scenario);
    const CostModel cost(scenario);
    add(what, step_costs(answer_.plan, cost, answer_.costs.fold));
  }
  std::vector<Sensitivity> rows() const { return rows_; }

 private:
  const Answer& answer_;
  Engine engine_;
  std::shared_ptr<Scenario> changed_ = std::make_shared<Scenario>(*answer_.scenario);
  std::vector<Sensitivity> rows_;
};

bool has_latency(const Cluster& cluster) {
  const bool inside = cluster.links.kind != LinkKind::Ideal && cluster.links.latency.value > 0;
  return inside || (cluster.network && !cluster.network->ideal && cluster.network->latency.value > 0);
}

}  // namespace

// Long runs without shared links are repeated by the static order unchecked.
Time repeated_step_time(const Answer& answer, const StepCosts& costs, Engine engine) {
  const bool stays = engine == Engine::Auto && engine_of(answer.timeline) == Engine::StaticOrder &&
                     run_size(answer.schedule, answer.costs) > kLargestChecked;
  if (stays) engine = Engine::StaticOrder;
  if (!costs.loads.empty()) {
    StepCosts settled = costs;
    const Timeline timeline = settle(answer.schedule, settled, engine);
    return step_time(answer.plan, step_span(answer.plan, timeline),
                     steady_state_of(answer.schedule, settled, timeline, engine));
  }
  if (answer.schedule.flush && engine == Engine::StaticOrder) return static_step(answer.plan, answer.schedule, costs);
  const Timeline timeline = simulate(answer.schedule, costs, engine);
  return step_time(answer.plan, step_span(answer.plan, timeline),
                   steady_state_of(answer.schedule, costs, timeline, engine));
}

std::int64_t largest_repeated_run(const Timeline& timeline) {
  // Ops and messages in about 0.2 s: the static order runs some 100 million a second, the event queue with shared links
  // about one million (docs/results/performance.md).
  return engine_of(timeline) == Engine::EventQueue ? 200'000 : 4'000'000;
}

SensitivityAnswer sensitivity(const Answer& answer, Engine engine) {
  if (run_size(answer.schedule, answer.costs) > largest_repeated_run(answer.timeline))
    return {{}, "what doubling a rate would bring is left out: the run is too long to be repeated at once"};
  const Scenario& scenario = *answer.scenario;
  const Cluster& cluster = scenario.cluster;
  Runs runs(answer, engine);
  if (scenario.cost == CostSourceKind::Roofline && !cluster.device.measured) {
    const bool stated =
        std::ranges::any_of(scenario.model.layers, [](const Layer& layer) { return layer.forward || layer.backward; });
    runs.add_scenario(stated ? "2x FLOP rate (stated times halved)" : "2x FLOP rate", double_flop_rate);
    if (cluster.device.memory_bandwidth)
      runs.add("2x memory bandwidth", [](Cluster& changed) {
        each_device(changed, [](Device& device) { device.memory_bandwidth->value *= 2; });
      });
  } else {
    runs.add("2x FLOP rate (compute times halved)", halved_compute(answer, CostModel(answer.scenario)));
  }
  if (cluster.links.kind != LinkKind::Ideal)
    runs.add(cluster.links.host_bandwidth ? "2x link and host bandwidth inside the node"
                                          : "2x link bandwidth inside the node",
             [](Cluster& changed) {
               changed.links.bandwidth.value *= 2;
               if (changed.links.host_bandwidth) changed.links.host_bandwidth->value *= 2;
             });
  if (cluster.nodes > 1 && cluster.network && !cluster.network->ideal)
    runs.add("2x network bandwidth", [](Cluster& changed) { changed.network->bandwidth.value *= 2; });
  const bool by_host = answer.scenario->training.offload_optimizer.value > 0;
  if (by_host)
    runs.add("2x pace of the update on the host", [](Cluster& changed) {
      each_device(changed, [](Device& device) {
        if (device.host_update) device.host_update->value *= 2;
      });
    });
  if (!answer.plan.offloaded.empty() || by_host)
    runs.add("2x link to the host's memory", [](Cluster& changed) {
      each_device(changed, [](Device& device) {
        if (device.host_link) device.host_link->value *= 2;
      });
    });
  if ((!answer.plan.offloaded.empty() || by_host) && cluster.host_bandwidth)
    runs.add("2x host bandwidth of a node", [](Cluster& changed) { changed.host_bandwidth->value *= 2; });
  if (has_latency(cluster))
    runs.add("half the latencies", [](Cluster& changed) {
      changed.links.latency.value /= 2;
      if (changed.network) changed.network->latency.value /= 2;
    });
  return {runs.rows(), ""};
}

}  // namespace pipewright::planner
