#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/divisors.hpp"
#include "core/model/each_device.hpp"
#include "core/question/profile.hpp"
#include "planner/refusals.hpp"
#include "planner/words.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

// Tokens that are not equal parts, or heads that do not divide.
std::optional<Refusal> refused_by(const Operator& op, const Scenario& scenario, std::int64_t inner) {
  const PlanRequest& plan = scenario.plan;
  const std::int64_t c = plan.context_parallel.value, t = plan.tensor_parallel.value;
  const std::int64_t parts = plan.context_split.value == ContextSplit::Zigzag && op.causal ? 2 * c : c;
  for (const double tokens : {op.attention.queries, op.attention.keys})
    if (const auto whole = static_cast<std::int64_t>(tokens); whole % parts != 0)
      return Refusal{
          "context_parallel",
          parts != c && whole % 2 != 0
              ? fmt::format("{} parts of {} tokens in zigzag need an even number of tokens; change it, or write "
                            "context_split: contiguous",
                            c, whole)
              : fmt::format("{} cuts {} tokens into {} parts, which are not equal; use {}", c, whole, parts,
                            divisors_in_words(parts == c ? whole : whole / 2, scenario.cluster.devices()))};
  const auto heads = static_cast<std::int64_t>(op.attention.heads),
             key_heads = static_cast<std::int64_t>(op.attention.key_heads);
  if (inner == 1 || (heads % (inner * t) == 0 && key_heads % (inner * t) == 0)) return std::nullopt;
  const bool two_level = plan.context_exchange.value == ContextExchange::TwoLevel;
  const std::int64_t common = std::gcd(heads, key_heads), of_member = common % t == 0 ? common / t : 1;
  return Refusal{
      two_level ? "context_inner" : "context_exchange",
      fmt::format(
          "gives each of {} devices a part of the heads, but {} heads and {} key heads do not divide by {}{}; use "
          "ring, all_gather, or {}: {}",
          inner, heads, key_heads, inner, t > 1 ? fmt::format(" x {} (tensor_parallel)", t) : "",
          two_level ? "context_inner" : "context_parallel",
          divisors_in_words(two_level ? std::gcd(of_member, c) : of_member, scenario.cluster.devices()))};
}

constexpr std::int64_t kMostEvenSlices = 1024;

bool has_each_slice(const MachineProfile& profile, const Scenario& scenario) {
  const auto slices = static_cast<int>(scenario.plan.slices->value);
  try {
    return has_slices(profile, of_slices(scenario.model, slices), slices);
  } catch (const InputError&) {  // what no run can cut was not measured either
    return false;
  }
}

// Slices of equal tokens: what attention takes of each pass has to be known.
std::string even_slices_refusal(const Scenario& scenario) {
  if (scenario.plan.context_parallel.value > 1)
    return "even: which tokens of a slice lie on which device of plan.context_parallel is not known; "
           "write balanced, or context_parallel: 1";
  if (scenario.plan.slices->value > kMostEvenSlices)
    return fmt::format("even: {} slices are more than the {} that are priced one by one; write balanced, or fewer",
                       scenario.plan.slices->value, kMostEvenSlices);
  if (scenario.cost == CostSourceKind::Profile && scenario.profile != nullptr)
    return has_each_slice(*scenario.profile, scenario) ? ""
                                                       : fmt::format(
                                                             "even: profile \"{}\" lacks slices of this model's "
                                                             "layers; calibrate this scenario, or write balanced",
                                                             scenario.profile->name);
  bool measured = false;
  for (int c = 0; c < scenario.cluster.classes(); ++c)
    measured |= scenario.cost == CostSourceKind::Roofline && scenario.cluster.device_of(c).measured != nullptr;
  if (measured)
    return "even: what was measured are whole layers, and nothing tells what of them attention takes; "
           "write balanced, or cost: roofline with a device that was not calibrated";
  for (const Layer& layer : scenario.model.layers) {
    if (layer.work < 0 || layer.states_times())
      return fmt::format(
          "even: the figures of layer \"{}\" are stated, and nothing tells what of them attention takes; "
          "write balanced, or a model built from operators",
          layer.name);
    for (const Operator& op : scenario.model.works[at(layer.work)].operators)
      if (op.module == Module::AttentionCore)
        return fmt::format(
            "even: \"{}\" of layer \"{}\" computes the pairs that its mask leaves out, too, which slices do not; "
            "write balanced, or model.attention: flash (kernel: flash of such an op)",
            op.name, layer.name);
  }
  return "";
}

// A layer that no part can be computed for was not measured either.
bool has_parts(const MachineProfile& profile, const Model& model, int parts) {
  try {
    return has_layers(profile, of_parts(model, parts));
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace

bool lacks_whole_layers(const Scenario& scenario) {
  return scenario.cost == CostSourceKind::Profile && scenario.profile != nullptr &&
         !has_layers(*scenario.profile, scenario.model);
}

std::string not_measured_with(std::int64_t devices, const Scenario& scenario) {
  return fmt::format(
      "{}: profile \"{}\" lacks layers of this model as {} computes them; calibrate a scenario with "
      "that, too, or leave it out",
      devices, scenario.profile->name, devices == 1 ? "one device alone" : fmt::format("each of {} devices", devices));
}

std::optional<Refusal> context_refusal(const Scenario& scenario) {
  const PlanRequest& plan = scenario.plan;
  const std::int64_t c = plan.context_parallel.value;
  const auto refuse = [](std::string key, std::string why) { return Refusal{std::move(key), std::move(why)}; };
  if (c < 2) {
    if (plan.open.contains("context_parallel") && plan.expert_parallel.value < 2 &&
        !plan.open.contains("expert_parallel") && lacks_whole_layers(scenario))
      return refuse("context_parallel", not_measured_with(1, scenario));
    return std::nullopt;
  }
  if (scenario.cost != CostSourceKind::Roofline && scenario.cost != CostSourceKind::Profile)
    return refuse("context_parallel",
                  fmt::format("{} divides sequences, which only cost: roofline and a profile calibrated with as many "
                              "devices can price; use 1, or cost: roofline",
                              c));
  if (scenario.cost == CostSourceKind::Profile) {
    if (plan.context_exchange.value != ContextExchange::Ring)
      return refuse("context_exchange", "a profile prices rings alone; write ring, or cost: roofline");
    if (plan.context_imbalance.value != 1)
      return refuse("context_imbalance", "is not what a run was measured with; leave it out, or write cost: roofline");
  }
  if (must_save_operators(plan))
    return refuse("context_parallel",
                  fmt::format("{}: what checkpoints by operator save of attention over a shared sequence is not known; "
                              "use 1, or recompute: blocks without recompute_modules",
                              c));
  const bool two_level = plan.context_exchange.value == ContextExchange::TwoLevel;
  const std::int64_t inner = two_level ? (plan.context_inner ? plan.context_inner->value : 0)
                             : plan.context_exchange.value == ContextExchange::AllToAll ? c
                                                                                        : 1;
  if (two_level && inner == 0)
    return refuse("context_inner",
                  fmt::format("is missing; two_level exchanges heads among that many of the {} devices: "
                              "write {}",
                              c, divisors_in_words(c)));
  if (inner > c || c % inner != 0)
    return refuse("context_inner",
                  fmt::format("{} does not divide plan.context_parallel: {}; use {}", inner, c, divisors_in_words(c)));
  if (!two_level && plan.context_inner)
    return refuse("context_inner", "belongs to context_exchange: two_level; write that, or leave it out");
  bool attention = false, causal = false;
  for (const Layer& layer : scenario.model.layers) {
    if (layer.work < 0 || layer.states_times())
      return refuse(
          "context_parallel",
          fmt::format("{}, but the figures of layer \"{}\" are stated, and nothing tells what of them a part of "
                      "a sequence takes; use 1, or a model built from operators",
                      c, layer.name));
    const Work& work = scenario.model.works[at(layer.work)];
    for (const Operator& op : work.operators)
      if (needs_whole_sequences(op))
        return refuse("context_parallel",
                      fmt::format("{}, but \"{}\" of layer \"{}\" needs whole sequences; use 1{}", c, op.name,
                                  layer.name, op.module == Module::AttentionCore ? ", or model.attention: flash" : ""));
    for (const Operator& op : work.operators) {
      if (op.attention.heads <= 0) continue;
      attention = true, causal = causal || op.causal;
      if (auto refused = refused_by(op, scenario, inner)) return refused;
    }
  }
  if (causal && scenario.cost == CostSourceKind::Profile && plan.context_split.value == ContextSplit::Contiguous)
    return refuse(
        "context_split",
        "contiguous parts differ in work, and a profile has the mean of all; write zigzag, or cost: roofline");
  if (!attention)
    return refuse("context_parallel", fmt::format("{}, but the model has no attention over a sequence; use 1", c));
  if (scenario.cost == CostSourceKind::Profile && scenario.profile != nullptr &&
      !has_parts(*scenario.profile, scenario.model, static_cast<int>(c)))
    return refuse("context_parallel", not_measured_with(c, scenario));
  return std::nullopt;
}

std::optional<Refusal> slices_refusal(const Scenario& scenario, const Plan& plan) {
  if (!plan.slices) return std::nullopt;
  const std::int64_t slices = plan.slices->value;
  const auto refuse = [&](std::string why) { return Refusal{"slices", fmt::format("{} {}", slices, std::move(why))}; };
  if (!plan.facts.states_slices)
    return refuse(
        fmt::format("cuts sequences, which {} does not; use schedule: {}, or leave it out", plan.schedule,
                    listed(schedule_names([](const ScheduleRule& each) { return each.facts.states_slices; }), "or")));
  if (plan.last_micro_batch_size != plan.micro_batch_size)
    return refuse("cuts micro-batches of equal size; use a global_batch_size that micro_batch_size divides");
  double tokens = static_cast<double>(kMostMicroBatches) / static_cast<double>(plan.micro_batches);
  for (const Layer& layer : scenario.model.layers) {
    if (layer.work < 0) continue;
    for (const Operator& op : scenario.model.works[at(layer.work)].operators) {
      if (op.module == Module::StateSpace)
        return refuse(
            fmt::format("cuts sequences, but \"{}\" of layer \"{}\" goes on from the state of the tokens before, "
                        "which is not kept from slice to slice; use 1",
                        op.name, layer.name));
      if (op.attention.heads <= 0) continue;
      if (!op.causal)
        return refuse(fmt::format("cuts sequences, but in \"{}\" of layer \"{}\" tokens read later ones; use 1",
                                  op.name, layer.name));
      tokens = std::min(tokens, op.attention.queries);
    }
  }
  if (static_cast<double>(slices) > tokens)
    return refuse(fmt::format("parts of a sequence are too many; at most {:.0f}", std::floor(tokens)));
  if (plan.uneven_slices())
    if (std::string why = even_slices_refusal(scenario); !why.empty()) return Refusal{"slice_lengths", std::move(why)};
  return std::nullopt;
}

}  // namespace pipewright::planner
