#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "core/divisors.hpp"
#include "core/model/each_device.hpp"
#include "core/question/profile.hpp"
#include "planner/refusals.hpp"

namespace pipewright::planner {
namespace {

std::optional<Refusal> refuse(std::string key, std::string why) {
  return Refusal{std::move(key), std::move(why)};
}

std::optional<Refusal> refused_by(const Layer& layer, const Work& work, TensorParallel split, std::int64_t devices) {
  for (const Operator& op : work.operators) {
    if (op.sent.tokens > 0)
      if (const auto experts = static_cast<std::int64_t>(op.sent.experts); experts % split.experts != 0)
        return refuse("expert_parallel", fmt::format("{} does not divide the {} experts of layer \"{}\"; use {}",
                                                     split.experts, experts, layer.name, divisors_in_words(experts)));
    if (op.expert && op.shape.divided == ProductOfLayer::Divided::Depth)
      if (const auto inner = static_cast<std::int64_t>(op.shape.depth); inner % split.expert_split() != 0)
        return refuse("expert_tensor_parallel",
                      fmt::format("{} does not divide the {} inner features of an expert; use {}", split.expert_split(),
                                  inner, divisors_in_words(inner, devices)));
  }
  return std::nullopt;
}

std::optional<Refusal> tensor_links_refusal(const Scenario& scenario) {
  const PlanRequest& plan = scenario.plan;
  const auto refuse = [](std::string why) { return Refusal{"tensor_links", "shared " + std::move(why)}; };
  const auto without = [&](std::string_view key) {
    return refuse(fmt::format("is not simulated with {}; leave one of the two out", key));
  };
  if (plan.tensor_links.value != TensorLinks::Shared) return {};
  if (scenario.cost != CostSourceKind::Roofline)
    return refuse("needs cost: roofline, which knows what a group exchanges; write that, or leave it out");
  if (plan.pairs.value == Pairs::Fused) return without("plan.pairs: fused");
  if (plan.uneven_slices()) return without("plan.slice_lengths: even");
  const auto any_device = [&](const auto& is) {
    return is(scenario.cluster.device) ||
           std::ranges::any_of(scenario.cluster.others, [&](const DeviceClass& other) { return is(other.device); });
  };
  if (any_device([](const Device& device) { return device.contention.any(); })) return without("device.contention");
  if (any_device([](const Device& device) { return device.measured != nullptr; })) return without("device.measured");
  return {};
}

}  // namespace

std::optional<Refusal> expert_refusal(const Scenario& scenario) {
  const PlanRequest& plan = scenario.plan;
  const TensorParallel split = plan.split();
  if (plan.expert_padding && !plan.expert_capacity)
    return refuse("expert_padding",
                  "fills experts up to a capacity that is not given; write plan.expert_capacity: 1.25, or leave "
                  "expert_padding out");
  if (plan.shared_experts_beside.value && plan.pairs.value == Pairs::Fused)
    return refuse(
        "shared_experts_beside",
        "fills the time of exchanges, as plan.pairs: fused does with another micro-batch; leave one of the two out");
  if (!split.sends_tokens()) {
    if (plan.open.contains("expert_parallel") && plan.context_parallel.value < 2 && lacks_whole_layers(scenario))
      return refuse("expert_parallel", not_measured_with(1, scenario));
    return std::nullopt;
  }
  const char* const key = split.experts > 1 ? "expert_parallel" : "expert_tensor_parallel";
  if (scenario.cost != CostSourceKind::Roofline && scenario.cost != CostSourceKind::Profile)
    return refuse(
        key,
        "sends tokens to experts, which only cost: roofline and a profile calibrated with as many devices can "
        "price; leave it out, or use cost: roofline");
  if (scenario.cost == CostSourceKind::Profile) {
    if (split.expert_split() > 1)
      return refuse("expert_tensor_parallel",
                    "divides experts, and a profile has whole ones; leave it out, or write cost: roofline");
    if (plan.context_parallel.value > 1)
      return refuse("context_parallel",
                    "is not priced by a profile together with expert_parallel; use 1, or cost: roofline");
    if (plan.expert_exchange.value != ExpertExchange::AllToAll)
      return refuse("expert_exchange", "a profile prices all_to_all alone; write that, or cost: roofline");
    if (plan.expert_imbalance.value != 1 || plan.expert_capacity)
      return refuse(plan.expert_capacity ? "expert_capacity" : "expert_imbalance",
                    "is not what a run was measured with: all experts have as many rows; leave it out, or write cost: "
                    "roofline");
  }
  bool any = false;
  for (const Layer& layer : scenario.model.layers) {
    if (layer.work < 0) continue;
    const Work& work = scenario.model.works[at(layer.work)];
    any = any || work.expert_layers > 0;
    if (auto refused = refused_by(layer, work, split, scenario.cluster.devices())) return refused;
  }
  if (!any) return refuse(key, "divides experts, and the model has none; leave it out");
  if (split.degree > 1 && !split.sequence_parallel)
    return refuse(key,
                  "with tensor_parallel needs sequence_parallel, so that each device sends tokens of its own; write "
                  "plan.sequence_parallel: true");
  if (std::ranges::any_of(plan.replicas.value, [](std::int64_t r) { return r > 1; }))
    return refuse(key, "divides experts among copies of a pipeline, which plan.replicas does not make; leave one out");
  if (plan.shard)
    return refuse(key,
                  "divides the states of experts among all that hold the same; leave plan.data_parallel_shard out");
  const bool chooses_replicas =
      plan.open.contains("replicas") || std::holds_alternative<SuffixDp>(plan.partition.value);
  if (chooses_replicas)
    return refuse(key, "divides experts among copies of a pipeline, but replicas are left open; leave one of both out");
  // More than any cluster has are refused elsewhere.
  const std::int64_t most = scenario.cluster.devices();
  for (const std::int64_t count : {plan.tensor_parallel.value, plan.context_parallel.value, plan.data_parallel.value})
    if (count > most) return std::nullopt;
  const std::int64_t devices = plan.tensor_parallel.value * plan.context_parallel.value * plan.data_parallel.value;
  if (devices % split.expert_devices() != 0)
    return refuse(key, fmt::format("{} x {} devices of an expert = {} does not divide the {} devices of a stage "
                                   "(tensor_parallel x context_parallel x data_parallel); use {}",
                                   split.experts, split.expert_split(), split.expert_devices(), devices,
                                   divisors_in_words(devices)));
  if (plan.context_parallel.value * plan.data_parallel.value == 1 && devices > split.expert_devices())
    return refuse(key, fmt::format("leaves {} devices of a group that hold the same experts, and with one copy nothing "
                                   "reduces their gradients; use expert_parallel x expert_tensor_parallel: {}",
                                   devices / split.expert_devices(), devices));
  if (scenario.cost == CostSourceKind::Profile && scenario.profile != nullptr &&
      !has_layers(*scenario.profile, of_expert_devices(scenario.model, static_cast<int>(split.experts))))
    return refuse(key, not_measured_with(split.experts, scenario));
  return std::nullopt;
}

std::optional<Refusal> tensor_refusal(const Scenario& scenario) {
  const PlanRequest& plan = scenario.plan;
  if (auto refused = tensor_links_refusal(scenario)) return refused;
  const bool ring = plan.tensor_overlap.value == TensorOverlap::Ring;
  if ((!ring && plan.tensor_overlap.value != TensorOverlap::Beside) || plan.sequence_parallel.value ||
      plan.open.contains("sequence_parallel"))
    return {};
  return Refusal{"tensor_overlap", std::string(ring ? "ring" : "true") +
                                       " runs beside products what sequence parallelism gathers and scatters; write "
                                       "plan.sequence_parallel: true, or leave it out"};
}

bool may_save_operators(const PlanRequest& plan) {
  const auto& modes = plan.recompute.value;
  const bool selective = std::ranges::find(modes, Recompute::Selective) != modes.end();
  return plan.recompute_modules.has(Module::Operators) && (selective || plan.open.contains("recompute"));
}

bool must_save_operators(const PlanRequest& plan) {
  const auto open = plan.open.find("recompute");
  return may_save_operators(plan) &&
         (open == plan.open.end() || open->second.among == std::vector<std::string>{"selective"});
}

std::optional<Refusal> operators_refusal(const Scenario& scenario) {
  if (!may_save_operators(scenario.plan)) return {};
  const auto refuse = [](const std::string& why) {
    return Refusal{"recompute_modules",
                   fmt::format("[operators]: {}; write recompute: blocks, or leave this out", why)};
  };
  if (scenario.training.low_precision.value != LowPrecision::None)
    return refuse("which products in fewer bits are saved is not known (training.low_precision)");
  if (scenario.training.framework.megatron())
    return refuse("its tensors are those of PyTorch's operators, not of training.framework");
  for (const Work& work : scenario.model.works)
    for (const Operator& op : work.operators)
      if (op.expert) return refuse("what is saved of experts is not known");
  return {};
}

}  // namespace pipewright::planner
