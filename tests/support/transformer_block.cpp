#include "tests/support/transformer_block.hpp"

#include "core/cost/cost_model.hpp"
#include "core/model/layer_builder.hpp"

namespace pipewright::tests {

Work transformer_block(const BlockShape& shape) {
  const std::int64_t s = shape.sequence, h = shape.hidden;
  const NormSpec norm{.kind = Norm::Layer, .affine = shape.affine};
  LayerBuilder block;
  const auto x = block.input({s, h});
  const auto qkv =
      block.linear(block.norm(x, norm), {.features = 3 * h, .bias = shape.affine, .split = Split::Columns});
  const auto core = block.attention({qkv}, {.heads = shape.heads,
                                            .key_heads = shape.heads,
                                            .key_size = h / shape.heads,
                                            .value_size = h / shape.heads,
                                            .queries = s,
                                            .keys = s,
                                            .causal = shape.flash,
                                            .flash = shape.flash,
                                            .dropout = !shape.flash});
  const auto attention = block.dropout(block.linear(core, {.features = h, .bias = shape.affine, .split = Split::Rows}));
  const auto middle = block.add(x, attention);
  const auto opened =
      block.linear(block.norm(middle, norm), {.features = shape.inner, .bias = shape.affine, .split = Split::Columns});
  const auto closed = block.linear(block.activation(opened, Activation::Gelu),
                                   {.features = h, .bias = shape.affine, .split = Split::Rows});
  return block.finish({block.add(middle, block.dropout(closed))});
}

Scenario block_scenario(const BlockShape& shape, int layers, int devices, TensorParallel split) {
  Scenario scenario;
  scenario.cost = CostSourceKind::Roofline;
  scenario.model.name = "blocks";
  scenario.model.works = {transformer_block(shape)};
  scenario.model.input_amount = scenario.model.works[0].inputs[0];
  for (LayerId i = 0; i < layers; ++i) {
    Layer layer;
    layer.name = "block" + std::to_string(i);
    layer.work = 0;
    if (i > 0) layer.inputs = {i - 1};
    scenario.model.layers.push_back(layer);
  }
  scenario.cluster.devices_per_node = devices;
  Device& device = scenario.cluster.device;
  device.name = "X100";
  device.memory = Bytes{std::int64_t{80} << 30};
  device.peak[Precision::Bf16] = FlopRate{312e12};
  device.memory_bandwidth = Bandwidth{2039e9};
  scenario.training.precision = Precision::Bf16;
  scenario.training.optimizer = Optimizer::Adam;
  scenario.plan.tensor_parallel.value = split.degree;
  scenario.plan.sequence_parallel.value = split.sequence_parallel;
  settle(scenario.model, weight_bytes(scenario.training.precision), split);
  return scenario;
}

}  // namespace pipewright::tests
