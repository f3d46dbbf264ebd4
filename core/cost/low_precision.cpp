#include "core/cost/low_precision.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/cost/cost_model.hpp"

namespace pipewright::core {
namespace {

constexpr std::array<LowPrecisionRule, 5> kLowPrecisionRules = {{
    {LowPrecision::Fp8Delayed, "fp8_delayed", Precision::Fp8, OperatorKind::Fp8Product, 1, false, false},
    {LowPrecision::Fp8Tensorwise, "fp8_tensorwise", Precision::Fp8, OperatorKind::Fp8Product, 1, true, false},
    {LowPrecision::Fp8Blockwise, "fp8_blockwise", Precision::Fp8, OperatorKind::Fp8BlockProduct, 1 + 4.0 / 128, false,
     true},
    {LowPrecision::Mxfp8, "mxfp8", Precision::Fp8, OperatorKind::Fp8Product, 1 + 1.0 / 32, false, true},
    {LowPrecision::Nvfp4, "nvfp4", Precision::Fp4, OperatorKind::Fp4Product, 0.5 + 1.0 / 16, true, true},
}};

Bytes whole_weight_bytes(double bytes) {
  return {rounded(std::ceil(bytes), "the bytes of the weights")};
}

}  // namespace

const LowPrecisionRule* low_precision(const Training& training) {
  const auto found =
      std::find_if(kLowPrecisionRules.begin(), kLowPrecisionRules.end(),
                   [&](const LowPrecisionRule& rule) { return rule.recipe == training.low_precision.value; });
  return found == kLowPrecisionRules.end() ? nullptr : &*found;
}

Precision rated_precision(const Scenario& scenario) {
  const LowPrecisionRule* rule = low_precision(scenario.training);
  return rule && scenario.cost == CostSourceKind::Roofline ? rule->products : scenario.training.precision;
}

int copies_of(const LowPrecisionRule& rule, const Device& device) {
  return rule.along_both || !device.fp8_any_layout ? 2 : 1;
}

std::int64_t low_precision_parameters(const Scenario& scenario, LayerId layer) {
  const std::int32_t work = scenario.model.layers[layer].work;
  if (work < 0 || !low_precision(scenario.training)) return 0;
  return low_precision_parameters(scenario.model.works[static_cast<std::size_t>(work)], scenario.plan.split());
}

std::int64_t low_precision_parameters(const Scenario& scenario, LayerRange layers) {
  std::int64_t sum = 0;
  for (LayerId layer = layers.begin; layer < layers.end; ++layer)
    if (!scenario.model.layers[layer].trained_on_device)  // adapters are none of them
      sum += low_precision_parameters(scenario, layer);
  return sum;
}

WeightBytes weight_bytes(std::int64_t parameters, std::int64_t low, const Training& training, const Device& device) {
  const Bytes each = weight_bytes(training.precision);
  const LowPrecisionRule* rule = low_precision(training);
  if (!rule) return {{checked_product(parameters, each.value, "the bytes of the parameters")}, {}};
  const bool alone = training.low_precision_weights;
  const int copies = copies_of(*rule, device) - (alone ? 1 : 0);
  const Bytes held{checked_product(parameters - (alone ? low : 0), each.value, "the bytes of the parameters")};
  const double of_low = static_cast<double>(low) * rule->bytes;
  return {checked_sum(held, alone ? whole_weight_bytes(of_low) : Bytes{}), whole_weight_bytes(of_low * copies)};
}

double least_weight_bytes(const Training& training) {
  const auto each = static_cast<double>(weight_bytes(training.precision).value);
  const LowPrecisionRule* rule = low_precision(training);
  return rule && training.low_precision_weights ? std::min(each, rule->bytes) : each;
}

double cast_bytes(std::int64_t low, const Training& training, const Device& device) {
  const LowPrecisionRule* rule = low_precision(training);
  if (!rule || training.low_precision_weights || training.zero >= kWeightsSharded) return 0;
  const auto each = static_cast<double>(weight_bytes(training.precision).value);
  return static_cast<double>(low) * (each * (rule->finds_largest ? 2 : 1) + copies_of(*rule, device) * rule->bytes);
}

}  // namespace pipewright::core
