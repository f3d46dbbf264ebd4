#include "core/cost/framework_memory.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace pipewright {
namespace {

constexpr double kLogitBytesKept = 4;         // fp32 probabilities, from the loss to its backward
constexpr double kMegatronLogitBytes = 6;     // with the bf16 logits
constexpr double kLossBytesPerToken = 38;     // targets, masks, maxima, sums and losses of the loss
constexpr double kBatchBytesPerToken = 28;    // tokens, labels, positions (8 B each) and the loss mask (4 B)
constexpr std::int64_t kBetweenSteps = 3584;  // scalars that stay after a step: losses, norms, scales

Bytes whole(double bytes) {
  return {rounded(std::ceil(bytes), "a size")};
}

// A step of a program with its tensors' figures, for one sample.
struct StepFigures {
  double in, out;  // values
  std::int64_t in_features, out_features;
};
StepFigures figures_of(const Program& program, const ProgramStep& step) {
  const auto shape = [&](std::int32_t tensor) { return program.tensors[static_cast<std::size_t>(tensor)].shape; };
  const Shape in = step.inputs.empty() ? shape(step.output) : shape(step.inputs.front()), out = shape(step.output);
  return {in.elements(), out.elements(), in[in.rank - 1], out[out.rank - 1]};
}

double divided(std::int64_t features, int degree) {
  return static_cast<double>((features + degree - 1) / degree);
}

const AttentionCore* first_attention(const Model& model) {
  for (const Work& work : model.works)
    if (const Program* program = work.program.get())
      for (const ProgramStep& step : program->steps)
        if (const auto* core = std::get_if<AttentionCore>(&step.spec)) return core;
  return nullptr;
}

// Sums up one layer's part, for `samples`.
class Sum {
 public:
  Sum(const FrameworkMemory& framework, TensorParallel split, Bytes per_value, std::int64_t samples)
      : framework_(framework),
        t_(split.degree),
        sequence_parallel_(split.sequence_parallel && split.degree > 1),
        each_(static_cast<double>(per_value.value)),
        samples_(static_cast<double>(samples)) {}

  void add(const Program& program, const ProgramStep& step) {
    const StepFigures of = figures_of(program, step);
    if (const auto* norm = std::get_if<NormSpec>(&step.spec))
      add_norm(*norm, of);
    else if (const auto* linear = std::get_if<Linear>(&step.spec))
      add_linear(*linear, of);
    else if (const auto* core = std::get_if<AttentionCore>(&step.spec))
      add_attention(*core, of);
    else if (step.operation == "gated" && framework_.gate_kept)
      stash_ += samples_ * of.out * each_ / t_;
  }

  BesideOperators done() const {
    return {whole(stash_ + core_), whole(core_), whole(fewer_logits_), whole(workspace_), framework_.megatron()};
  }

 private:
  void add_norm(const NormSpec& norm, const StepFigures& of) {
    if (!framework_.megatron() || (norm.kind != Norm::Layer && norm.kind != Norm::Rms)) return;
    const double rows = samples_ * of.in / static_cast<double>(of.in_features);
    stash_ += rows * (norm.kind == Norm::Layer ? 8 : 4) / (sequence_parallel_ ? t_ : 1);
  }

  void add_attention(const AttentionCore& core, const StepFigures& of) {
    if (core.flash && framework_.attention_copy) stash_ += samples_ * of.out * each_ / t_;
    if (!core.flash && framework_.fp32_softmax)
      core_ += samples_ * (4 - each_) * static_cast<double>(core.heads) * static_cast<double>(core.queries) *
               static_cast<double>(core.keys) / t_;
  }

  void add_linear(const Linear& linear, const StepFigures& of) {
    if (linear.split != Split::Columns) return;
    const double tokens = samples_ * of.in / static_cast<double>(of.in_features);
    const double features = divided(of.out_features, t_), weight = features * static_cast<double>(of.in_features);
    if (linear.logits) return add_head(tokens, features, weight, samples_ * of.in * each_);
    if (sequence_parallel_ && framework_.gathered_inputs) stash_ += samples_ * of.in * each_ * (1 - 1.0 / t_);
    if (!framework_.megatron()) return;
    const bool separate = framework_.weight_gradients == WeightGradients::Separate;
    workspace_ = std::max(workspace_, each_ * (tokens * features + (separate ? weight : 0)));
  }

  void add_head(double tokens, double features, double weight, double gathered) {
    const double logits = tokens * features;
    const double most = static_cast<double>(framework_.logit_bytes.value_or(
        static_cast<std::int64_t>(framework_.megatron() ? kMegatronLogitBytes : kLogitBytesKept)));
    const double kept = std::min(kLogitBytesKept, most);
    fewer_logits_ = (kLogitBytesKept - kept) * logits;
    double held = most * logits;
    if (framework_.megatron()) {
      held = std::max(held, each_ * (logits + weight)) + kLossBytesPerToken * tokens;
      if (sequence_parallel_) held += gathered;
    }
    workspace_ = std::max(workspace_, held - kept * logits);
  }

  const FrameworkMemory& framework_;
  const int t_;
  const bool sequence_parallel_;
  const double each_, samples_;
  double stash_ = 0, core_ = 0, fewer_logits_ = 0, workspace_ = 0;
};

// One buffer per shape of a weight in the stage's blocks.
Bytes placeholders(const Plan& plan, const Scenario& scenario, StageId stage) {
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  const int t = plan.tensor_parallel;
  for (VirtualStageId v = stage; v < plan.chunks(); v += plan.stages) {
    const LayerRange range = plan.layers[static_cast<std::size_t>(v)];
    for (LayerId i = range.begin; i < range.end; ++i) {
      const Layer& layer = scenario.model.layers[static_cast<std::size_t>(i)];
      const Program* program =
          layer.work < 0 ? nullptr : scenario.model.works[static_cast<std::size_t>(layer.work)].program.get();
      if (program == nullptr) continue;
      for (const ProgramStep& step : program->steps) {
        const auto* linear = std::get_if<Linear>(&step.spec);
        if (linear == nullptr || linear->logits || linear->split == Split::None) continue;
        const StepFigures of = figures_of(*program, step);
        const bool columns = linear->split == Split::Columns;
        shapes.emplace(columns ? of.out_features / t : of.out_features, columns ? of.in_features : of.in_features / t);
      }
    }
  }
  Bytes sum;
  for (const auto& [rows, columns] : shapes)
    sum = checked_sum(sum, Bytes{checked_product(checked_product(rows, columns, "a weight"),
                                                 weight_bytes(scenario.training.precision).value, "a weight")});
  return sum;
}

// The largest tensor that a stage sends or receives for one micro-batch.
Bytes message(const Plan& plan, const Model& model, StageId stage) {
  Bytes largest;
  for (VirtualStageId v = stage; v < plan.chunks(); v += plan.stages) {
    const LayerRange range = plan.layers[static_cast<std::size_t>(v)];
    const LayerId edge = v > 0 ? range.begin - 1 : range.end - 1;
    if (edge < 0) continue;
    largest = std::max(
        largest, scaled(model.layers[static_cast<std::size_t>(edge)].activation, plan.micro_batch_size, model.batch));
  }
  return largest;
}

FixedMemory fixed_of(const MemoryModel& memory, const Plan& plan, const Scenario& scenario, StageId stage) {
  const Training& training = scenario.training;
  const FrameworkMemory& framework = training.framework;
  const double samples = static_cast<double>(plan.micro_batch_size), t = plan.tensor_parallel;
  const AttentionCore* const core = first_attention(scenario.model);
  const double pairs = core == nullptr ? 0 : static_cast<double>(core->queries) * static_cast<double>(core->keys);
  const double tokens = core == nullptr ? 0 : samples * static_cast<double>(core->queries);
  const Bytes mask = whole(framework.attention_mask ? samples * pairs : 0);
  FixedMemory fixed{.always = framework.workspace, .running = {}, .between = Bytes{kBetweenSteps}};
  if (framework.weight_gradients == WeightGradients::FusedKept)
    fixed.always = checked_sum(fixed.always, placeholders(plan, scenario, stage));
  if (framework.tensors == FrameworkTensors::MegatronLocal && core != nullptr && !core->flash)
    fixed.always = checked_sum(fixed.always, whole(2 * static_cast<double>(core->heads) * pairs * samples / t));
  // The first stage's tokens are stash: its boundary.
  fixed.running = checked_sum(mask, whole((stage == 0 ? kBatchBytesPerToken - 8 : kBatchBytesPerToken) * tokens));
  if (plan.stages > 1) {
    const Bytes u = message(plan, scenario.model, stage);
    const bool one = plan.virtual_stages == 1;
    const Bytes next = one ? mask : Bytes{};
    fixed.running = checked_sum(checked_sum(fixed.running, (one ? 2 : 3) * u), next);
    fixed.between = checked_sum(checked_sum(fixed.between, std::int64_t{2} * plan.virtual_stages * u), next);
  }
  if (training.precision == Precision::Fp16 && gradient_bytes(training).value == 2) {
    const Bytes states = optimizer_bytes(training.precision, training.optimizer);
    for (VirtualStageId v = stage; v < plan.chunks(); v += plan.stages)
      fixed.between = checked_sum(fixed.between,
                                  Bytes{memory.chunks[static_cast<std::size_t>(v)].optimizer.value / states.value * 4});
  }
  return fixed;
}

}  // namespace

BesideOperators beside_operators(const Work& work, const FrameworkMemory& framework, TensorParallel split,
                                 Bytes per_value, std::int64_t samples) {
  Sum sum(framework, split, per_value, samples);
  if (const Program* program = work.program.get())
    for (const ProgramStep& step : program->steps)
      sum.add(*program, step);
  return sum.done();
}

Bytes table_gradient(const Work& work, TensorParallel split, Bytes per_value) {
  const Program* const program = work.program.get();
  if (program == nullptr) return {};
  for (const ProgramStep& step : program->steps)
    if (const auto* table = std::get_if<Embedding>(&step.spec))
      return whole(divided(table->vocabulary, split.degree) *
                   static_cast<double>(figures_of(*program, step).out_features) * static_cast<double>(per_value.value));
  return {};
}

void add_fixed(MemoryModel& memory, const Plan& plan, const Scenario& scenario) {
  const FrameworkMemory& framework = scenario.training.framework;
  memory.reduces_in_place = framework.reduces_in_place();
  if (!framework.megatron()) return;
  for (StageId k = 0; k < plan.stages; ++k)
    memory.fixed.push_back(fixed_of(memory, plan, scenario, k));
}

}  // namespace pipewright
