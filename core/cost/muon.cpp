#include "core/cost/muon.hpp"

#include <algorithm>
#include <cmath>

namespace pipewright::core {

bool muon_matrix(const Operator& op) {
  return op.kind == OperatorKind::MatrixProduct && op.product && op.parameters > 0 && !op.logits &&
         op.weights != Weights::Frozen;
}

HeldParameters muon_parameters(const Scenario& scenario, LayerId layer) {
  HeldParameters sum;
  const Layer& of = scenario.model.layers[layer];
  if (scenario.training.optimizer != Optimizer::Muon || of.work < 0) return sum;
  const TensorParallel split = scenario.plan.split();
  for (const Operator& op : scenario.model.works[static_cast<std::size_t>(of.work)].operators) {
    if (!muon_matrix(op)) continue;
    const bool at_experts = op.expert && split.sends_tokens();
    const std::int64_t among = at_experts ? split.expert_devices() : split.degree;
    const std::int64_t here = op.parameters - op.sharded_parameters + ceil_div(op.sharded_parameters, among);
    sum.all += here;
    if (at_experts) sum.of_experts += here;
  }
  return sum;
}

MuonMatrix muon_matrix_of(const Operator& op, const TensorParallel& split) {
  const ProductOfLayer& shape = op.shape;
  const bool at_experts = op.expert && split.sends_tokens();
  const double t = at_experts ? split.expert_split() : op.divided ? split.degree : 1;
  double columns = shape.columns, depth = shape.depth;
  if (shape.divided == ProductOfLayer::Divided::Columns) columns = std::ceil(columns / t);
  if (shape.divided == ProductOfLayer::Divided::Depth) depth = std::ceil(depth / t);
  return {std::min(columns, depth), std::max(columns, depth), shape.groups / (at_experts ? split.experts : 1)};
}

}  // namespace pipewright::core
