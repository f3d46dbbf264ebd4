#include "core/answers/utilization.hpp"

#include <algorithm>

namespace pipewright {
namespace {

// FLOPs of one sample that the layer's backward repeats.
double repeated(const Scenario& scenario, const Plan& plan, StageId stage, LayerId id) {
  const Model& model = scenario.model;
  const Layer& layer = model.layers[static_cast<std::size_t>(id)];
  const Recompute kind = plan.recompute[static_cast<std::size_t>(stage)];
  if (kind == Recompute::Full || plan.rebuilds(stage, id, model))
    return layer.flops->value / static_cast<double>(model.batch);
  if (kind != Recompute::Selective || layer.work < 0) return 0;
  double cores = 0;
  for (const Operator& each : model.works[static_cast<std::size_t>(layer.work)].operators)
    if (each.attention_core && each.product) cores += each.forward_flops;
  return cores;
}

}  // namespace

std::optional<double> hardware_flop_utilization(const Scenario& scenario, const Plan& plan, std::optional<double> mfu) {
  const Model& model = scenario.model;
  if (!mfu || plan.recompute.empty()) return std::nullopt;
  double forward = 0, again = 0;
  for (std::size_t v = 0; v < plan.layers.size(); ++v)
    for (LayerId id = plan.layers[v].begin; id < plan.layers[v].end; ++id) {
      const Layer& layer = model.layers[static_cast<std::size_t>(id)];
      if (!layer.flops) return std::nullopt;
      forward += layer.flops->value / static_cast<double>(model.batch);
      again += repeated(scenario, plan, plan.stage_of(static_cast<VirtualStageId>(v)), id);
    }
  if (plan.recompute_except_last)  // torchgpipe: the last micro-batch keeps everything
    again *= 1 - static_cast<double>(plan.last_micro_batch_size * plan.data_parallel) /
                     static_cast<double>(plan.global_batch_size);
  if (!(forward > 0) || !(again > 0)) return std::nullopt;
  return *mfu * (3 * forward + again) / (3 * forward);
}

}  // namespace pipewright
