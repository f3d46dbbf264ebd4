#include "core/cost/memory_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <set>
#include <utility>

#include "core/cost/buckets.hpp"
#include "core/cost/context_exchange.hpp"
#include "core/cost/framework_memory.hpp"
#include "core/cost/host_update.hpp"
#include "core/cost/low_precision.hpp"
#include "core/cost/muon.hpp"
#include "core/plan/tied_tables.hpp"
#include "core/question/memory_anchor.hpp"

namespace pipewright::core {
namespace {

// Virtual stage of every layer.
std::vector<VirtualStageId> chunk_of_layers(const Plan& plan, std::size_t layers) {
  std::vector<VirtualStageId> chunk(layers);
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const LayerRange& range = plan.layers[static_cast<std::size_t>(v)];
    std::fill(chunk.begin() + range.begin, chunk.begin() + range.end, v);
  }
  return chunk;
}

// Units that keep tensors for one another: those of a chunk, unless each keeps its input alone.
bool keeps_for_itself(const Plan& plan, VirtualStageId v) {
  return plan.units == 1 || plan.recompute[plan.stage_of(v)] == Recompute::Full;
}

// The first of those that v keeps tensors together with, and the layers of all of them.
VirtualStageId keeper_of(const Plan& plan, VirtualStageId v) {
  return keeps_for_itself(plan, v) ? v : plan.seating().first_unit(v);
}
LayerRange kept_together(const Plan& plan, VirtualStageId v) {
  if (keeps_for_itself(plan, v)) return plan.layers[v];
  const Seating seating = plan.seating();
  return {plan.layers[seating.first_unit(v)].begin, plan.layers[seating.last_unit(v)].end};
}

// Bytes that enter every chunk and that it keeps for its backward: each tensor produced before it is counted once,
//     hop      when it is used in the chunk or behind it (the chunk forwards what passes through)
//     direct   when it is used in the chunk
// and the model's own input enters every chunk with a layer that reads it: each worker loads it for itself. Of units of one
// chunk the first that a tensor comes to has it for all.
// tests/core/memory_model_test.cpp "skip", "model's own input"
std::vector<Bytes> boundaries(const Plan& plan, const Scenario& scenario, const std::vector<Bytes>& activation,
                              std::int64_t samples) {
  const Model& model = scenario.model;
  const std::vector<VirtualStageId> chunk = chunk_of_layers(plan, model.layers.size());
  std::vector<VirtualStageId> counted = chunk;  // up to which chunk a layer's output is counted already
  std::vector<Bytes> boundary(static_cast<std::size_t>(plan.chunks()));
  const auto whole = [seating = plan.seating()](VirtualStageId v) { return int{seating.whole_of(v)}; };
  int loaded = -1;  // chunk, units joined, that has the model's input
  for (LayerId user = 0; user < std::ssize(model.layers); ++user)
    if (model.layers[user].inputs.empty() && std::exchange(loaded, whole(chunk[user])) != whole(chunk[user]))
      boundary[static_cast<std::size_t>(chunk[user])] =
          slice_part(context_part(scaled(model.input, samples, model.batch), scenario.plan), scenario.plan);
  std::vector<int> held;  // the last chunk, units joined, that has a layer's output; -1: none yet
  for (const VirtualStageId v : chunk)
    held.push_back(plan.units > 1 && keeps_for_itself(plan, v) ? -1 : whole(v));
  for (LayerId user = 0; user < std::ssize(model.layers); ++user) {
    for (const LayerId input : model.layers[user].inputs) {
      const auto producer = static_cast<std::size_t>(input);
      if (counted[producer] >= chunk[user]) continue;
      // Layers stand in order, so chunks between the last counted one and this user's only pass the tensor on.
      const VirtualStageId first = plan.skips == Skips::Hop ? counted[producer] + 1 : int{chunk[user]};
      for (VirtualStageId v = first; v <= chunk[user]; ++v) {
        if (std::exchange(held[producer], whole(v)) == whole(v)) continue;
        Bytes& bytes = boundary[static_cast<std::size_t>(v)];
        bytes = checked_sum(bytes, activation[producer]);
      }
      counted[producer] = chunk[user];
    }
  }
  return boundary;
}

// Of a layer's own output, what its stash holds for layers of its chunk whether it is rebuilt or not. A stash with a
// work holds the output where its own backward or that of a user reads it; a stated one is taken to.
Bytes held_output(const Model& model, const LayerCosts& costs, const std::vector<char>& leaves, LayerId layer) {
  const Layer& of = model.layers[layer];
  const bool holds = of.work < 0 || model.works[static_cast<std::size_t>(of.work)].keeps_output || !of.keeps_output;
  return holds && !leaves[layer] ? std::min(costs.stash[layer], costs.activation[layer]) : Bytes{};
}

// A layer whose input alone is kept: held outputs stay, for they are inputs of others; what no stash of the chunk holds
// of its inputs it keeps itself (twice where two such layers share one: never less than is needed).
LayerKept kept_of(const Model& model, LayerRange chunk, LayerId layer, const LayerCosts& costs,
                  const std::vector<char>& leaves) {
  LayerKept kept;
  kept.stash = costs.stash[layer] - (leaves[layer] ? costs.activation[layer] : Bytes{});
  kept.input = held_output(model, costs, leaves, layer);
  kept.again = kept.stash - std::min(kept.stash, kept.input);
  for (const LayerId input : model.layers[layer].inputs)
    if (input >= chunk.begin)
      kept.input = checked_sum(kept.input, costs.activation[at(input)] - held_output(model, costs, leaves, input));
  return kept;
}

// Adds what every chunk produces for others: to the next one (hop) or to each that uses it (direct).
void add_outputs(MemoryModel& memory, const Plan& plan, const Model& model, const LayerCosts& layers,
                 const std::vector<char>& leaves, std::size_t size) {
  const std::vector<VirtualStageId> chunk = chunk_of_layers(plan, model.layers.size());
  std::vector<std::set<VirtualStageId>> receivers(model.layers.size());
  for (LayerId user = 0; user < std::ssize(model.layers); ++user)
    for (const LayerId input : model.layers[user].inputs)
      if (const VirtualStageId from = chunk[static_cast<std::size_t>(input)]; from != chunk[user])
        receivers[static_cast<std::size_t>(input)].insert(plan.skips == Skips::Hop ? from + 1 : int{chunk[user]});
  for (LayerId layer = 0; layer < std::ssize(receivers); ++layer)
    for (const VirtualStageId to : receivers[layer]) {
      ChunkOutput& output = memory.outputs[{chunk[layer], to}];
      const Bytes made = layers.activation[layer];
      const bool rebuilt = plan.rebuilds(plan.stage_of(chunk[layer]), layer, model);
      const Bytes kept = rebuilt         ? held_output(model, layers, leaves, layer)
                         : leaves[layer] ? Bytes{}
                                         : std::min(made, layers.stash[layer]);
      output.produced[size] = checked_sum(output.produced[size], made);
      output.unstashed[size] = checked_sum(output.unstashed[size], made - kept);
    }
}

// Layers whose stash holds the output for its users' sake, but no user in their own chunk keeps it: it is sent on, and
// nothing of it stays.
std::vector<char> leaving_outputs(const Plan& plan, const Model& model) {
  std::vector<VirtualStageId> chunk = chunk_of_layers(plan, model.layers.size());
  for (VirtualStageId& v : chunk)
    v = keeper_of(plan, v);
  std::vector<char> leaves(model.layers.size());
  for (LayerId i = 0; i < std::ssize(leaves); ++i)
    leaves[i] = model.layers[i].work >= 0 && !model.layers[i].keeps_output;
  for (LayerId user = 0; user < std::ssize(model.layers); ++user) {
    const Layer& layer = model.layers[user];
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      const auto producer = static_cast<std::size_t>(layer.inputs[i]);
      const bool keeps = layer.work < 0 || model.works[static_cast<std::size_t>(layer.work)].keeps_input[i] != 0;
      if (keeps && chunk[producer] == chunk[user]) leaves[producer] = 0;
    }
  }
  return leaves;
}

// What PyTorch's caching allocator adds to one block.
Bytes rounding(Bytes block, Allocator allocator) {
  if (allocator == Allocator::Exact || block == Bytes{}) return {};
  const std::int64_t unit = block.value < (std::int64_t{1} << 20) ? 512 : std::int64_t{2} << 20;
  return {(unit - block.value % unit) % unit};
}

// Parameters of a chunk on one device: those of its layers, and its own copy of a table that is tied to a layer of
// other workers (Megatron-LM keeps the embedding on the first and on the last stage).
std::vector<std::int64_t> parameters_by_layer(const Plan& plan, const Model& model, const FrameworkMemory& framework,
                                              VirtualStageId chunk) {
  const LayerRange range = plan.layers[static_cast<std::size_t>(chunk)];
  std::vector<std::int64_t> held;
  for (LayerId i = range.begin; i < range.end; ++i) {
    const Layer& layer = model.layers[i];
    held.push_back(layer.held());
    if (layer.work < 0) continue;
    const Work& work = model.works[static_cast<std::size_t>(layer.work)];
    const std::int64_t copied = table_copied(plan, model, chunk, i);
    held.back() =
        checked_sum(held.back(), padding(work, framework, plan.tensor_parallel, copied > 0), "the parameters");
    held.back() = checked_sum(held.back(), copied, "the parameters");
  }
  return held;
}

// Scratch memory of a chunk from that of its blocks and of its head. What Megatron needs for the loss is gone when the
// blocks' backward runs, so of both the larger counts: chunk.logits stay on top of either.
void settle_workspace(ChunkMemory& chunk, Bytes of_head, std::size_t size, bool megatron) {
  Bytes& workspace = chunk.workspace[size];
  if (!megatron || of_head == Bytes{}) {
    workspace = std::max(workspace, of_head);
    return;
  }
  const Bytes blocks = workspace + chunk.core[size], head = chunk.logits[size] + of_head;
  workspace = of_head;
  chunk.core[size] = blocks - std::min(blocks, head);
}

// Stash, working set and what belongs to them, of one chunk and one size of micro-batch.
void add_activations(ChunkMemory& chunk, const Plan& plan, VirtualStageId v, const Model& model,
                     const LayerCosts& layers, const std::vector<char>& leaves, Allocator allocator, std::size_t size,
                     bool megatron) {
  const LayerRange range = plan.layers[static_cast<std::size_t>(v)];
  const StageId stage = plan.stage_of(v);
  const bool selective = plan.recompute[static_cast<std::size_t>(stage)] == Recompute::Selective;
  const LayerRange together = kept_together(plan, v);
  Bytes kept, of_head;  // scratch memory of the layer that keeps logits
  for (LayerId i = range.begin; i < range.end; ++i) {
    const auto layer = static_cast<std::size_t>(i);
    const LayerKept of = kept_of(model, together, i, layers, leaves);
    const bool rebuilt = plan.rebuilds(stage, i, model);
    Bytes stash = rebuilt ? of.input : of.stash;
    Bytes again = rebuilt ? of.again : Bytes{};  // rebuilt during the backward, one layer at a time
    if (selective) again = layers.core[layer], stash = stash - layers.stash[layer] + layers.selective[layer];
    chunk.core[size] = std::max(chunk.core[size], again);
    kept = checked_sum(kept, stash);
    if (!rebuilt) chunk.logits[size] = checked_sum(chunk.logits[size], layers.logits[layer]);
    Bytes& workspace = !rebuilt && layers.logits[layer] > Bytes{} ? of_head : chunk.workspace[size];
    workspace = std::max(workspace, layers.workspace[layer]);
    chunk.rounding_working[size] += rounding(stash, allocator);
  }
  settle_workspace(chunk, of_head, size, megatron);
  chunk.working[size] = kept;
  chunk.stash[size] = checked_sum(chunk.boundary[size], kept);
  chunk.rounding_boundary[size] = rounding(chunk.boundary[size], allocator);
  chunk.rounding_stash[size] = chunk.rounding_boundary[size] + chunk.rounding_working[size];
}

// Megatron's gradient of the embedding comes last in a backward: the micro-batch's tensors are gone by then.
void add_table_gradient(ChunkMemory& chunk, LayerRange range, const Scenario& scenario, std::size_t size) {
  if (!scenario.training.framework.megatron()) return;
  const PlanRequest& plan = scenario.plan;
  const TensorParallel split = plan.split();
  for (LayerId i = range.begin; i < range.end; ++i) {
    const Layer& layer = scenario.model.layers[i];
    if (layer.work < 0) continue;
    const Bytes table = table_gradient(scenario.model.works[static_cast<std::size_t>(layer.work)],
                                       scenario.training.framework, split, weight_bytes(scenario.training.precision));
    chunk.workspace[size] = std::max(chunk.workspace[size], table - std::min(table, chunk.stash[size]));
  }
}

const Device& device_of(const Plan& plan, const Scenario& scenario, StageId stage) {
  return scenario.cluster.device_of(class_of_stage(plan, scenario.cluster, stage));
}

Bytes share_of(Bytes bytes, double share) {
  return {rounded(static_cast<double>(bytes.value) * share, "a share of the memory")};
}

// Of these shards and of the optimizer's states nothing stays on the device. Trained fp32 weights are among the
// states there.
void leave_to_host(ChunkMemory& chunk, Bytes weights, Bytes trained, Bytes gradients, const Training& training) {
  const bool among_states = host_state_bytes(training) > optimizer_bytes(training);
  chunk.on_host += gradients + (among_states ? weights - std::min(weights, trained) : weights);
  chunk.fetched = weights, chunk.stored = gradients;
  chunk.weights = chunk.frozen = {}, chunk.gradients -= gradients, chunk.rounding = {};
}

void add_states(ChunkMemory& chunk, const Plan& plan, const Scenario& scenario, VirtualStageId v) {
  const Training& training = scenario.training;
  const StageId stage = plan.stage_of(v);
  const Allocator allocator = device_of(plan, scenario, stage).allocator;
  const auto bytes = [](std::int64_t parameters, Bytes each) {
    return Bytes{checked_product(parameters, each.value, "the bytes of the parameters")};
  };
  // What training.zero divides, from the third state on (the optimizer's) to the first (weights).
  const int over = plan.sharded_over(stage);
  const auto held = [&, copies_of_experts = plan.expert_copies()](HeldParameters all, int state) {
    return training.zero >= state ? sharded(all, over, copies_of_experts) : all.all;
  };
  const Bytes per_state = optimizer_bytes(training), less = per_state - optimizer_bytes(training, true);
  const auto held_states = [&](HeldParameters all, HeldParameters matrices) {
    return bytes(held(all, kOptimizerSharded), per_state) - bytes(held(matrices, kOptimizerSharded), less);
  };
  const bool low = low_precision(training) != nullptr, alone = plan.expert_copies() == 1;
  const auto held_weights = [&](HeldParameters all, Bytes of_all) {
    const auto of_experts = [&] {
      return static_cast<std::int64_t>(static_cast<double>(of_all.value) * static_cast<double>(all.of_experts) /
                                       static_cast<double>(std::max<std::int64_t>(1, all.all)));
    };
    return low ? Bytes{held({of_all.value, of_experts()}, kWeightsSharded)}
               : bytes(held(all, kWeightsSharded), weight_bytes(training.precision));
  };
  HeldParameters parameters, trained, matrices;  // the last: of Muon
  Bytes weights, copies, of_experts;             // the last: of both, where no other device holds the same
  Bytes measured, of_measured;  // states of layers that state them, which no zero divides again; of them, weights
  LayerId layer = plan.layers[static_cast<std::size_t>(v)].begin;
  for (const std::int64_t all : parameters_by_layer(plan, scenario.model, training.framework, v)) {
    if (const auto& states = scenario.model.layers[layer].states) {
      const Bytes counted = bytes(all, weight_bytes(training.precision));
      measured = checked_sum(measured, *states), of_measured += std::min(counted, *states), ++layer;
      continue;
    }
    const Layer& of = scenario.model.layers[layer];
    const HeldParameters of_layer{all, of.expert_parameters},
        of_trained{of.trained_on_device.value_or(all), of.trained_experts()};
    parameters.all = checked_sum(parameters.all, all, "the parameters");
    parameters.of_experts += of_layer.of_experts;
    trained.all += of_trained.all, trained.of_experts += of_trained.of_experts;
    const HeldParameters of_muon = muon_parameters(scenario, layer);
    matrices.all += of_muon.all, matrices.of_experts += of_muon.of_experts;
    const WeightBytes of_weights =
        weight_bytes(all, low_precision_parameters(scenario, layer++), training, device_of(plan, scenario, stage));
    weights = checked_sum(weights, of_weights.held), copies = checked_sum(copies, of_weights.copies);
    if (alone && all > 0)
      of_experts += share_of(of_weights.held + of_weights.copies,
                             static_cast<double>(of_layer.of_experts) / static_cast<double>(all));
    chunk.rounding += rounding(held_weights(of_layer, of_weights.held), allocator) +
                      rounding(bytes(held(of_trained, kGradientsSharded), gradient_bytes(training)), allocator) +
                      rounding(states_on_device(held_states(of_trained, of_muon), training), allocator);
  }
  const Bytes gradients = bytes(trained.all, gradient_bytes(training));
  const bool gathered = training.zero >= kWeightsSharded && over > 1;
  chunk.weights = checked_sum(checked_sum(held_weights(parameters, weights), gathered ? Bytes{} : copies), of_measured);
  if (trained.all < parameters.all)
    chunk.frozen = chunk.weights - std::min(chunk.weights, bytes(trained.all, weight_bytes(training.precision)));
  chunk.gradients = checked_sum(bytes(held(trained, kGradientsSharded), gradient_bytes(training)),
                                bytes(trained.all, training.framework.bytes_per_parameter));
  chunk.optimizer = checked_sum(states_on_device(held_states(trained, matrices), training), measured - of_measured);
  chunk.on_host =
      share_of(bytes(held(trained, kOptimizerSharded), host_state_bytes(training)), training.offload_optimizer.value);
  const bool on_host = plan.resharding && plan.resharding->from_host;
  if (on_host)
    leave_to_host(chunk, held_weights(parameters, weights),
                  bytes(held(trained, kWeightsSharded), weight_bytes(training.precision)),
                  bytes(held(trained, kGradientsSharded), gradient_bytes(training)), training);
  if (!plan.resharding || (over == 1 && !on_host)) return;
  // A bucket that is full is scattered while the backward goes on, where each micro-batch is reduced by itself.
  const Bytes reduced =
      alone && !on_host ? bytes(trained.all - trained.of_experts, gradient_bytes(training)) : gradients;
  chunk.unreduced = plan.reduce_each ? std::min(reduced, bucket_limit(plan, v, training)) : reduced;
  if (training.zero >= kWeightsSharded)
    chunk.gathered = checked_sum(weights, copies) - (on_host ? Bytes{} : of_experts);
  if (plan.resharding->over > 0) chunk.resharded = Bytes{ceil_div(chunk.gathered.value, plan.resharding->over)};
}

// Refuses plans whose memory could pass what 64 bits hold, so that the walks need no checks: every chunk of the plan on
// one worker, each micro-batch in flight at once with its messages, one weight version per micro-batch.
void refuse_overflow(const std::vector<ChunkMemory>& chunks, Bytes reserve, std::int64_t micro_batches) {
  Bytes bound = reserve;
  for (const ChunkMemory& chunk : chunks) {
    Bytes each = checked_sum(chunk.weights, std::max(chunk.stash[0], chunk.stash[1]));
    each = checked_sum(each, std::max(chunk.core[0], chunk.core[1]));
    each = checked_sum(each, std::max(chunk.workspace[0], chunk.workspace[1]));
    each = checked_sum(each, checked_sum(chunk.rounding, std::max(chunk.rounding_stash[0], chunk.rounding_stash[1])));
    for (int message = 0; message < 4; ++message)  // a chunk sends and receives an activation and a gradient
      each = checked_sum(each, std::max(chunk.boundary[0], chunk.boundary[1]));
    bound = checked_sum(bound, Bytes{checked_product(each.value, micro_batches + 1, "the memory of the plan")});
    bound = checked_sum(bound, checked_sum(checked_sum(chunk.gradients, chunk.gradients), chunk.optimizer));
    bound = checked_sum(bound, checked_sum(checked_sum(chunk.gathered, chunk.resharded), chunk.unreduced));
  }
}

}  // namespace

Bytes category(const MemoryBytes& bytes, std::size_t index) {
  const std::array<Bytes, kMemoryCategories.size()> in_order = {bytes.weights, bytes.gradients, bytes.optimizer,
                                                                bytes.stash,   bytes.logits,    bytes.recompute,
                                                                bytes.buffers, bytes.workspace, bytes.reserve};
  return in_order.at(index);
}

namespace {

Bytes largest_fixed(const MemoryModel& memory) {
  Bytes largest = memory.reserve;
  for (const DeviceRoom& room : memory.rooms)
    largest = std::max(largest, room.reserve);
  Bytes fixed;
  for (const FixedMemory& of : memory.fixed)
    fixed = std::max(fixed, checked_sum(checked_sum(of.always, of.running), of.between));
  return checked_sum(largest, fixed);
}

// What does not depend on the cut.
MemoryModel empty_model(const Plan& plan, const Scenario& scenario) {
  MemoryModel memory;
  if (plan.kept_for_weights) memory.kept_for_weights = plan.kept_for_weights->value;
  const MemoryCorrection& correction = correction_of(scenario);
  const auto room = [&](StageId k) {
    const Device& device = device_of(plan, scenario, k);
    DeviceRoom of{correction.reserve.value_or(device.reserve), device.memory,
                  correction.fragmentation.value_or(device.fragmentation), communicators(plan, scenario, k)};
    of.reserve = checked_sum(of.reserve, of.communicators);
    if (plan.stages > 1) of.reserve = checked_sum(of.reserve, plan.reserve_pipeline);
    return of;
  };
  std::vector<DeviceRoom> rooms;
  for (StageId k = 0; k < plan.stages; ++k)
    rooms.push_back(room(k));
  // Where all devices are of one class, stages differ by their groups alone: bounds go by the one with the fewest.
  const bool one_class = scenario.cluster.classes() == 1;
  const auto [least, most] = std::minmax_element(
      rooms.begin(), rooms.end(), [](const DeviceRoom& a, const DeviceRoom& b) { return a.reserve < b.reserve; });
  const DeviceRoom first = one_class ? *least : rooms.front();
  const bool alike = one_class && least->reserve == most->reserve;
  memory.reserve = first.reserve, memory.capacity = first.capacity, memory.fragmentation = first.fragmentation;
  memory.communicators = first.communicators;
  memory.correction = correction.held, memory.activation_factor = correction.activations;
  if (!alike) memory.rooms = std::move(rooms);
  memory.activation_band = activation_band(scenario);
  if (!scenario.model.works.empty()) memory.fit = fit_asked(scenario);
  memory.chunks.resize(static_cast<std::size_t>(plan.chunks()));
  return memory;
}

// One size of micro-batch of the virtual stages first, first + step, ...
void fill(MemoryModel& memory, const Plan& plan, const Scenario& scenario, const LayerCosts& layers,
          const std::vector<char>& leaves, std::size_t size, const std::vector<VirtualStageId>& chunks) {
  const std::int64_t samples = size == 0 ? plan.micro_batch_size : plan.last_micro_batch_size;
  const std::vector<Bytes> boundary = boundaries(plan, scenario, layers.activation, samples);
  for (const VirtualStageId v : chunks) {
    ChunkMemory& chunk = memory.chunks[v];
    chunk.boundary[size] = boundary[at(v)];
    add_activations(chunk, plan, v, scenario.model, layers, leaves,
                    device_of(plan, scenario, plan.stage_of(v)).allocator, size,
                    scenario.training.framework.megatron());
    add_table_gradient(chunk, plan.layers[v], scenario, size);
  }
}

std::vector<VirtualStageId> all_chunks(const Plan& plan) {
  std::vector<VirtualStageId> chunks(at(plan.chunks()));
  std::iota(chunks.begin(), chunks.end(), 0);
  return chunks;
}

}  // namespace

MemoryModel memory_model(const Plan& plan, const CostModel& cost) {
  const Scenario& scenario = cost.scenario();
  MemoryModel memory = empty_model(plan, scenario);
  for (VirtualStageId v = 0; v < std::ssize(memory.chunks); ++v)
    add_states(memory.chunks[v], plan, scenario, static_cast<VirtualStageId>(v));
  const std::vector<char> leaves = leaving_outputs(plan, scenario.model);
  const std::array<std::int64_t, 2> samples = {plan.micro_batch_size, plan.last_micro_batch_size};
  for (std::size_t size = 0; size < samples.size(); ++size) {
    const LayerCosts layers = cost.layers(samples[size]);
    fill(memory, plan, scenario, layers, leaves, size, all_chunks(plan));
    add_outputs(memory, plan, scenario.model, layers, leaves, size);
  }
  add_fixed(memory, plan, scenario);
  refuse_overflow(memory.chunks, largest_fixed(memory), plan.passes());
  return memory;
}

namespace {

// Of some chunks; the others stay empty.
MemoryModel without_outputs(const Plan& plan, const CostModel& cost, const std::array<LayerCosts, 2>& layers,
                            const std::vector<VirtualStageId>& chunks) {
  const Scenario& scenario = cost.scenario();
  MemoryModel memory = empty_model(plan, scenario);
  for (const VirtualStageId v : chunks)
    add_states(memory.chunks[v], plan, scenario, v);
  const std::vector<char> leaves = leaving_outputs(plan, scenario.model);
  for (std::size_t size = 0; size < layers.size(); ++size)
    fill(memory, plan, scenario, layers[size], leaves, size, chunks);
  add_fixed(memory, plan, scenario);
  refuse_overflow(memory.chunks, largest_fixed(memory), plan.passes());
  return memory;
}

}  // namespace

MemoryModel memory_of_stage(const Plan& plan, const CostModel& cost, const std::array<LayerCosts, 2>& layers,
                            StageId k) {
  std::vector<VirtualStageId> held;
  std::vector<StageId> stages = {k};
  if (const StageId opposite = plan.seating().opposite(k); plan.facts.uses_partner && opposite != k)
    stages.push_back(opposite);
  for (const StageId stage : stages)
    for (int i = 0; i < plan.seating().held(); ++i)
      held.push_back(plan.seating().chunk_of(stage, i));
  return without_outputs(plan, cost, layers, held);
}

MemoryModel memory_of_stages(const Plan& plan, const CostModel& cost, const std::array<LayerCosts, 2>& layers) {
  return without_outputs(plan, cost, layers, all_chunks(plan));
}

std::vector<LayerKept> kept_by_layers(const Plan& plan, const CostModel& cost, const LayerCosts& layers,
                                      VirtualStageId v) {
  const Model& model = cost.scenario().model;
  const Allocator allocator = device_of(plan, cost.scenario(), plan.stage_of(v)).allocator;
  const std::vector<char> leaves = leaving_outputs(plan, model);
  const LayerRange range = plan.layers[static_cast<std::size_t>(v)], together = kept_together(plan, v);
  std::vector<LayerKept> kept;
  for (LayerId i = range.begin; i < range.end; ++i) {
    LayerKept of = kept_of(model, together, i, layers, leaves);
    of.rounding = rounding(of.stash, allocator) - rounding(of.input, allocator);
    kept.push_back(of);
  }
  return kept;
}

double fit_asked(const Scenario& scenario) {
  const double fit = scenario.model.works.empty() ? 0 : scenario.plan.fit;
  return fit > 0.5 ? fit : 0;
}

Scenario fitting_by_default(Scenario scenario) {
  PlanRequest& plan = scenario.plan;
  if (plan.fit == 0 && !scenario.model.works.empty()) plan.fit = kFitByDefault, plan.fit_by_default = true;
  return scenario;
}

double fit_probability(const MemoryNeed& need) {
  if (need.high <= need.low) return need.to_fit <= need.capacity ? 1 : 0;
  const auto from_low = [&](Bytes bytes) { return static_cast<double>((bytes - need.low).value); };
  return std::clamp(from_low(need.capacity) / from_low(need.high), 0.0, 1.0);
}

Bytes quantile(const MemoryNeed& need, double probability) {
  return need.low +
         Bytes{static_cast<std::int64_t>(std::ceil(probability * static_cast<double>((need.high - need.low).value)))};
}

std::string fit_text(double fit) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g %%", 100 * fit);
  return text;
}

Bytes held_between_steps(const MemoryModel& memory, const MemoryBytes& bytes, StageId stage) {
  const FixedMemory fixed = memory.fixed_of(stage);
  return bytes.weights + bytes.gradients + bytes.optimizer + fixed.always + fixed.between;
}

MemoryNeed need(const MemoryModel& memory, const MemoryBytes& bytes, StageId stage) {
  const DeviceRoom room = memory.room(stage);
  MemoryNeed need;
  need.capacity = room.capacity;
  need.communicators = room.communicators;
  need.model = bytes.model();
  // What comes and goes: a run that was measured cannot tell activations from messages.
  const Bytes comes_and_goes = bytes.activations() + bytes.buffers - memory.fixed_of(stage).always;
  need.anchored = memory.correction + share_of(comes_and_goes, memory.activation_factor - 1);
  const Bytes held = need.model + need.anchored;
  need.rounding = bytes.rounding;
  need.fragmentation = share_of(held, room.fragmentation);
  need.with_reserve = checked_sum(checked_sum(held + bytes.reserve, need.rounding), need.fragmentation);
  const Bytes open = share_of(bytes.activations(), memory.activation_factor * memory.activation_band);
  need.low = held + bytes.reserve - open;
  need.high = checked_sum(need.with_reserve, open);
  need.to_fit = need.with_reserve;
  need.fit = memory.activation_band > 0 ? memory.fit : 0;
  if (need.fit > 0) need.to_fit = std::max(need.to_fit, quantile(need, need.fit));
  return need;
}

// low + P (high - low) with the range written out: m + reserve - a + P (rounding + fragmentation * m + 2 a), where m is
// what the model holds, anchored. Up to P = 1/2 that is no more than the need. With the factor r of activations of a
// measured run a byte of activations counts r - 1 more in m, and its range r times as much.
std::vector<NeedSum> need_sums(const MemoryModel& memory) {
  const double f = memory.fragmentation, more = memory.activation_factor - 1, fit = memory.fit;
  std::vector<NeedSum> sums = {{1 + f, (1 + f) * more, 1}};
  if (fit > 0.5 && memory.activation_band > 0)
    sums.push_back(
        {1 + fit * f, (1 + fit * f) * more + (2 * fit - 1) * memory.activation_factor * memory.activation_band, fit});
  return sums;
}

NeedSum main_need_sum(const Scenario& scenario, const Device& device) {
  const MemoryCorrection& correction = correction_of(scenario);
  MemoryModel memory{.chunks = {}, .reserve = {}, .capacity = {}};
  memory.fragmentation = correction.fragmentation.value_or(device.fragmentation);
  memory.activation_band = activation_band(scenario), memory.fit = fit_asked(scenario);
  memory.activation_factor = correction.activations;
  return need_sums(memory).back();
}

}  // namespace pipewright::core
