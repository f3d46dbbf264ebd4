#include "core/cost/gather_copies.hpp"

#include <algorithm>

#include "core/cost/cost_model.hpp"

namespace pipewright::core {

namespace {

bool per_parameter(const Plan& plan, const Training& training) {
  return plan.resharding && training.zero >= kWeightsSharded && training.sharding.value == Sharding::PerParameter;
}

}  // namespace

bool gathers_per_parameter(const Plan& plan, const Scenario& scenario) {
  return per_parameter(plan, scenario.training) && plan.resharding->after_backward;
}

Time behind_late_gather(Time forward, const KernelQueue& kernels, Time gather) {
  if (kernels.host <= kernels.device) return forward;
  return std::max(forward, checked_sum(gather, kernels.device));
}

GatherCopies gather_copies(const Plan& plan, VirtualStageId v, const Scenario& scenario) {
  const Training& training = scenario.training;
  if (!per_parameter(plan, training)) return {};
  double shards = 0, held = 0, trained = 0;  // parameters
  const LayerRange& range = plan.layers[v];
  for (LayerId i = range.begin; i < range.end; ++i) {
    const Layer& layer = scenario.model.layers[i];
    const auto all = static_cast<double>(layer.held()), of_experts = static_cast<double>(layer.expert_parameters);
    shards += (all - of_experts) / plan.sharded_over(plan.stage_of(v)) + of_experts / plan.expert_copies();
    held += all, trained += static_cast<double>(layer.trained());
  }
  const auto w = static_cast<double>(weight_bytes(training.precision).value);
  const auto g = static_cast<double>(gradient_bytes(training).value);
  const double gather = ((w < 4 ? 4 + w : 0) + 2 * w) * shards + 2 * w * held;
  const double reduction = (w + g) * trained;
  GatherCopies copies;
  // From its forward to its backward.
  const bool kept = v + 1 == plan.chunks() && plan.facts.backward_at_once && !plan.resharding->always;
  const bool each = plan.resharding->after_backward;  // a micro-batch leaves nothing whole
  (each ? copies.forward : copies.step) += gather;
  if (plan.resharding->after_forward && !kept) copies.backward = gather;
  (plan.reduce_each ? copies.gradients : copies.step) += reduction;
  return copies;
}

}  // namespace pipewright::core
