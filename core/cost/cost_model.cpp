#include "core/cost/cost_model.hpp"

#include <algorithm>
#include <array>
#include <tuple>

namespace pipewright {

BackwardTimes split_backward(Time backward, std::int64_t parameters) {
  const Time weight{parameters > 0 ? backward.value / 2 : 0};
  return {backward - weight, weight};
}

std::optional<BackwardTimes> stated_backward(const Layer& layer, std::int64_t samples, std::int64_t batch) {
  const auto refuse = [&](const std::string& message) {
    throw InputError(layer.place, "layer \"" + layer.name + "\": " + message);
  };
  const auto& [input, weight, whole] = std::tie(layer.backward_input, layer.backward_weight, layer.backward);
  if (!whole && !input && !weight) return std::nullopt;
  if (!whole && !(input && weight))
    refuse(std::string("has only half of its backward; give `") + (input ? "backward_weight" : "backward_input") +
           ":` or the whole `backward:`");
  if (whole && input && weight && checked_sum(*input, *weight) != *whole)
    refuse("backward_input + backward_weight differ from backward; leave out one of the three");
  if (whole && ((input && *input > *whole) || (weight && *weight > *whole)))
    refuse("half of the backward takes longer than the whole `backward:`");
  if (input && weight) return BackwardTimes{scaled(*input, samples, batch), scaled(*weight, samples, batch)};
  const Time backward = scaled(*whole, samples, batch);
  if (input) {
    const Time half = scaled(*input, samples, batch);
    return BackwardTimes{half, backward - half};
  }
  if (weight) {
    const Time half = scaled(*weight, samples, batch);
    return BackwardTimes{backward - half, half};
  }
  return split_backward(backward, layer.parameters);
}

std::span<const CostSourceRule> cost_sources() {
  static constexpr std::array<CostSourceRule, 3> table = {{
      {"explicit", CostSourceKind::Explicit, explicit_times},
      {"roofline", CostSourceKind::Roofline, roofline},
      {"uniform", CostSourceKind::Uniform, uniform},
  }};
  return table;
}

CostModel::CostModel(const Scenario& scenario) : scenario_(scenario), topology_(scenario.cluster) {
  const auto rules = cost_sources();
  const auto rule =
      std::find_if(rules.begin(), rules.end(), [&](const CostSourceRule& r) { return r.kind == scenario.cost; });
  PP_CHECK(rule != rules.end());
  source_ = rule->make(scenario);
}

LayerCosts CostModel::layers(std::int64_t samples) const {
  const Model& model = scenario_.model;
  LayerCosts costs;
  const auto reserve = [&](auto&... lists) { (lists.reserve(model.layers.size()), ...); };
  reserve(costs.forward, costs.backward, costs.backward_input, costs.backward_weight, costs.activation, costs.stash);
  const auto add = [&](std::size_t i) {
    const Layer& layer = model.layers[i];
    const CostSource::Passes passes = source_->price(model, static_cast<LayerId>(i), samples);
    costs.forward.push_back(passes.forward);
    costs.backward_input.push_back(passes.backward_input);
    costs.backward_weight.push_back(passes.backward_weight);
    costs.backward.push_back(checked_sum(passes.backward_input, passes.backward_weight));
    costs.activation.push_back(scaled(layer.activation, samples, model.batch));
    costs.stash.push_back(scaled(layer.stashed(), samples, model.batch));
  };
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    try {
      add(i);
    } catch (const OverflowError& error) {
      throw InputError(model.layers[i].place, "layer \"" + model.layers[i].name + "\", for " + std::to_string(samples) +
                                                  " samples: " + error.what());
    }
  }
  return costs;
}

CostModel cost_model(const Scenario& scenario) {
  return CostModel(scenario);
}

Bytes weight_bytes(Precision precision) {
  return {precision == Precision::Fp16 || precision == Precision::Bf16 ? 2 : 4};
}

Bytes gradient_bytes(Precision precision) {
  return weight_bytes(precision);
}

Bytes optimizer_bytes(Precision precision, Optimizer optimizer) {
  const Bytes master{weight_bytes(precision).value < 4 ? 4 : 0};
  switch (optimizer) {
    case Optimizer::Sgd: return master;
    case Optimizer::Momentum: return master + Bytes{4};
    case Optimizer::RmsProp: return master + Bytes{4};
    case Optimizer::Adam: return master + Bytes{8};
  }
  return master;
}

}  // namespace pipewright
