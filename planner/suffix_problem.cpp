#include "planner/suffix_problem.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/cost/framework_memory.hpp"
#include "core/cost/host_update.hpp"
#include "core/cost/low_precision.hpp"
#include "core/cost/memory_model.hpp"
#include "core/cost/muon.hpp"
#include "core/folds.hpp"
#include "core/question/memory_anchor.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

Recompute mode_of(const Plan& shell) {
  return shell.recompute.empty() ? Recompute::None : shell.recompute.front();
}

bool has_flush(const Plan& shell) {
  const ScheduleRule* rule = find_schedule(shell.schedule);
  PP_CHECK(rule != nullptr);
  return rule->flush;
}

constexpr Bandwidth kEndless{std::numeric_limits<double>::infinity()};

Bandwidth or_endless(Bandwidth bandwidth) {
  return bandwidth.value > 0 ? bandwidth : kEndless;
}

Bandwidth scaled_by(Bandwidth bandwidth, double factor) {
  return {bandwidth.value * factor};
}

// Links by the routes of neighbours, as the lead devices of the workers see them.
void add_links(SuffixProblem& problem, const Plan& shell, const CostModel& cost) {
  const Cluster& cluster = cost.scenario().cluster;
  const int g = workers_per_node(shell, cluster);
  const bool bound = problem.places == StagePlaces::Anywhere;
  const auto half = [&](Duplex duplex) { return !bound && duplex == Duplex::Half ? 0.5 : 1.0; };
  Bandwidth inside = kEndless, between = kEndless;
  if (g > 1) {
    const Bandwidth one = or_endless(cost.topology().route(0, shell.tensor_parallel).bandwidth);
    const bool mesh = cluster.links.kind == LinkKind::Mesh;
    inside = scaled_by(bound ? or_endless(cluster.links.bandwidth) : one,
                       half(cluster.links.duplex) * (bound && mesh ? cluster.devices_per_node - 1 : 1));
    if (cluster.links.kind == LinkKind::Ideal) inside = kEndless;
  }
  if (cluster.nodes > 1 && !cluster.network->ideal) {
    const int sharing = std::min(shell.tensor_parallel, cluster.devices_per_node);
    between = scaled_by(cluster.network->bandwidth,
                        half(cluster.network->duplex) * (cluster.network->per == NicPer::Node ? 1.0 / sharing : g));
  }
  problem.one_link = cluster.links.kind == LinkKind::Pcie || (g == 1 && cluster.nodes > 1) || cluster.nodes == 1;
  if (g == 1) {
    problem.bandwidth = between;
  } else if (cluster.nodes == 1) {
    problem.bandwidth = inside;
  } else {
    problem.devices_per_node = g;
    problem.inside = inside, problem.bandwidth = between;
  }
}

// Bytes as the memory model counts them, but for workspaces, buffers and rounding; of states that ZeRO divides, the
// share of one among all workers.
void add_memory(SuffixProblem& problem, const Plan& shell, const CostModel& cost, const LayerCosts& layers) {
  const Scenario& scenario = cost.scenario();
  const Training& training = scenario.training;
  const Bytes weight = weight_bytes(training.precision), gradient = gradient_bytes(training),
              optimizer = optimizer_bytes(training);
  const bool versions = !has_flush(shell);
  const Recompute mode = mode_of(shell);
  const std::vector<Bytes> over = bytes_over_cuts(scenario.model, layers.activation);
  // By the sum of the need whose other summands are in the capacity.
  const NeedSum sum = main_need_sum(scenario, scenario.cluster.device);
  const auto as_activation = [&](Bytes bytes) {
    const double more = static_cast<double>(bytes.value) * sum.activation / sum.model;
    return bytes + Bytes{static_cast<std::int64_t>(std::floor(more))};
  };
  // Of each byte an all-reduce passes twice (r - 1) / r; ZeRO scatters gradients and gathers weights, once each.
  const Bytes exchanged = training.zero == 1 ? Bytes{(gradient.value + weight.value) / 2} : gradient;
  const int most_members = most_over<int>(problem.others, &SuffixClass::devices, problem.devices);
  for (LayerId i = 0; i < std::ssize(layers.forward); ++i) {
    const Layer& layer = scenario.model.layers[i];
    const auto of_parameters = [&](Bytes each, std::int64_t parameters) {
      return Bytes{checked_product(parameters, each.value, "the bytes of the parameters")};
    };
    const auto of_trained = [&](Bytes each) { return of_parameters(each, layer.trained()); };
    Bytes kept = mode == Recompute::Selective ? layers.selective[i] : layers.stash[i];
    if (mode == Recompute::Blocks && layer.block) kept = std::min(kept, layers.activation[i]);
    if (layer.work >= 0 && !layer.keeps_output) kept -= std::min(kept, layers.activation[i]);
    kept = as_activation(kept);
    const std::int64_t matrices = muon_parameters(scenario, static_cast<LayerId>(i)).all;
    const Bytes less = matrices * (optimizer - optimizer_bytes(training, true));
    Bytes states = states_on_device(of_trained(optimizer) - less, training);
    if (training.zero == 1) states = Bytes{states.value / most_members};
    Bytes resident = checked_sum(of_trained(gradient), states), stash;
    const WeightBytes weights = weight_bytes(layer.held(), low_precision_parameters(scenario, static_cast<LayerId>(i)),
                                             training, scenario.cluster.device);
    Bytes of_weights = checked_sum(weights.held, weights.copies);
    if (layer.states) {
      of_weights = std::min(of_parameters(weight, layer.held()), *layer.states);
      resident = *layer.states - of_weights;
    }
    if (layer.trained_on_device) {  // of the others there is one version
      const Bytes changed = std::min(of_weights, of_trained(weight));
      resident += of_weights - changed, of_weights = changed;
    }
    (versions ? stash : resident) += of_weights;
    (mode == Recompute::Full ? resident : stash) += kept;
    problem.resident.push_back(resident);
    problem.stash.push_back(stash);
    const bool hop = shell.skips == Skips::Hop;
    problem.entry.push_back(
        as_activation(i == 0 ? scaled(scenario.model.input, shell.micro_batch_size, scenario.model.batch)
                      : hop  ? over[i]
                             : Bytes{}));
    problem.boundary.push_back(hop || problem.places == StagePlaces::Backwards ? over[i + 1] : Bytes{});
    problem.gradients.push_back(of_trained(exchanged));
  }
}

Bytes capacity_of(const Scenario& scenario, const Device& device) {
  const NeedSum sum = main_need_sum(scenario, device);
  const MemoryCorrection& correction = correction_of(scenario);
  const auto room = static_cast<double>((device.memory - correction.reserve.value_or(device.reserve)).value);
  return {static_cast<std::int64_t>(std::max(room / sum.model - static_cast<double>(correction.held.value), 0.0))};
}

// Whether a worker waits for the all-reduce of a round behind its backward.
bool waits(const SuffixProblem& problem, const Plan& shell) {
  return !problem.flush && shell.gradient_sync != GradientSync::Overlapped;
}

// Workers that the nodes of a class have room for, in whole groups inside nodes, or of whole nodes.
int workers_of_class(const Plan& shell, const Cluster& cluster, int device_class) {
  const int t = shell.tensor_parallel, nodes = cluster.nodes_of(device_class);
  const int devices = nodes * cluster.devices_per_node;
  if (t > devices)
    throw InputError(cluster.place, "plan.tensor_parallel",
                     fmt::format("{} devices per worker, the cluster has {}{}", t, devices,
                                 cluster.classes() > 1 ? " x " + cluster.device_of(device_class).name : std::string()));
  const bool whole =
      t <= cluster.devices_per_node ? cluster.devices_per_node % t == 0 : t % cluster.devices_per_node == 0;
  return whole && t <= cluster.devices_per_node ? nodes * (cluster.devices_per_node / t) : devices / t;
}

// On one class of devices. Times of a micro-batch that each replica spends on it, its share of the optimizer step
// included where every round has one.
SuffixClass times_of(const SuffixProblem& problem, const Plan& shell, const CostModel& cost, const LayerCosts& layers,
                     int device_class) {
  const CostSource& source = cost.source(device_class);
  SuffixClass times;
  const Model& model = cost.scenario().model;
  const Recompute mode = mode_of(shell);
  std::int64_t parameters = 0;
  for (const Layer& layer : model.layers)
    parameters = checked_sum(parameters, layer.trained(), "the parameters");
  const bool updates = !problem.flush && cost.scenario().training.zero == 0;
  const auto update = updates ? static_cast<double>(source.update(parameters).value) : 0.0;
  for (LayerId i = 0; i < std::ssize(layers.forward); ++i) {
    Time time = checked_sum(layers.forward[i], layers.backward[i]);
    if (mode == Recompute::Full && !shell.recompute_except_last) time = checked_sum(time, layers.forward[i]);
    if (mode == Recompute::Selective) time = checked_sum(time, layers.rebuild[i]);
    if (mode == Recompute::Blocks && model.layers[i].block) time = checked_sum(time, layers.again[i]);
    if (parameters > 0)
      time += Time{static_cast<std::int64_t>(update * static_cast<double>(model.layers[i].trained()) /
                                             static_cast<double>(parameters))};
    times.compute.push_back(time);
    if (!waits(problem, shell)) continue;
    Time beside;  // the backward op of this layer
    if (shell.gradient_sync == GradientSync::AtOnce)
      beside = mode == Recompute::Selective ? layers.backward[i] + layers.rebuild[i] : layers.backward[i];
    times.apart.push_back(time - beside);
  }
  const int ops = mode == Recompute::Full && !shell.recompute_except_last ? 3 : 2;
  times.per_stage = Time{checked_product(ops, source.op_overhead().value, "the overhead of a stage")};
  times.capacity = capacity_of(cost.scenario(), cost.scenario().cluster.device_of(device_class));
  times.devices = workers_of_class(shell, cost.scenario().cluster, device_class);
  return times;
}

}  // namespace

int workers_per_node(const Plan& shell, const Cluster& cluster) {
  return std::max(1, cluster.devices_per_node / shell.tensor_parallel);
}

SuffixProblem suffix_problem(const Plan& shell, const CostModel& cost, StagePlaces places) {
  const Cluster& cluster = cost.scenario().cluster;
  const LayerCosts layers = cost.layers(shell.micro_batch_size);
  SuffixProblem problem;
  problem.places = places;
  problem.flush = has_flush(shell);
  problem.micro_batches = shell.micro_batches;
  SuffixClass first = times_of(problem, shell, cost, layers, 0);
  problem.compute = std::move(first.compute), problem.apart = std::move(first.apart);
  problem.per_stage = first.per_stage, problem.capacity = first.capacity, problem.devices = first.devices;
  for (int c = 1; c < cluster.classes(); ++c)
    problem.others.push_back(times_of(problem, shell, cost, cost.layers(shell.micro_batch_size, c), c));
  add_links(problem, shell, cost);
  add_memory(problem, shell, cost, layers);
  return problem;
}

Folded folded(const SuffixProblem& whole) {
  Folded result{whole, {}};
  const auto count = static_cast<LayerId>(whole.compute.size());
  const auto idle = [&](LayerId i) {
    return whole.compute[at(i)] == Time{} && whole.gradients[at(i)] == Bytes{} &&
           std::ranges::all_of(whole.others, [i](const SuffixClass& other) { return other.compute[at(i)] == Time{}; });
  };
  LayerId begin = 0;
  for (LayerId i = 0; i < count;) {
    LayerId next = i + 1;  // the cuts behind layers i .. next - 1 have the same work on either side
    while (next < count && idle(next))
      ++next;
    LayerId end = i + 1;
    for (LayerId cut = i + 1; cut <= next && next < count; ++cut)
      if (whole.boundary[at(cut) - 1] < whole.boundary[at(end) - 1]) end = cut;
    if (next == count) end = count;
    result.layers.push_back({begin, end});
    begin = end, i = next;
  }
  const auto sums = [&](auto& values) {
    const auto all = std::exchange(values, {});
    for (const LayerRange& range : result.layers) {
      auto sum = all[at(range.begin)];
      for (LayerId i = range.begin + 1; i < range.end; ++i)
        sum = checked_sum(sum, all[at(i)]);
      values.push_back(sum);
    }
  };
  SuffixProblem& problem = result.problem;
  if (!problem.apart.empty()) sums(problem.apart);
  for (SuffixClass& other : problem.others) {
    sums(other.compute);
    if (!other.apart.empty()) sums(other.apart);
  }
  sums(problem.compute), sums(problem.resident), sums(problem.stash), sums(problem.gradients);
  problem.entry.clear(), problem.boundary.clear();
  for (const LayerRange& range : result.layers) {
    problem.entry.push_back(whole.entry[at(range.begin)]);
    problem.boundary.push_back(whole.boundary[at(range.end) - 1]);
  }
  return result;
}

}  // namespace pipewright::planner
