// Scenarios small enough for every plan to be tried, and all their plans.
#pragma once

#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/search/found.hpp"
#include "planner/search/search.hpp"
#include "planner/search/space.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {

inline void open(Scenario& scenario, std::initializer_list<const char*> plan,
                 std::initializer_list<const char*> training = {}) {
  for (const char* key : plan)
    scenario.plan.open[key] = {};
  for (const char* key : training)
    scenario.training.open[key] = {};
}

// Links of their own between all devices, so that fixed orders are exact; memory is short.
inline Scenario random_scenario(std::mt19937& random, int layers, int devices) {
  Scenario scenario = uniform_scenario({.layers = layers, .devices = devices, .stages = 1, .micro_batches = 4});
  std::int64_t parameters = 0, stash = 0;
  for (Layer& layer : scenario.model.layers) {
    layer.forward = Time{1000 + static_cast<std::int64_t>(random() % 9000)};
    layer.backward = Time{1000 + static_cast<std::int64_t>(random() % 15000)};
    layer.activation = Bytes{static_cast<std::int64_t>(random() % 400'000)};
    layer.stash = Bytes{layer.activation.value + static_cast<std::int64_t>(random() % 4'000'000)};
    layer.parameters = static_cast<std::int64_t>(random() % 300'000);
    parameters += layer.parameters, stash += layer.stash->value;
  }
  scenario.cluster.links.kind = LinkKind::Mesh;
  scenario.cluster.links.bandwidth = Bandwidth{1e12};
  scenario.cluster.links.latency = Time{300};
  scenario.cluster.device.memory = Bytes{parameters * 8 + stash * static_cast<std::int64_t>(1 + random() % 4)};
  scenario.training.global_batch_size = Placed<std::int64_t>{8, {}};
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  scenario.training.micro_batches.reset();
  scenario.origins.clear();
  return scenario;
}

// Every cut of a layout, every subset of the layers of a stage recomputed by layer, or the stage in full, as `simulate`
// prices it; +infinity where none fits.
inline double best_with_sets(const Scenario& scenario, const Layout& layout, Objective objective) {
  const auto layers = static_cast<LayerId>(scenario.model.layers.size());
  double best = std::numeric_limits<double>::infinity();
  Plan plan;
  plan.stages = layout.stages;
  plan.replicas.assign(static_cast<std::size_t>(layout.stages), 1);
  const auto price_all = [&] {
    for (std::uint32_t full = 0; full < std::uint32_t{1} << layout.stages; ++full) {
      std::uint32_t may = 0;  // be rebuilt: layers of stages that are not recomputed in full
      for (int k = 0; k < layout.stages; ++k)
        for (LayerId i = plan.layers[static_cast<std::size_t>(k)].begin;
             (full >> k & 1) == 0 && i < plan.layers[static_cast<std::size_t>(k)].end; ++i)
          may |= std::uint32_t{1} << i;
      for (std::uint32_t set = may;; set = (set - 1) & may) {
        plan.recompute.clear(), plan.rebuilt.clear();
        for (LayerId i = 0; i < layers; ++i)
          if ((set >> i & 1) != 0) plan.rebuilt.push_back(i);
        for (int k = 0; k < layout.stages; ++k)
          plan.recompute.push_back((full >> k & 1) != 0 ? Recompute::Full : Recompute::Layers);
        const Scenario whole = settled(scenario, layout, &plan);
        const CostModel cost(whole);
        const Answer answer = price(find_plan(whole, cost), cost, Engine::Auto);
        Bytes peak;
        for (const WorkerReport& worker : answer.report.workers)
          peak = std::max(peak, worker.need.with_reserve);
        if (answer.report.fits)
          best = std::min(best, objective_value(objective, layout, scenario, answer.report.step_time, peak));
        if (set == 0) break;
      }
    }
  };
  const auto cut = [&](auto&& self, LayerId begin, int left) -> void {
    for (LayerId end = left == 1 ? int{layers} : begin + 1; end <= layers - left + 1; ++end) {
      plan.layers.push_back({begin, end});
      if (left == 1) price_all();
      if (left > 1) self(self, end, left - 1);
      plan.layers.pop_back();
    }
  };
  cut(cut, 0, layout.stages);
  return best;
}

// What a search refuses.
inline std::string refusal_of(const Scenario& scenario) {
  try {
    search(scenario);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

inline std::vector<Layout> all_layouts(const Scenario& scenario) {
  std::vector<Layout> all;
  const Space space = layouts_of(scenario);
  for (const LayoutGroup& group : space.groups)
    for (Layout& layout : members(group))
      all.push_back(std::move(layout));
  return all;
}

}  // namespace pipewright::tests
