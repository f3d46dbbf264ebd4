#include "core/model/flops.hpp"

#include <algorithm>

namespace pipewright::core {
namespace {

constexpr FlopConvention kConventions[] = {
    {.name = "complete", .summary = "every product as computed"},
    {.name = "megatron",
     .summary = "causal attention as half of all pairs whatever the window, no routers, of gates only SwiGLU's; three "
                "forward passes",
     .pairs = FlopConvention::Pairs::HalfIfCausal,
     .routers = false,
     .other_gates = false,
     .passes = 3},
    {.name = "megatron21",
     .summary = "all pairs of attention, four forward passes (three of the logits): the forward is computed twice "
                "[Megatron21] equation 3",
     .pairs = FlopConvention::Pairs::All,
     .passes = 4,
     .logit_passes = 3},
};

double counted(const Operator& op, const FlopConvention& convention) {
  if (op.routed && !convention.routers) return 0;
  if (op.module == Module::StateSpace && convention.pairs != FlopConvention::Pairs::AsComputed)
    return op.all_pairs_flops;
  if (op.all_pairs_flops > 0 && convention.pairs != FlopConvention::Pairs::AsComputed) {
    const bool half = convention.pairs == FlopConvention::Pairs::HalfIfCausal && op.causal;
    return half ? op.all_pairs_flops / 2 : op.all_pairs_flops;
  }
  return op.forward_flops - (convention.other_gates ? 0 : op.other_gate_flops);
}

FlopCount count_of(const Work& work, const FlopConvention& convention) {
  FlopCount count;
  for (const Operator& op : work.operators) {
    double& kind = count.by_kind[at(op.kind)];
    if (!op.product) {
      kind += op.forward_flops;
      continue;
    }
    const double forward = counted(op, convention);
    kind += forward, count.forward += forward;
    int passes = op.logits && convention.logit_passes > 0 ? convention.logit_passes : convention.passes;
    if (passes > 0 && op.weights == Weights::Frozen) --passes;  // no gradient of the weights
    count.backward += passes > 0 ? (passes - 1) * forward : op.input_flops + op.weight_flops;
  }
  return count;
}

}  // namespace

std::span<const FlopConvention> flop_conventions() {
  return kConventions;
}

FlopCount flop_count(const Model& model, const FlopConvention& convention) {
  std::vector<double> users(model.works.size());
  FlopCount sum;
  for (const Layer& layer : model.layers) {
    if (layer.work >= 0) {
      ++users[at(layer.work)];
    } else if (layer.flops) {
      const double forward = layer.flops->value / static_cast<double>(model.batch);
      sum.forward += forward;
      sum.backward += (convention.passes > 0 ? convention.passes - 1 : 2) * forward;
    }
  }
  for (std::size_t w = 0; w < users.size(); ++w) {
    const FlopCount of = count_of(model.works[w], convention);
    sum.forward += users[w] * of.forward;
    sum.backward += users[w] * of.backward;
    for (std::size_t k = 0; k < of.by_kind.size(); ++k)
      sum.by_kind[k] += users[w] * of.by_kind[k];
  }
  return sum;
}

double forward_passes(const Model& model) {
  if (std::ranges::none_of(model.works, [](const Work& work) { return work.frozen; })) return 3;
  const FlopCount count = flop_count(model);
  return count.forward > 0 ? count.training() / count.forward : 3;
}

std::int64_t active_parameters(const Model& model) {
  std::int64_t sum = 0;
  for (const Layer& layer : model.layers) {
    if (layer.work < 0) {
      sum = checked_sum(sum, layer.parameters, "the parameters");
      continue;
    }
    const Work& work = model.works[at(layer.work)];
    sum = checked_sum(sum, work.parameters, "the parameters");
    for (const Operator& op : work.operators)
      sum -= op.idle_parameters;
  }
  return sum;
}

}  // namespace pipewright::core
