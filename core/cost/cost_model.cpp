#include "core/cost/cost_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/cost/context_exchange.hpp"
#include "core/cost/expert_exchange.hpp"
#include "core/cost/framework_memory.hpp"
#include "core/cost/low_precision.hpp"
#include "core/cost/slices.hpp"

namespace pipewright::core {

BackwardTimes split_backward(Time backward, std::int64_t parameters) {
  const Time weight{parameters > 0 ? backward.value / 2 : 0};
  return {backward - weight, weight};
}

Time at_speed(Time stated, double speed) {
  if (speed == 1) return stated;
  return {rounded(static_cast<double>(stated.value) / speed, "a layer's time")};
}

double stated_speed(const Cluster& cluster, int device_class) {
  if (device_class == 0) return 1;
  const DeviceClass& other = cluster.others[static_cast<std::size_t>(device_class) - 1];
  if (!other.speed)
    throw InputError(other.place, "cluster.other_nodes." + other.name + ".speed is missing: stated layer times are " +
                                      "those of " + cluster.device.name + "; write e.g. speed: 0.5 where " +
                                      other.device.name + " takes twice as long, or use cost: roofline");
  return *other.speed;
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
  static constexpr std::array<CostSourceRule, 4> table = {{
      {"explicit", CostSourceKind::Explicit, explicit_times},
      {"roofline", CostSourceKind::Roofline, roofline},
      {"uniform", CostSourceKind::Uniform, uniform},
      {"profile", CostSourceKind::Profile, measured_profile},
  }};
  return table;
}

namespace {

// Links that the members of a tensor-parallel group share, divided among them. t = 4 on nodes of 8 devices with one NIC
// of 10 GB/s: 2.5 GB/s each; with a NIC per device only the uplinks of a leaf divide.
Cluster seen_by_leads(Cluster cluster, std::int64_t tensor_parallel) {
  const auto together = static_cast<double>(std::min<std::int64_t>(tensor_parallel, cluster.devices_per_node));
  if (together <= 1) return cluster;
  if (cluster.links.host_bandwidth) cluster.links.host_bandwidth->value /= together;
  if (cluster.network && cluster.network->per == NicPer::Node) cluster.network->bandwidth.value /= together;
  if (cluster.network && cluster.network->per == NicPer::Device && cluster.network->oversubscription > 1)
    cluster.network->oversubscription *= together;
  return cluster;
}

}  // namespace

CostModel::CostModel(const Scenario& scenario) : CostModel(std::make_shared<const Scenario>(scenario)) {}

CostModel::CostModel(std::shared_ptr<const Scenario> shared)
    : scenario_(std::move(shared)),
      topology_(seen_by_leads(scenario_->cluster, scenario_->plan.tensor_parallel.value)) {
  const Scenario& scenario = *scenario_;
  const auto rules = cost_sources();
  const auto rule =
      std::find_if(rules.begin(), rules.end(), [&](const CostSourceRule& r) { return r.kind == scenario.cost; });
  PP_CHECK(rule != rules.end());
  const bool groups = scenario.plan.tensor_parallel.value > 1;
  const std::optional<Topology> whole = groups ? std::optional(Topology(scenario.cluster)) : std::nullopt;
  for (int c = 0; c < scenario.cluster.classes(); ++c)
    sources_.push_back(rule->make(scenario, c, whole ? *whole : topology_));
}

namespace {

// Whole bytes for `samples`; a part of a byte takes a byte.
Bytes bytes_of(double per_sample, double samples) {
  return {rounded(std::ceil(per_sample * samples), "a size")};
}

// What a layer's work costs, found once for all layers that share it.
struct WorkCosts {
  std::optional<CostSource::Passes> passes;
  Bytes logits, workspace;
  Bytes of_operators;         // logits as the operators keep them
  BesideOperators beside;     // what the framework holds
  Bytes more;                 // of the stash, or less: what linear layers and uneven experts keep of it
  std::optional<Bytes> core;  // that selective recomputation drops, where it is not attention cores alone
  bool known = false;
};

bool states_times(const Layer& layer) {
  return layer.forward || layer.backward || layer.backward_input || layer.backward_weight;
}

}  // namespace

LayerCosts CostModel::layers(std::int64_t samples, int device_class, int active, std::optional<int> slice) const {
  const Model& model = scenario_->model;
  LayerCosts costs;
  const auto reserve = [&](auto&... lists) { (lists.reserve(model.layers.size()), ...); };
  reserve(costs.forward, costs.backward, costs.backward_input, costs.backward_weight, costs.rebuild, costs.again,
          costs.activation, costs.stash, costs.core, costs.logits, costs.workspace);
  std::vector<WorkCosts> by_work(model.works.size());
  const TensorParallel split = scenario_->plan.split();
  const Bytes per_value = weight_bytes(scenario_->training.precision);
  const double each = static_cast<double>(per_value.value);
  const PlanRequest& plan = scenario_->plan;
  const double on_device =
      static_cast<double>(samples) / static_cast<double>(std::max<std::int64_t>(1, plan.context_parallel.value));
  const auto scaled_part = [&](Bytes of_batch) { return context_part(scaled(of_batch, samples, model.batch), plan); };
  const auto costs_of_work = [&](const Layer& layer) -> WorkCosts& {
    WorkCosts& known = by_work[static_cast<std::size_t>(layer.work)];
    if (std::exchange(known.known, true)) return known;
    const Work& work = model.works[static_cast<std::size_t>(layer.work)];
    const auto here = [&](const Amount& amount) { return amount.on_device(per_value, split) * on_device; };
    // Kept tensors as they are: linear layers' in fewer bits, experts' of the device that gets most tokens.
    const LowPrecisionRule* const low = low_precision(scenario_->training);
    const double narrow = low ? low->bytes / each : 1;
    const double fullest = split.experts > 1 ? plan.expert_imbalance_memory.value_or(plan.expert_imbalance).value : 1.0;
    double more = low ? here(work.inputs_by_linear) * narrow : 0, dropped = 0;
    for (const KeptTensors& kept : work.kept_tensors) {
      const double whole = here(kept.amount);
      const double held =
          (whole + (low ? here(kept.by_linear) * (narrow - 1) + here(kept.by_linear_too) * narrow : 0)) *
          (kept.expert ? fullest : 1);
      more += held - whole;
      if (dropped_with(kept, plan.recompute_modules)) dropped += held;
    }
    known.more = {rounded(std::ceil(more), "a size")};
    if (low || fullest > 1 || plan.recompute_modules != Modules{Module::AttentionCore})
      known.core = bytes_of(dropped, 1);
    known.logits = known.of_operators = bytes_of(work.logits.on_device(per_value, split), on_device);
    for (const Operator& op : work.operators)
      known.workspace = std::max(known.workspace, bytes_of(op.workspace.on_device(per_value, split), on_device));
    known.beside = beside_operators(work, scenario_->training.framework, split, per_value, on_device);
    if (known.beside.logits) known.logits = *known.beside.logits;
    known.workspace = known.beside.instead ? known.beside.workspace : known.workspace + known.beside.workspace;
    for (const Operator& op : work.operators)
      if (op.name == "dispatch")
        known.workspace =
            std::max(known.workspace, bytes_of(expert_workspace(op.sent, plan, op.sent.tokens * on_device, each), 1));
    if (plan.context_parallel.value > 1)
      for (const Operator& op : work.operators)
        if (op.attention.heads > 0)
          known.workspace = std::max(
              known.workspace,
              bytes_of(context_workspace(context_tensors(op, plan, static_cast<double>(samples), each), plan, each),
                       1));
    return known;
  };
  const auto passes_of = [&](std::size_t i) {
    const Layer& layer = model.layers[i];
    const auto priced = [&] {
      const CostSource& from = source(device_class);
      const auto id = static_cast<LayerId>(i);
      return active == 0 ? from.price(model, id, samples) : from.price_at(model, id, samples, active);
    };
    if (layer.work < 0 || states_times(layer)) return priced();
    WorkCosts& known = costs_of_work(layer);
    if (!known.passes) known.passes = priced();
    return *known.passes;
  };
  const auto add = [&](std::size_t i) {
    const Layer& layer = model.layers[i];
    const CostSource::Passes passes = passes_of(i);
    costs.forward.push_back(passes.forward);
    costs.backward_input.push_back(passes.backward_input);
    costs.backward_weight.push_back(passes.backward_weight);
    costs.backward.push_back(checked_sum(passes.backward_input, passes.backward_weight));
    costs.activation.push_back(scaled_part(layer.activation));
    costs.stash.push_back(scaled_part(layer.stashed()));
    costs.rebuild.push_back(passes.rebuild);
    costs.again.push_back(passes.again.value_or(passes.forward));
    if (passes.issued) costs.issued.push_back(*passes.issued);
    costs.core.push_back(layer.stash_selective ? costs.stash.back() - scaled_part(*layer.stash_selective) : Bytes{});
    if (layer.work >= 0) {
      const WorkCosts& of = costs_of_work(layer);
      Bytes& stash = costs.stash.back();
      if (of.beside.logits) stash = checked_sum(stash - std::min(stash, of.of_operators), of.logits);
      stash = checked_sum(stash, of.beside.stash);
      stash = stash + std::max(Bytes{} - stash, of.more);
      if (of.core) costs.core.back() = *of.core;
      if (plan.recompute_modules.has(Module::AttentionCore))
        costs.core.back() = checked_sum(costs.core.back(), of.beside.core);
      costs.core.back() = std::min(costs.core.back(), stash);
    }
    costs.logits.push_back(layer.work < 0 ? Bytes{} : std::min(costs_of_work(layer).logits, costs.stash.back()));
    costs.workspace.push_back(layer.work < 0 ? Bytes{} : costs_of_work(layer).workspace);
  };
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    try {
      add(i);
    } catch (const OverflowError& error) {
      throw InputError(model.layers[i].place, "layer \"" + model.layers[i].name + "\", for " + std::to_string(samples) +
                                                  " samples: " + error.what());
    }
  }
  if (plan.slices) cut_into_slices(costs, *scenario_, source(device_class), samples, slice);
  return costs;
}

Bytes weight_bytes(Precision precision) {
  return {precision == Precision::Fp16 || precision == Precision::Bf16 ? 2 : 4};
}

Bytes gradient_bytes(const Training& training) {
  return weight_bytes(training.gradient_precision.value_or(training.precision));
}

std::int64_t updated_parameters(HeldParameters held, const Plan& plan, StageId stage, const Training& training) {
  return training.zero == 0 ? held.all : sharded(held, plan, stage);
}

std::int64_t sharded(HeldParameters held, const Plan& plan, StageId stage) {
  return ceil_div(held.all - held.of_experts, plan.sharded_over(stage)) +
         ceil_div(held.of_experts, plan.expert_copies());
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

}  // namespace pipewright::core
