#include "core/cost/framework_memory.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "core/cost/context_exchange.hpp"
#include "core/plan/plan.hpp"
#include "core/question/memory_anchor.hpp"

namespace pipewright::core {
namespace {

constexpr double kLogitBytesKept = 4;         // fp32 probabilities, from the loss to its backward
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
  Sum(const FrameworkMemory& framework, TensorParallel split, Bytes per_value, double samples, bool frozen)
      : framework_(framework),
        frozen_(frozen),
        t_(split.degree),
        sequence_parallel_(split.sequence_parallel && split.degree > 1),
        each_(static_cast<double>(per_value.value)),
        samples_(samples) {}

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
    return {whole(stash_ + core_), whole(core_), logits_, whole(workspace_), framework_.megatron()};
  }

 private:
  void add_norm(const NormSpec& norm, const StepFigures& of) {
    if (!framework_.megatron() || (norm.kind != Norm::Layer && norm.kind != Norm::Rms)) return;
    const double rows = samples_ * of.in / static_cast<double>(of.in_features);
    stash_ += rows * (norm.kind == Norm::Layer ? 8 : 4) / (sequence_parallel_ ? t_ : 1);
  }

  void add_attention(const AttentionCore& core, const StepFigures& of) {
    // Of one product of queries, keys and values; that of other attentions is divided as it stands.
    if (framework_.copied_inputs && t_ > 1 && !sequence_parallel_ && openings_ == 1) stash_ += 2 * opened_;
    openings_ = 0;
    if (core.flash && framework_.attention_copy) stash_ += samples_ * of.out * each_ / t_;
    if (!core.flash && framework_.fp32_softmax)
      core_ += samples_ * (4 - each_) * static_cast<double>(core.heads) * static_cast<double>(core.queries) *
               static_cast<double>(core.keys) / t_;
  }

  void add_linear(const Linear& linear, const StepFigures& of) {
    if (linear.split != Split::Columns) return;
    const double tokens = samples_ * of.in / static_cast<double>(of.in_features);
    const auto weight_of = [&](double features) {  // its gradient
      return frozen_ ? 0 : features * static_cast<double>(of.in_features);
    };
    if (linear.logits) {
      const auto rows = static_cast<double>(framework_.rows_of_table(of.out_features, t_));
      return add_head(tokens * rows, tokens, weight_of(rows), samples_ * of.in * each_);
    }
    ++openings_, opened_ = samples_ * of.in * each_;
    const double features = divided(of.out_features, t_);
    if (sequence_parallel_ && framework_.gathered_inputs) stash_ += samples_ * of.in * each_ * (1 - 1.0 / t_);
    if (!framework_.megatron()) return;
    const bool separate = framework_.weight_gradients == WeightGradients::Separate;
    workspace_ = std::max(workspace_, each_ * (tokens * features + (separate ? weight_of(features) : 0)));
  }

  void add_head(double logits, double tokens, double weight, double gathered) {
    if (!framework_.megatron() && !framework_.logit_bytes && !framework_.vocabulary_multiple) return;
    const auto most = static_cast<double>(framework_.bytes_of_logit());
    const double kept = std::min(kLogitBytesKept, most);
    logits_ = checked_sum(logits_.value_or(Bytes{}), whole(kept * logits));
    double held = most * logits;
    if (framework_.megatron()) {
      held = std::max(held, each_ * (logits + weight)) + kLossBytesPerToken * tokens;
      if (sequence_parallel_) held += gathered;
    }
    workspace_ = std::max(workspace_, held - kept * logits);
  }

  const FrameworkMemory& framework_;
  const bool frozen_;
  const int t_;
  const bool sequence_parallel_;
  const double each_, samples_;
  double stash_ = 0, core_ = 0, workspace_ = 0;
  double opened_ = 0;  // input of the last product that divides its columns
  int openings_ = 0;   // such products since the last attention
  std::optional<Bytes> logits_;
};

// One buffer per shape of a weight in the stage's blocks.
Bytes dummy_gradients(const Plan& plan, const Scenario& scenario, StageId stage) {
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  const int t = plan.tensor_parallel;
  for (int part = 0; part < plan.seating().held(); ++part) {
    const VirtualStageId v = plan.seating().chunk_of(stage, part);
    const LayerRange range = plan.layers[static_cast<std::size_t>(v)];
    for (LayerId i = range.begin; i < range.end; ++i) {
      const Layer& layer = scenario.model.layers[i];
      const Program* program =
          layer.work < 0 ? nullptr : scenario.model.works[static_cast<std::size_t>(layer.work)].program.get();
      if (program == nullptr || layer.trained_on_device) continue;
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
Bytes message(const Plan& plan, const Scenario& scenario, StageId stage) {
  const Model& model = scenario.model;
  Bytes largest;
  for (int i = 0; i < plan.seating().held(); ++i) {
    const VirtualStageId v = plan.seating().chunk_of(stage, i);
    const LayerRange range = plan.layers[static_cast<std::size_t>(v)];
    const LayerId edge = v > 0 ? range.begin - 1 : range.end - 1;
    if (edge < 0) continue;
    largest = std::max(largest, scaled(model.layers[edge].activation, plan.micro_batch_size, model.batch));
  }
  return slice_part(context_part(largest, scenario.plan), scenario.plan);
}

FixedMemory fixed_of(const MemoryModel& memory, const Plan& plan, const Scenario& scenario, StageId stage) {
  const Training& training = scenario.training;
  const FrameworkMemory& framework = training.framework;
  const double samples = static_cast<double>(plan.micro_batch_size), t = plan.tensor_parallel;
  const AttentionCore* const core = first_attention(scenario.model);
  const double pairs = core == nullptr ? 0 : static_cast<double>(core->queries) * static_cast<double>(core->keys);
  const double tokens = core == nullptr ? 0 : samples * static_cast<double>(core->queries) / plan.context_parallel;
  // Whole with context parallelism, too: tests with it hold so much between steps.
  const Bytes mask = whole(framework.attention_mask ? samples * pairs : 0);
  FixedMemory fixed{.always = framework.workspace, .running = {}, .between = Bytes{kBetweenSteps}};
  if (framework.weight_gradients == WeightGradients::FusedKept)
    fixed.always = checked_sum(fixed.always, dummy_gradients(plan, scenario, stage));
  if (framework.tensors == FrameworkTensors::MegatronLocal && core != nullptr && !core->flash)
    fixed.always = checked_sum(fixed.always, whole(2 * static_cast<double>(core->heads) * pairs * samples / t));
  // The first stage's tokens are stash: its boundary.
  fixed.running = checked_sum(mask, whole((stage == 0 ? kBatchBytesPerToken - 8 : kBatchBytesPerToken) * tokens));
  if (plan.stages > 1) {
    const Bytes u = message(plan, scenario, stage);
    const int held = plan.seating().held();
    const bool one = held == 1;
    const Bytes next = one ? mask : Bytes{};
    fixed.running = checked_sum(checked_sum(fixed.running, (one ? 2 : 3) * u), next);
    fixed.between = checked_sum(checked_sum(fixed.between, std::int64_t{2} * held * u), next);
  }
  if (training.precision == Precision::Fp16 && gradient_bytes(training).value == 2) {
    const Bytes states = optimizer_bytes(training);
    for (int i = 0; i < plan.seating().held(); ++i)
      fixed.between = checked_sum(
          fixed.between, Bytes{memory.chunks[plan.seating().chunk_of(stage, i)].optimizer.value / states.value * 4});
  }
  return fixed;
}

// The first step's loss, before Adam's states are there.
void add_first_step(MemoryModel& memory, const Plan& plan, const Scenario& scenario) {
  const Training& training = scenario.training;
  const FrameworkMemory& framework = training.framework;
  const std::int64_t most = framework.bytes_of_logit(), states = optimizer_bytes(training).value;
  const std::int64_t later = states - master_bytes(training).value;
  for (StageId k = 0; k < plan.stages; ++k) {
    double missing = 0;
    const Seating seating = plan.seating();
    for (int i = 0; i < seating.held() && states > 0; ++i)
      missing += static_cast<double>(memory.chunks[seating.chunk_of(k, i)].optimizer.value) *
                 static_cast<double>(later) / static_cast<double>(states);
    for (int i = 0; i < seating.lying(); ++i) {
      ChunkMemory& chunk = memory.chunks[seating.chunk_of(k, i)];
      for (std::size_t size = 0; size < chunk.logits.size(); ++size) {
        const double logits =
            static_cast<double>(chunk.logits[size].value) / std::min(kLogitBytesKept, static_cast<double>(most));
        const double more = static_cast<double>(*framework.first_logit_bytes - most) * logits - missing;
        if (more > 0) chunk.workspace[size] = checked_sum(chunk.workspace[size], whole(more));
      }
    }
  }
}

}  // namespace

BesideOperators beside_operators(const Work& work, const FrameworkMemory& framework, TensorParallel split,
                                 Bytes per_value, double samples) {
  Sum sum(framework, split, per_value, samples, work.frozen);
  if (const Program* program = work.program.get())
    for (const ProgramStep& step : program->steps)
      sum.add(*program, step);
  return sum.done();
}

std::int64_t communicating_groups(const Plan& plan, const Scenario& scenario, StageId k) {
  const FrameworkMemory& framework = scenario.training.framework;
  const bool at_end = plan.stages > 1 && (k == 0 || k == plan.stages - 1);
  const std::int64_t more = at_end ? framework.end_communicators : 0;
  if (framework.communicators) return checked_sum(*framework.communicators, more, "the groups");
  const int copies = plan.seating().members(plan.seating().chunk_of(k, 0)), inside = plan.sharded_over(k);
  const bool hybrid = inside > 1 && inside < copies;  // a group that shares, and one that holds the same
  return more + (plan.tensor_parallel > 1 ? 1 : 0) + (copies > 1 ? 1 : 0) + (hybrid ? 1 : 0) +
         (plan.stages > 1 ? 1 : 0) + (plan.context_parallel > 1 ? 1 : 0) + (plan.split().sends_tokens() ? 1 : 0) +
         (plan.split().sends_tokens() && plan.expert_copies() > 1 ? 1 : 0);
}

Bytes communicators(const Plan& plan, const Scenario& scenario, StageId k) {
  const std::int64_t in_reserve = correction_of(scenario).reserve ? 0 : 1;
  const std::int64_t beyond = std::max<std::int64_t>(communicating_groups(plan, scenario, k) - in_reserve, 0);
  const Device& device = scenario.cluster.device_of(class_of_stage(plan, scenario.cluster, k));
  return {checked_product(beyond, device.communicator.value, "the memory of communicators")};
}

const MemoryCorrection& correction_of(const Scenario& scenario) {
  static const MemoryCorrection none;
  const FrameworkMemory& framework = scenario.training.framework;
  if (framework.anchor && !framework.correction)
    throw InputError(framework.anchor->place, "training.framework.anchor",
                     "this command does not use it; remove the key");
  return framework.correction ? *framework.correction : none;
}

std::string_view memory_verdict(const MemoryNeed& need) {
  return need.high <= need.capacity ? "fits" : need.with_reserve <= need.capacity ? "at risk" : "out of memory";
}

double activation_band(const Scenario& scenario) {
  if (scenario.model.works.empty()) return 0;
  const double of_run = correction_of(scenario).band;
  switch (scenario.training.framework.tensors) {
    case FrameworkTensors::None: break;
    case FrameworkTensors::MegatronLocal: return std::max(kLocalBand, of_run);
    case FrameworkTensors::Megatron: return std::max(kFrameworkBand, of_run);
  }
  return std::max(kActivationBand, of_run);
}

Bytes table_gradient(const Work& work, const FrameworkMemory& framework, TensorParallel split, Bytes per_value) {
  const Program* const program = work.program.get();
  if (program == nullptr || work.frozen) return {};
  for (const ProgramStep& step : program->steps)
    if (const auto* table = std::get_if<Embedding>(&step.spec))
      return {checked_product(checked_product(framework.rows_of_table(table->vocabulary, split.degree),
                                              figures_of(*program, step).out_features, "a table"),
                              per_value.value, "a table")};
  return {};
}

std::int64_t padding(const Work& work, const FrameworkMemory& framework, int tensor_parallel, bool tied) {
  const Program* const program = work.program.get();
  if (program == nullptr || !work.split_vocabulary) return 0;
  const auto added = [&](std::int64_t vocabulary, std::int64_t features) {
    const std::int64_t rows = framework.rows_of_table(vocabulary, tensor_parallel);
    if (rows == vocabulary / tensor_parallel + (vocabulary % tensor_parallel != 0 ? 1 : 0)) return std::int64_t{0};
    // A device holds its share of all values of the table (Layer::held).
    const std::int64_t values = checked_product(vocabulary, features, "a table");
    return checked_product(rows, features, "a table") - (values + tensor_parallel - 1) / tensor_parallel;
  };
  std::int64_t values = 0;
  for (const ProgramStep& step : program->steps) {
    const auto* table = std::get_if<Embedding>(&step.spec);
    const auto* linear = std::get_if<Linear>(&step.spec);
    const bool logits =
        linear != nullptr && linear->logits && linear->split == Split::Columns && (tied || !linear->tied);
    if (table == nullptr && !logits) continue;
    const StepFigures of = figures_of(*program, step);
    values += table != nullptr ? added(table->vocabulary, of.out_features) : added(of.out_features, of.in_features);
  }
  return values;
}

void add_fixed(MemoryModel& memory, const Plan& plan, const Scenario& scenario) {
  const FrameworkMemory& framework = scenario.training.framework;
  memory.reduces_in_place = framework.reduces_in_place();
  if (!framework.megatron()) return;
  for (StageId k = 0; k < plan.stages; ++k)
    memory.fixed.push_back(fixed_of(memory, plan, scenario, k));
  if (framework.first_logit_bytes) add_first_step(memory, plan, scenario);
}

}  // namespace pipewright::core
