#include "core/cost/memory_model.hpp"

#include <algorithm>
#include <set>

namespace pipewright {
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

// Bytes that enter every chunk and that it keeps for its backward: each tensor produced before it is counted once,
//     hop      when it is used in the chunk or behind it (the chunk forwards what passes through)
//     direct   when it is used in the chunk
// and the model's own input enters every chunk with a layer that reads it: each worker loads it for itself.
// tests/core/memory_model_test.cpp "skip", "model's own input"
std::vector<Bytes> boundaries(const Plan& plan, const Model& model, const std::vector<Bytes>& activation,
                              std::int64_t samples) {
  const std::vector<VirtualStageId> chunk = chunk_of_layers(plan, model.layers.size());
  std::vector<VirtualStageId> counted = chunk;  // up to which chunk a layer's output is counted already
  std::vector<Bytes> boundary(static_cast<std::size_t>(plan.chunks()));
  for (std::size_t user = 0; user < model.layers.size(); ++user)
    if (model.layers[user].inputs.empty())
      boundary[static_cast<std::size_t>(chunk[user])] = scaled(model.input, samples, model.batch);
  for (std::size_t user = 0; user < model.layers.size(); ++user) {
    for (const LayerId input : model.layers[user].inputs) {
      const auto producer = static_cast<std::size_t>(input);
      if (counted[producer] >= chunk[user]) continue;
      // Layers stand in order, so chunks between the last counted one and this user's only pass the tensor on.
      const VirtualStageId first = plan.skips == Skips::Hop ? counted[producer] + 1 : chunk[user];
      for (VirtualStageId v = first; v <= chunk[user]; ++v) {
        Bytes& bytes = boundary[static_cast<std::size_t>(v)];
        bytes = checked_sum(bytes, activation[producer]);
      }
      counted[producer] = chunk[user];
    }
  }
  return boundary;
}

// Adds what every chunk produces for others: to the next one (hop) or to each that uses it (direct).
void add_outputs(MemoryModel& memory, const Plan& plan, const Model& model, const LayerCosts& layers,
                 std::size_t size) {
  const std::vector<VirtualStageId> chunk = chunk_of_layers(plan, model.layers.size());
  std::vector<std::set<VirtualStageId>> receivers(model.layers.size());
  for (std::size_t user = 0; user < model.layers.size(); ++user)
    for (const LayerId input : model.layers[user].inputs)
      if (const VirtualStageId from = chunk[static_cast<std::size_t>(input)]; from != chunk[user])
        receivers[static_cast<std::size_t>(input)].insert(plan.skips == Skips::Hop ? from + 1 : chunk[user]);
  for (std::size_t layer = 0; layer < receivers.size(); ++layer)
    for (const VirtualStageId to : receivers[layer]) {
      ChunkOutput& output = memory.outputs[{chunk[layer], to}];
      const Bytes made = layers.activation[layer];
      output.produced[size] = checked_sum(output.produced[size], made);
      output.unstashed[size] = checked_sum(output.unstashed[size], made - std::min(made, layers.stash[layer]));
    }
}

Bytes sum_over(const LayerRange& range, const std::vector<Bytes>& bytes) {
  Bytes sum;
  for (LayerId layer = range.begin; layer < range.end; ++layer)
    sum = checked_sum(sum, bytes[static_cast<std::size_t>(layer)]);
  return sum;
}

// Refuses plans whose memory could pass what 64 bits hold, so that the walks need no checks: every chunk of the plan on
// one worker, each micro-batch in flight at once with its messages, one weight version per micro-batch.
void refuse_overflow(const std::vector<ChunkMemory>& chunks, Bytes reserve, std::int64_t micro_batches) {
  Bytes bound = reserve;
  for (const ChunkMemory& chunk : chunks) {
    Bytes each = checked_sum(chunk.weights, std::max(chunk.stash[0], chunk.stash[1]));
    for (int message = 0; message < 4; ++message)  // a chunk sends and receives an activation and a gradient
      each = checked_sum(each, std::max(chunk.boundary[0], chunk.boundary[1]));
    bound = checked_sum(bound, Bytes{checked_product(each.value, micro_batches + 1, "the memory of the plan")});
    bound = checked_sum(bound, checked_sum(checked_sum(chunk.gradients, chunk.gradients), chunk.optimizer));
  }
}

}  // namespace

Bytes category(const MemoryBytes& bytes, std::size_t index) {
  const std::array<Bytes, kMemoryCategories.size()> in_order = {
      bytes.weights, bytes.gradients, bytes.optimizer, bytes.stash, bytes.recompute, bytes.buffers, bytes.reserve};
  return in_order.at(index);
}

MemoryModel memory_model(const Plan& plan, const CostModel& cost) {
  const Scenario& scenario = cost.scenario();
  const Model& model = scenario.model;
  MemoryModel memory;
  memory.reserve = scenario.cluster.device.reserve;
  memory.capacity = scenario.cluster.device.memory;
  memory.chunks.resize(static_cast<std::size_t>(plan.chunks()));

  const Training& training = scenario.training;
  for (std::size_t v = 0; v < memory.chunks.size(); ++v) {
    std::int64_t parameters = 0;
    for (LayerId layer = plan.layers[v].begin; layer < plan.layers[v].end; ++layer)
      parameters = checked_sum(parameters, model.layers[static_cast<std::size_t>(layer)].parameters, "the parameters");
    const auto bytes = [parameters](Bytes per_parameter) {
      return Bytes{checked_product(parameters, per_parameter.value, "the bytes of the parameters")};
    };
    memory.chunks[v].weights = bytes(weight_bytes(training.precision));
    memory.chunks[v].gradients = bytes(gradient_bytes(training.precision));
    memory.chunks[v].optimizer = bytes(optimizer_bytes(training.precision, training.optimizer));
  }

  const std::array<std::int64_t, 2> samples = {plan.micro_batch_size, plan.last_micro_batch_size};
  for (std::size_t size = 0; size < samples.size(); ++size) {
    const LayerCosts layers = cost.layers(samples[size]);
    const std::vector<Bytes> boundary = boundaries(plan, model, layers.activation, samples[size]);
    for (std::size_t v = 0; v < memory.chunks.size(); ++v) {
      ChunkMemory& chunk = memory.chunks[v];
      chunk.boundary[size] = boundary[v];
      chunk.working[size] = sum_over(plan.layers[v], layers.stash);
      chunk.stash[size] = checked_sum(boundary[v], chunk.working[size]);
    }
    add_outputs(memory, plan, model, layers, size);
  }
  refuse_overflow(memory.chunks, memory.reserve, plan.micro_batches);
  return memory;
}

}  // namespace pipewright
