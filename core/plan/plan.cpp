#include "core/plan/plan.hpp"

#include <utility>

namespace pipewright::core {

bool Plan::rebuilds(StageId k, LayerId layer, const Model& model) const {
  switch (recompute[k]) {
    case Recompute::Blocks: return model.layers[layer].block;
    case Recompute::Layers: return std::ranges::binary_search(rebuilt, layer);
    case Recompute::None:
    case Recompute::Selective:
    case Recompute::Full:
    case Recompute::Knapsack: break;
  }
  return false;
}

std::vector<LayerRange> Plan::uncut() const {
  std::vector<LayerRange> whole;
  for (VirtualStageId v = 0; v < std::ssize(layers); v = seating().last_unit(v) + 1)
    whole.push_back({layers[v].begin, layers[seating().last_unit(v)].end});
  return whole;
}

namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw InputError(Place{}, "plan", message);
}

void check_layers(const Plan& plan, const Model& model) {
  if (static_cast<int>(plan.layers.size()) != plan.chunks())
    refuse(std::to_string(static_cast<std::int64_t>(plan.layers.size())) + " layer ranges for " +
           std::to_string(plan.chunks()) + " virtual stages");
  LayerId next = 0;
  for (VirtualStageId v = 0; v < std::ssize(plan.layers); ++v) {
    const std::string stage = "virtual stage " + std::to_string(static_cast<std::int64_t>(v));
    if (plan.layers[v].begin != next)
      refuse(stage + " begins at layer " + std::to_string(plan.layers[v].begin) + ", but layer " +
             std::to_string(next) + " is next");
    if (plan.layers[v].size() < 1) refuse(stage + " has no layers; use fewer stages or other cuts");
    next = plan.layers[v].end;
  }
  if (next != static_cast<LayerId>(model.layers.size()))
    refuse("the stages hold " + std::to_string(next) + " of " +
           std::to_string(static_cast<std::int64_t>(model.layers.size())) + " layers");
}

// Layers of the model, each once, and none of a stage that recomputes otherwise.
void check_rebuilt(const Plan& plan, const Model& model) {
  for (std::size_t i = 0; i < plan.rebuilt.size(); ++i) {
    const LayerId layer = plan.rebuilt[i];
    if (layer < 0 || layer >= static_cast<LayerId>(model.layers.size()) || (i > 0 && layer <= plan.rebuilt[i - 1]))
      refuse("the rebuilt layers must be layers of the model in their order, each once; " + std::to_string(layer) +
             " is not");
  }
  for (const Recompute mode : plan.recompute)
    if (mode == Recompute::Knapsack) refuse("recompute is still to be chosen for a stage");
}

void check_devices(const Plan& plan, const Cluster& cluster) {
  const WorkerId workers = plan.workers();
  if (static_cast<int>(plan.device.size()) != workers)
    refuse(std::to_string(static_cast<std::int64_t>(plan.device.size())) + " devices for " + std::to_string(workers) +
           " workers");
  std::vector<WorkerId> owner(at(cluster.devices()), -1);
  for (WorkerId worker = 0; worker < workers; ++worker) {
    const DeviceId device = plan.device[worker];
    for (int member = 0; member < plan.tensor_parallel; ++member) {
      const std::int64_t on = std::int64_t{device} + member;
      if (on < 0 || on >= cluster.devices())
        refuse("worker " + std::to_string(worker) + " is placed on device " + std::to_string(on) +
               ", but the cluster has devices 0 to " + std::to_string(cluster.devices() - 1));
      WorkerId& taken = owner[at(on)];
      if (taken >= 0)
        refuse("workers " + std::to_string(taken) + " and " + std::to_string(worker) + " are both placed on device " +
               std::to_string(on));
      taken = worker;
    }
  }
}

}  // namespace

int class_of_stage(const Plan& plan, const Cluster& cluster, StageId k) {
  if (cluster.classes() == 1 || plan.device.empty()) return 0;
  return cluster.class_of(plan.device[as<WorkerId>(plan.seating().first_position(k))]);
}

int workers_on_class(const Plan& plan, const Cluster& cluster, int device_class) {
  return static_cast<int>(
      std::ranges::count_if(plan.device, [&](DeviceId device) { return cluster.class_of(device) == device_class; }));
}

std::string devices_in_words(const Plan& plan, const Cluster& cluster) {
  if (cluster.classes() == 1) return std::to_string(plan.devices()) + " x " + cluster.device.name;
  std::string words;
  for (int c = 0; c < cluster.classes(); ++c)
    if (const int workers = workers_on_class(plan, cluster, c); workers > 0)
      words += (words.empty() ? "" : " + ") + std::to_string(std::int64_t{workers} * plan.tensor_parallel) + " x " +
               cluster.device_of(c).name;
  return words;
}

std::string mixed_classes(const Plan& plan, const Cluster& cluster) {
  if (cluster.classes() == 1) return "";
  for (WorkerId worker = 0; worker < plan.workers(); ++worker) {
    const StageId stage = plan.seating().stage_at(worker % plan.positions());
    const int expected = class_of_stage(plan, cluster, stage);
    for (int member = 0; member < plan.tensor_parallel; ++member) {
      const DeviceId device = plan.device[worker] + member;
      if (cluster.class_of(device) == expected) continue;
      const DeviceId first = plan.device[as<WorkerId>(plan.seating().first_position(stage))];
      return "stage " + std::to_string(stage) + " lies on devices " + std::to_string(first) + " (" +
             cluster.device_of(expected).name + ") and " + std::to_string(device) + " (" +
             cluster.device_of(cluster.class_of(device)).name +
             "), but the workers of a stage, and the devices of a worker, must be of one class";
    }
  }
  const auto class_at = [&](WorkerId worker) { return cluster.class_of(plan.device[worker]); };
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const std::vector<WorkerId> workers = holders(plan.seating(), v);
    for (const WorkerId worker : workers)
      if (class_at(worker) != class_at(workers.front()))
        return "stage " + std::to_string(v) + " lies on workers " + std::to_string(workers.front()) + " (" +
               cluster.device_of(class_at(workers.front())).name + ") and " + std::to_string(worker) + " (" +
               cluster.device_of(class_at(worker)).name + "), but all that hold a stage must be of one class";
  }
  return "";
}

void validate(const Plan& plan, const Model& model, const Cluster& cluster) {
  for (const auto& [value, name] :
       {std::pair{plan.stages, "stages"}, std::pair{plan.virtual_stages, "virtual_stages"},
        std::pair{plan.data_parallel, "data_parallel"}, std::pair{plan.tensor_parallel, "tensor_parallel"},
        std::pair{plan.context_parallel, "context_parallel"}, std::pair{plan.expert_parallel, "expert_parallel"}})
    if (value < 1) refuse(std::string(name) + " is " + std::to_string(value) + "; must be at least 1");
  if (static_cast<int>(plan.replicas.size()) != plan.stages)
    refuse("replicas for " + std::to_string(static_cast<std::int64_t>(plan.replicas.size())) + " of " +
           std::to_string(plan.stages) + " stages");
  for (const int r : plan.replicas)
    if (r < 1) refuse("a stage has " + std::to_string(r) + " replicas; must be at least 1");
  if (static_cast<int>(plan.recompute.size()) != plan.stages)
    refuse("recompute is given for " + std::to_string(static_cast<std::int64_t>(plan.recompute.size())) + " of " +
           std::to_string(plan.stages) + " stages");
  check_rebuilt(plan, model);
  if (plan.micro_batches < 1 || plan.micro_batch_size < 1 || plan.last_micro_batch_size < 1 ||
      plan.last_micro_batch_size > plan.micro_batch_size)
    refuse("micro-batches must hold at least one sample, and the last one no more than the others");
  const std::int64_t samples = checked_sum(checked_product(plan.micro_batches - 1, plan.micro_batch_size, "a batch"),
                                           plan.last_micro_batch_size, "a batch");
  if (checked_product(samples, plan.data_parallel, "the global batch") != plan.global_batch_size)
    refuse("the micro-batches of all copies hold " + std::to_string(samples * plan.data_parallel) +
           " samples, but the global batch has " + std::to_string(plan.global_batch_size));
  if (plan.units < 1) refuse("a chunk is cut into " + std::to_string(plan.units) + " units; must be at least 1");
  if (plan.shard < 0 || (plan.shard > 0 && plan.data_parallel % plan.shard != 0))
    refuse("states are divided among " + std::to_string(plan.shard) + " copies, which does not divide the " +
           std::to_string(plan.data_parallel) + " that there are");
  check_layers(plan, model);
  check_devices(plan, cluster);
  if (const std::string mixed = mixed_classes(plan, cluster); !mixed.empty()) refuse(mixed);
}

std::map<int, int> devices_by_node(const Plan& plan, const Cluster& cluster) {
  std::map<int, int> taken;
  for (const DeviceId lead : plan.device)
    for (int member = 0; member < plan.tensor_parallel; ++member)
      ++taken[(lead + member) / std::max(1, cluster.devices_per_node)];
  return taken;
}

}  // namespace pipewright::core
