#include "planner/partitioners/table.hpp"

#include <algorithm>
#include <array>
#include <variant>

#include "core/cost/buckets.hpp"
#include "core/folds.hpp"
#include "planner/partitioners/balanced.hpp"
#include "planner/partitioners/block_partition.hpp"
#include "planner/partitioners/fitting.hpp"
#include "planner/partitioners/least_step.hpp"
#include "planner/plan_errors.hpp"
#include "planner/replicated.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

const Place& place_of_partition(const Scenario& scenario) {
  return or_else(scenario.plan.partition.place, scenario.plan.place);
}

void cut_balanced(const Scenario&, const CostModel& cost, Plan& plan) {
  plan.layers = balanced_layers(plan, cost);
}

void cut_equally(const Scenario& scenario, const CostModel&, Plan& plan) {
  plan.layers = equal_layers(static_cast<int>(scenario.model.layers.size()), plan.chunks());
}

void cut_at_blocks(const Scenario& scenario, const CostModel&, Plan& plan) {
  std::vector<LayerId> blocks;
  for (LayerId i = 0; i < std::ssize(scenario.model.layers); ++i)
    if (scenario.model.layers[i].block) blocks.push_back(i);
  if (static_cast<int>(blocks.size()) < plan.chunks())
    throw InputError(place_of_partition(scenario), "plan.partition",
                     "equal_blocks deals out the blocks of a Transformer, and the " + std::to_string(plan.chunks()) +
                         " (virtual) stages are more than the " + std::to_string(blocks.size()) +
                         " of this model; use fewer stages, or balanced");
  plan.layers = equal_blocks(blocks, static_cast<int>(scenario.model.layers.size()), plan.chunks());
}

void cut_by_blocks(const Scenario&, const CostModel& cost, Plan& plan) {
  plan.layers = block_partition(layer_loads(plan, cost), plan.chunks());
}

// Of the cuts whose stages all fit, simulated on the plan's devices. Chunks of one stage share its device, so with
// several there is none.
void cut_fitting(const Scenario& scenario, const CostModel& cost, Plan& plan) {
  const ScheduleRule* rule = find_schedule(plan.schedule);
  if (plan.seating().held() > 1)
    throw InputError(place_of_partition(scenario), "plan.partition",
                     "fitting is for one chunk per stage; with several write balanced");
  if (rule->refusal(schedule_shape(plan, scenario.model, scenario.training)).empty())
    plan.layers = fitting_layers(plan, cost).layers;
}

// The cut with the least simulated step, on the plan's devices.
void cut_for_least_step(const Scenario& scenario, const CostModel& cost, Plan& plan) {
  if (const std::string refusal = least_step_refusal(plan); !refusal.empty())
    throw InputError(place_of_partition(scenario), "plan.partition", refusal);
  if (!every_cut_is_crossed(scenario))
    throw InputError(place_of_partition(scenario), "plan.partition",
                     "exact is for stages that wait for one another, and branches of this model may "
                     "run side by side; write balanced or fitting");
  const ScheduleRule* rule = find_schedule(plan.schedule);
  if (!rule->refusal(schedule_shape(plan, scenario.model, scenario.training)).empty()) return;  // said elsewhere
  LeastStepPlan found = least_step(plan, cost);
  plan.layers = std::move(found.layers), plan.cut = std::move(found.how);
}

std::vector<Plan> by_suffix_dp(const Plan& shell, const CostModel& cost) {
  return mapped<Plan>(replicated_plans(shell, cost).ranking,
                      [&](ReplicatedPlan& each) { return std::move(each.plan); });
}

}  // namespace

std::span<const Partitioner> partitioners() {
  using enum Partitioner::Kind;
  static constexpr std::array<Partitioner, 7> table = {{
      {"balanced", "the least largest stage, replicas counted; of such cuts the shortest simulated step", "",
       CutOnDevices, cut_balanced},
      {"fitting", "the least largest stage of the cuts whose stages all fit their devices", "", CutOnDevices,
       cut_fitting},
      {"exact", "the least simulated step of all cuts, proven or with the gap that is left", "LandDoig60", CutOnDevices,
       cut_for_least_step},
      {"equal_layers", "baseline: as many layers each", "", Cut, cut_equally, nullptr, true},
      {"equal_blocks", "as many blocks of a Transformer each, embedding and head next to the first and the last",
       "Megatron21", Cut, cut_at_blocks, nullptr, true},
      {"block_partition", "baseline: torchgpipe's balance of blocks", "torchgpipe20", Cut, cut_by_blocks},
      {"suffix_dp", "stages, replicas and places on two levels of links, memory as a limit, ranked by simulation", "",
       StagesAndCuts, nullptr, by_suffix_dp, true},
  }};
  return table;
}

const Partitioner* find_partitioner(std::string_view name) {
  const auto all = partitioners();
  const auto found = std::ranges::find_if(all, [&](const Partitioner& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

const Partitioner* partitioner_of(const Partition& request) {
  struct Name {
    std::string_view operator()(const Balanced&) const { return "balanced"; }
    std::string_view operator()(const Fitting&) const { return "fitting"; }
    std::string_view operator()(const LeastStep&) const { return "exact"; }
    std::string_view operator()(const EqualLayers&) const { return "equal_layers"; }
    std::string_view operator()(const EqualBlocks&) const { return "equal_blocks"; }
    std::string_view operator()(const BlockPartition&) const { return "block_partition"; }
    std::string_view operator()(const LayerCounts&) const { return ""; }
    std::string_view operator()(const CutLayers&) const { return ""; }
    std::string_view operator()(const SuffixDp&) const { return "suffix_dp"; }
  };
  return find_partitioner(std::visit(Name{}, request));
}

}  // namespace pipewright::planner
