#include "runtime/runnable.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "runtime/operations.hpp"

namespace pipewright::runtime {
namespace {

std::string refusal(const Model& model, const Layer& layer, const Backend* backend) {
  if (layer.work < 0) return "has stated figures only; give it an `op:`, or run with --synthetic";
  const Work& work = model.works[at(layer.work)];
  const Program* program = work.program.get();
  if (program == nullptr) return "has no program";
  if (work.frozen)
    return "has frozen weights (model.lora_rank), and runs train all; leave it out, or run with --synthetic";
  if (program->extra_parameters > 0) return "has parameters that no operation uses: they are counted, not trained";
  if (program->outputs.size() != 1) return "hands on several tensors, which no run does yet";
  if (program->inputs.size() != std::max<std::size_t>(1, layer.inputs.size()))
    return "reads the model's input together with other layers' outputs, which no run does yet";
  for (const ProgramStep& step : program->steps) {
    try {
      rule_of(*program, step);
    } catch (const InputError& error) {
      return error.what();
    }
    for (const std::int32_t input : step.inputs)
      if (program->tensors[at(input)].indices && step.operation != "embedding")
        return std::string(step.operation) + " reads token numbers; let an embedding be the first operation";
    if (std::string why = backend == nullptr ? "" : backend->refusal(*program, step); !why.empty()) return why;
  }
  return "";
}

// One loss, of which nothing else is made: all samples count once, and the gradient begins there.
std::string refusal_of_losses(const Model& model) {
  std::vector<char> used(model.layers.size());
  for (const Layer& layer : model.layers)
    for (const LayerId input : layer.inputs)
      used[at(input)] = 1;
  int losses = 0;
  bool last = true;
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    if (model.layers[i].work < 0) continue;
    const Program* program = model.works[at(model.layers[i].work)].program.get();
    if (program == nullptr) continue;
    for (std::size_t s = 0; s < program->steps.size(); ++s)
      if (program->steps[s].operation == "cross_entropy") {
        ++losses;
        last = last && s + 1 == program->steps.size() && used[i] == 0;
      }
  }
  if (losses == 1 && last) return "";
  return "model \"" + model.name + "\" cannot be run: it has " +
         (losses == 0   ? "no loss; end it with {op: cross_entropy}"
          : losses == 1 ? "layers behind its loss; let cross_entropy be the last operation"
                        : std::to_string(losses) + " losses; keep one");
}

template <class Refuse>
void refuse_exchanges(const Plan& plan, const Training& training, const Refuse& refuse) {
  if (!plan.split().sends_tokens()) return;
  if (plan.split().expert_split() > 1)
    refuse("plan.expert_tensor_parallel", "a run computes whole experts; leave it out");
  if (training.zero > 0)
    refuse("training.zero",
           "a run with experts on several devices divides nothing else; use 0, or plan.expert_parallel: 1",
           training.zero_place);
  if (plan.expert_exchange.value != ExpertExchange::AllToAll)
    refuse("plan.expert_exchange", "a run sends each device the rows of its experts; write all_to_all, or leave it out",
           plan.expert_exchange.place);
  if (plan.expert_capacity || plan.expert_padding)
    refuse("plan.expert_capacity", "a run gives all experts as many rows, of which none is dropped; leave it out");
  if (plan.expert_dispatch_fp8)
    refuse("plan.expert_dispatch_fp8", "a run sends rows in training.precision; leave it out");
  if (plan.expert_nodes) refuse("plan.expert_nodes", "a run sends each row to its expert alone; leave it out");
  if (plan.shared_experts_beside.value)
    refuse("plan.shared_experts_beside", "a run computes one layer after the other; leave it out");
}

}  // namespace

const char* name_of(Precision precision) {
  constexpr std::array kNames = {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"};  // in the order of Precision
  return kNames[at(precision)];
}

std::string layers_refused(const Model& model) {
  for (const Layer& layer : model.layers)
    if (const std::string why = refusal(model, layer, nullptr); !why.empty())
      return "layer \"" + layer.name + "\" cannot be run: " + why;
  return refusal_of_losses(model);
}

void check_runnable(const Plan& plan, const Model& model, const Training& training, const Backend& backend) {
  std::vector<Fault> faults;
  const auto refuse = [&](const char* key, const std::string& why, const Place& place = {}) {
    faults.push_back({place == Place{} ? training.place : place, key, why});
  };
  if (training.precision != backend.precision())
    refuse("training.precision", "backend " + backend.name() + " computes in " + name_of(backend.precision()));
  else if (gradient_bytes(training).value != 4)
    refuse("training.gradient_precision", "a run sums gradients in fp32; write gradient_precision: fp32");
  if (plan.slices_of_each() > 1) {
    if (plan.slice_lengths.value != SliceLengths::Even)
      refuse("plan.slice_lengths", "balanced: a run cuts sequences into slices of equal tokens; write even",
             plan.slice_lengths.place);
    if (plan.context_parallel > 1)
      refuse("plan.slices",
             "a run whose copies share sequences computes their parts whole; use 1, or context_parallel: 1",
             plan.slices->place);
    if (!backend.shares_sequences())
      refuse("plan.slices", "backend " + backend.name() + " computes whole sequences; use 1, or backend: cpu",
             plan.slices->place);
  }
  if (plan.tensor_parallel > 1) refuse("plan.tensor_parallel", "a run has one device per worker; use 1");
  if (plan.context_parallel > 1 && !backend.shares_sequences())
    refuse("plan.context_parallel", "backend " + backend.name() + " computes whole sequences; use 1, or backend: cpu");
  if (plan.context_parallel > 1 && plan.context_exchange.value != ContextExchange::Ring)
    refuse("plan.context_exchange", "a run sends keys and values round a ring; write ring, or leave it out",
           plan.context_exchange.place);
  if (plan.context_imbalance.value != 1)
    refuse("plan.context_imbalance", "a run has no documents to pack; leave it out", plan.context_imbalance.place);
  if (plan.expert_imbalance.value != 1)
    refuse("plan.expert_imbalance", "a run gives all experts as many rows; leave it out", plan.expert_imbalance.place);
  if (plan.expert_imbalance_memory && plan.expert_imbalance_memory->value != 1)
    refuse("plan.expert_imbalance_memory", "a run gives all experts as many rows; leave it out",
           plan.expert_imbalance_memory->place);
  refuse_exchanges(plan, training, refuse);
  if (plan.pairs.value == Pairs::Fused && training.zero > 0)
    refuse("plan.pairs",
           "a run divides nothing among copies where the ops of a cell take turns; write serial, or zero: 0",
           plan.pairs.place);
  if (training.clip_grad_norm) refuse("training.clip_grad_norm", "a run does not scale gradients down; leave it out");
  if (plan.barrier.value != Barrier::Flush) refuse("plan.barrier", "a run ends a step on all stages; write flush");
  if (training.low_precision.value != LowPrecision::None)
    faults.push_back({training.low_precision.place, "training.low_precision",
                      "a run computes in training.precision alone; leave it out"});
  if (training.zero > 0 && plan.shard > 0 && plan.shard < plan.data_parallel)
    refuse("plan.data_parallel_shard", "a run divides what training.zero says among all copies; leave it out");
  if (training.framework != FrameworkMemory{})
    refuse("training.framework",
           "only predictions use it; a real run holds the tensors of its operators; leave it out");
  std::set<std::string> reported;
  for (const Layer& layer : model.layers)
    if (const std::string why = refusal(model, layer, &backend); !why.empty() && reported.insert(why).second)
      faults.push_back({layer.place, "", "layer \"" + layer.name + "\" cannot be run: " + why});
  if (const std::string why = refusal_of_losses(model); !why.empty() && faults.empty())
    faults.push_back({model.place, "", why});
  if (std::ranges::any_of(plan.recompute,
                          [](Recompute mode) { return mode != Recompute::None && mode != Recompute::Full; }))
    faults.push_back(
        {model.place, "plan.recompute", "a run keeps everything (none) or the boundary of a stage (full)"});
  if (!faults.empty()) throw InputError(std::move(faults));
}

}  // namespace pipewright::runtime
