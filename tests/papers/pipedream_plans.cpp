#include "tests/papers/pipedream_plans.hpp"

#include <algorithm>

#include "planner/replicated.hpp"

namespace pipewright::tests {
namespace {

ChainCosts chain_of(const Plan& shell, const CostModel& cost) {
  const Model& model = cost.scenario().model;
  const LayerCosts layers = cost.layers(shell.micro_batch_size);
  const std::vector<Bytes> over = bytes_over_cuts(model, layers.activation);
  ChainCosts chain;
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    chain.compute.push_back(checked_sum(layers.forward[i], layers.backward[i]));
    chain.parameters.push_back(Bytes{checked_product(
        model.layers[i].held(), gradient_bytes(cost.scenario().training).value, "the bytes of the gradients")});
    chain.boundary.push_back(over[i + 1]);
  }
  return chain;
}

enum class Turns { AcrossServers, WithinServers };  // neighbouring replicas of a stage

// Lead devices, stage by stage. PipeDream's outer level hands whole servers to runs of stages; the stages of a run
// share each of its servers.
std::vector<DeviceId> devices_of(const std::vector<PipeDreamStage>& stages, int per_server, Turns turns) {
  std::vector<DeviceId> devices;
  int server = 0, taken = 0;  // of the servers that the current run has, and of the places in each
  for (const PipeDreamStage& stage : stages) {
    const int on_each = stage.replicas / stage.servers;
    for (int j = 0; j < stage.replicas; ++j) {
      const bool across = turns == Turns::AcrossServers;
      const int s = across ? j % stage.servers : j / on_each, place = across ? j / stage.servers : j % on_each;
      devices.push_back((server + s) * per_server + taken + place);
    }
    taken += on_each;
    if (taken == per_server) server += stage.servers, taken = 0;
  }
  return devices;
}

}  // namespace

std::vector<Plan> pipedream_plans(const Plan& shell, const CostModel& cost, PipeDreamRule rule,
                                  PipeDreamTransfer transfer) {
  const SuffixProblem links = suffix_problem(shell, cost, StagePlaces::Backwards);
  const int per_server = std::max(links.devices_per_node, 1);
  std::vector<MachineLevel> levels;
  if (links.devices_per_node > 0) levels.push_back({per_server, links.inside});
  levels.push_back({links.devices / per_server, links.bandwidth});
  const PipeDreamPlan found = pipedream(chain_of(shell, cost), levels, rule, transfer);
  Plan plan = shell;
  plan.stages = static_cast<int>(found.stages.size());
  plan.recompute.assign(found.stages.size(), shell.recompute.empty() ? Recompute::None : shell.recompute.front());
  plan.layers.clear(), plan.replicas.clear();
  for (const PipeDreamStage& stage : found.stages)
    plan.layers.push_back(stage.layers), plan.replicas.push_back(stage.replicas);
  std::vector<Plan> plans;
  for (const Turns turns : {Turns::AcrossServers, Turns::WithinServers}) {
    plan.device = devices_of(found.stages, per_server, turns);
    for (DeviceId& device : plan.device)
      device = device * shell.tensor_parallel;
    if (plans.empty() || plans.front().device != plan.device) plans.push_back(plan);
  }
  return plans;
}

}  // namespace pipewright::tests
