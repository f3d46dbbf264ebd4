#include "planner/what_if/sensitivity.hpp"

#include "core/cost/cost_model.hpp"
#include "planner/price.hpp"
#include "sim/event_order.hpp"
#include "sim/static_order.hpp"

namespace pipewright {
namespace {

// Step time under other prices, by the engine that gave the answer.
Time repeated(const Answer& answer, const StepCosts& costs) {
  const Engine engine = engine_of(answer.timeline);
  if (answer.schedule.flush)
    return engine == Engine::StaticOrder ? static_order_makespan(answer.schedule, costs)
                                         : event_order(answer.schedule, costs).makespan;
  const Timeline timeline = simulate(answer.schedule, costs, engine);
  return step_time(answer.plan, timeline.makespan, steady_state_of(answer.schedule, costs, timeline, engine));
}

// Explicit and uniform times know no FLOP rate: their compute ops take half the time, apart from the launch overhead.
StepCosts halved_compute(const Answer& answer, Time overhead) {
  StepCosts costs = answer.costs;
  for (auto* table : {&costs.duration, &costs.duration_last})
    for (std::size_t i = 0; i < table->size(); ++i) {
      Time& time = (*table)[i];
      if (i % kKinds == static_cast<std::size_t>(Kind::Update) || time <= overhead) continue;
      time = overhead + Time{(time.value - overhead.value + 1) / 2};
    }
  for (auto& chunk : costs.ready_before_end)
    for (Time& time : chunk)
      time.value /= 2;
  return costs;
}

class Runs {
 public:
  explicit Runs(const Answer& answer) : answer_(answer), changed_(*answer.scenario) {}

  void add(const char* what, const StepCosts& costs) {
    const Time time = repeated(answer_, costs);
    const double speedup = time.value > 0 ? ratio(answer_.report.step_time, time) : 1.0;
    rows_.push_back({what, time, speedup});
  }
  // Prices the plan on a changed scenario; the change is undone afterwards.
  void add(const char* what, const auto& change) {
    const Cluster before = changed_.cluster;
    change(changed_.cluster);
    const CostModel cost(changed_);
    add(what, step_costs(answer_.plan, cost));
    changed_.cluster = before;
  }
  std::vector<Sensitivity> rows() const { return rows_; }

 private:
  const Answer& answer_;
  Scenario changed_;
  std::vector<Sensitivity> rows_;
};

bool has_latency(const Cluster& cluster) {
  const bool inside = cluster.links.kind != LinkKind::Ideal && cluster.links.latency.value > 0;
  return inside || (cluster.network && !cluster.network->ideal && cluster.network->latency.value > 0);
}

}  // namespace

std::int64_t largest_repeated_run(const Timeline& timeline) {
  // Ops and messages in about 0.2 s: the static order runs some 100 million a second, the event queue with shared links
  // about one million (docs/performance.md).
  return engine_of(timeline) == Engine::EventQueue ? 200'000 : 4'000'000;
}

SensitivityAnswer sensitivity(const Answer& answer) {
  if (run_size(answer.schedule, answer.costs) > largest_repeated_run(answer.timeline))
    return {{}, "what doubling a rate would bring is left out: the run is too long to be repeated at once"};
  const Scenario& scenario = *answer.scenario;
  const Cluster& cluster = scenario.cluster;
  Runs runs(answer);
  if (scenario.cost == CostSourceKind::Roofline) {
    runs.add("2x FLOP rate", [](Cluster& changed) {
      for (auto& [precision, rate] : changed.device.peak)
        rate.value *= 2;
    });
    if (cluster.device.memory_bandwidth)
      runs.add("2x memory bandwidth", [](Cluster& changed) { changed.device.memory_bandwidth->value *= 2; });
  } else {
    runs.add("2x FLOP rate (compute times halved)", halved_compute(answer, CostModel(scenario).source().op_overhead()));
  }
  if (cluster.links.kind != LinkKind::Ideal)
    runs.add("2x link bandwidth inside the node", [](Cluster& changed) {
      changed.links.bandwidth.value *= 2;
      if (changed.links.host_bandwidth) changed.links.host_bandwidth->value *= 2;
    });
  if (cluster.nodes > 1 && cluster.network && !cluster.network->ideal)
    runs.add("2x network bandwidth", [](Cluster& changed) { changed.network->bandwidth.value *= 2; });
  if (has_latency(cluster))
    runs.add("half the latencies", [](Cluster& changed) {
      changed.links.latency.value /= 2;
      if (changed.network) changed.network->latency.value /= 2;
    });
  return {runs.rows(), ""};
}

}  // namespace pipewright
