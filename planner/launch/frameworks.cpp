#include "planner/launch/frameworks.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/memory_model.hpp"
#include "core/model/families/described.hpp"

namespace pipewright::planner {
namespace {

using Words = std::string_view;
constexpr std::array<Words, 3> kMegatronRecompute = {"none", "selective", "blocks"};
constexpr std::array<Words, 3> kTorchtitanRecompute = {"none", "selective", "blocks"};
constexpr std::array<Words, 3> kTorchRecompute = {"none", "knapsack", "full"};
constexpr std::array<std::int64_t, 4> kZeros = {0, 1, 2, 3};
constexpr std::array<std::int64_t, 2> kTorchtitanZeros = {0, 3}, kTorchZeros = {0, 1};
constexpr std::array<ContextExchange, 4> kMegatronContext = {ContextExchange::Ring, ContextExchange::AllGather,
                                                             ContextExchange::AllToAll, ContextExchange::TwoLevel};
constexpr std::array<ContextExchange, 1> kTorchtitanContext = {ContextExchange::AllGather};
constexpr std::array<Words, 3> kDeepSpeedRecompute = {"none", "blocks", "full"};

constexpr std::array<FrameworkWords, 4> kFrameworks = {{
    {.word = "megatron",
     .name = "Megatron-LM",
     .framework = Framework::Megatron,
     .runs = [](const ScheduleRule& rule) { return rule.in_megatron; },
     .recompute = kMegatronRecompute,
     .one_recompute = true,
     .chunks = true,
     .own_cuts = false,
     .pipeline_placement = true,
     .zeros = kZeros,
     .zeros_in_pipelines = false,
     .gradient_sync = std::nullopt,
     .context = kMegatronContext,
     .stops_early = false},
    {.word = "torchtitan",
     .name = "torchtitan",
     .framework = Framework::Torchtitan,
     .runs = [](const ScheduleRule& rule) { return !rule.facts.pytorch.empty(); },
     .recompute = kTorchtitanRecompute,
     .one_recompute = true,
     .chunks = true,
     .own_cuts = false,
     .pipeline_placement = false,
     .zeros = kTorchtitanZeros,
     .zeros_in_pipelines = true,
     .gradient_sync = GradientSync::Overlapped,
     .context = kTorchtitanContext,
     .stops_early = false},
    {.word = "torch",
     .name = "torch.distributed.pipelining",
     .framework = Framework::Torch,
     .runs = nullptr,
     .recompute = kTorchRecompute,
     .one_recompute = false,
     .chunks = true,
     .own_cuts = false,
     .pipeline_placement = true,
     .zeros = kTorchZeros,
     .zeros_in_pipelines = false,
     .gradient_sync = GradientSync::Overlapped,
     .context = {},
     .stops_early = true},
    {.word = "deepspeed",
     .name = "DeepSpeed",
     .framework = Framework::DeepSpeed,
     .runs = [](const ScheduleRule& rule) { return rule.in_deepspeed; },
     .recompute = kDeepSpeedRecompute,
     .one_recompute = true,
     .chunks = false,
     .own_cuts = true,
     .pipeline_placement = false,
     .zeros = kZeros,
     .zeros_in_pipelines = false,
     .gradient_sync = GradientSync::Blocking,
     .context = {},
     .stops_early = std::nullopt},
}};

const char* optimizer_name(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::Sgd: return "sgd";
    case Optimizer::Momentum: return "momentum";
    case Optimizer::RmsProp: return "rmsprop";
    case Optimizer::Muon: return "muon";
    case Optimizer::Adam: break;
  }
  return "adam";
}

using Told = std::function<void(const std::string&)>;

// What keeps ZeRO 2 and 3 from copies of a plan with so many stages; "": nothing, or the framework has them there.
std::string zero_lacks(const FrameworkWords& words, std::int64_t zero, bool stages, std::int64_t tensor_parallel) {
  if (zero < kGradientsSharded || words.zeros_in_pipelines) return "";
  if (stages) return "in a pipeline";
  return words.framework == Framework::DeepSpeed && tensor_parallel > 1 ? "with tensor parallelism" : "";
}

// In what gradients are added up where the framework leaves no choice.                             [DeepSpeed26]
std::optional<Precision> gradients_in(Framework framework, Precision trained_in, std::int64_t zero) {
  const bool engine_alone = framework == Framework::DeepSpeed && zero == 0;
  const bool bf16 = trained_in == Precision::Bf16, fp16 = trained_in == Precision::Fp16;
  if (bf16 && (framework == Framework::Megatron || framework == Framework::Torchtitan || engine_alone))
    return Precision::Fp32;
  return fp16 && engine_alone ? std::optional(Precision::Fp16) : std::nullopt;
}

// Says that a field differs, and takes what is there.
template <class T>
void replace(T& field, std::type_identity_t<T> by, const Told& differs, const std::string& what) {
  differs(what);
  field = std::move(by);
}

void settle_gradient_precision(Training& training, Framework framework, const Told& differs) {
  const Precision asked = training.gradient_precision.value_or(training.precision);
  const std::int64_t zero = training.open.contains("zero") ? 1 : training.zero;  // of 0 among others: `lacks`
  const std::optional<Precision> has = gradients_in(framework, training.precision, zero);
  if (has == Precision::Fp32 && asked != has)
    replace(training.gradient_precision, has, differs,
            "gradient_precision: bf16 training accumulates its gradients in fp32");
  if (has == Precision::Fp16 && asked != has) {
    differs("gradient_precision: fp16 training accumulates its gradients in fp16 but with ZeRO; fp16");
    training.gradient_precision.reset();
  }
  if (framework == Framework::Torch && weight_bytes(asked) != weight_bytes(training.precision)) {
    differs(fmt::format("gradient_precision: a gradient is of its weight's type; {}",
                        training.precision == Precision::Bf16   ? "bf16"
                        : training.precision == Precision::Fp16 ? "fp16"
                                                                : "fp32"));
    training.gradient_precision.reset();
  }
}

void settle_gradient_sync(GradientSync& sync, const std::optional<GradientSync>& has, const Told& differs) {
  if (has == GradientSync::Blocking && sync == GradientSync::Overlapped)
    replace(sync, GradientSync::Blocking, differs,
            "gradient_sync: gradients are all-reduced behind the last backward; blocking");
  if (has == GradientSync::Overlapped && sync == GradientSync::Blocking)
    replace(sync, GradientSync::Overlapped, differs,
            "gradient_sync: gradients are all-reduced during the backward; overlapped");
}

// Only Megatron-LM gathers weights beside the next step's forwards, where gradients travel beside the backward, too.
void settle_param_gather(PlanRequest& plan, Framework framework, const Told& differs) {
  bool& asked = plan.overlap_param_gather.value;
  if (framework != Framework::Megatron && asked)
    replace(asked, false, differs, "overlap_param_gather: weights are gathered behind the update; false");
  if (plan.gradient_sync == GradientSync::Blocking && asked)
    replace(asked, false, differs,
            "overlap_param_gather: goes with gradient_sync: overlapped alone; weights are gathered behind the update: "
            "false");
}

// The nearest stage of ZeRO, and when weights and gradients are exchanged there.
void settle_zero(Scenario& scenario, const FrameworkWords& words, bool stages, const Told& differs) {
  Training& training = scenario.training;
  PlanRequest& plan = scenario.plan;
  const auto in_table = [&](std::int64_t zero) { return std::ranges::find(words.zeros, zero) != words.zeros.end(); };
  const auto lack = [&](std::int64_t zero) { return zero_lacks(words, zero, stages, plan.tensor_parallel.value); };
  const auto has = [&](std::int64_t zero) { return in_table(zero) && lack(zero).empty(); };
  const std::int64_t asked = training.zero;
  if (!has(asked) && asked == 2 && has(3)) {
    differs("zero: 2 is not there; weights are divided, too, and kept from forward to backward: 3");
    training.zero = 3;
    plan.reshard_after_forward = Placed<bool>{false, {}};
  } else if (!has(asked) && has(1)) {
    const std::string where = in_table(asked) ? " " + lack(asked) : "";
    differs(fmt::format("zero: {} is not there{}; optimizer states alone are divided: 1", asked, where));
    training.zero = 1;
  } else if (!has(asked)) {
    replace(training.zero, 0, differs,
            fmt::format("zero: {} is not there; copies are whole (data_parallel_replicate_degree): 0", asked));
  }
  // Where zero is still open, what goes with some of it stays: the search refuses it with the others.
  const bool open = training.open.contains("zero");
  if (!open && training.zero < kGradientsSharded) plan.reduce_gradients.reset();
  if (!open && training.zero < kWeightsSharded) plan.reshard_after_forward.reset();
  const bool groups = words.framework == Framework::Megatron || words.framework == Framework::Torchtitan;
  if (plan.shard && ((training.zero == 0 && !open) || !groups)) {
    if (training.zero > 0 || open)
      differs(fmt::format("data_parallel_shard: {} is not there; all copies divide among them", plan.shard->value));
    plan.shard.reset();
  }
  if (!groups && plan.open.erase("data_parallel_shard") > 0)
    differs("data_parallel_shard: groups of copies are not there; all copies divide among them");
  const bool kept =
      words.framework != Framework::Torchtitan && plan.reshard_after_forward && !plan.reshard_after_forward->value;
  if (kept) {
    differs("reshard_after_forward: false is not there; true");
    plan.reshard_after_forward.reset();
  }
  if (words.framework != Framework::DeepSpeed && plan.reshard_after_forward && plan.reshard_after_forward->value &&
      plan.reshard_over > 0)
    replace(plan.reshard_over, 0, differs,
            fmt::format("reshard_after_forward: {} is not there; true", plan.reshard_over));
  const bool titan = words.framework == Framework::Torchtitan;
  if (titan && stages && plan.open.contains("reshard_after_forward")) plan.reshard_always = true;
  if (!titan && std::exchange(plan.reshard_always, false) && plan.reshard_after_forward)
    differs("reshard_after_forward: always is not there; true");
  if (titan && stages && plan.reshard_after_forward && plan.reshard_after_forward->value && !plan.reshard_always)
    replace(plan.reshard_always, true, differs,
            "reshard_after_forward: in a pipeline the last unit of a stage is given away, too; always");
  if (plan.reduce_gradients && stages && plan.reduce_gradients->value == ReduceGradients::MicroBatch) {
    differs("reduce_gradients: micro_batch is not there in a pipeline; step");
    plan.reduce_gradients.reset();
  }
  const bool one_stage = !stages || plan.open.contains("stages");  // then pipelines have it by themselves
  if (plan.reduce_gradients && one_stage && plan.reduce_gradients->value == ReduceGradients::Step) {
    differs("reduce_gradients: step is not there; gradients are divided after every micro-batch: micro_batch");
    plan.reduce_gradients.reset();
  }
}

// The nearest way to share sequences.
void settle_context(Scenario& scenario, const FrameworkWords& words, const Told& differs) {
  PlanRequest& plan = scenario.plan;
  if (plan.context_parallel.value < 2 && !plan.open.contains("context_parallel")) return;
  if (words.context.empty()) {
    differs(fmt::format("context_parallel: {} is not there; whole sequences: 1", plan.context_parallel.value));
    plan.context_parallel.value = 1, plan.context_exchange.value = ContextExchange::Ring, plan.context_inner.reset();
    return;
  }
  const ContextExchange asked = plan.context_exchange.value;
  if (std::ranges::find(words.context, asked) == words.context.end()) {
    differs("context_exchange: keys and values are gathered there: all_gather");  // torchtitan: others have all ways
    plan.context_exchange.value = ContextExchange::AllGather, plan.context_inner.reset();
  }
  if (plan.context_split.value == ContextSplit::Contiguous)
    replace(plan.context_split.value, ContextSplit::Zigzag, differs, "context_split: contiguous is not there; zigzag");
  Training& training = scenario.training;
  if (words.framework == Framework::Torchtitan && training.zero < kGradientsSharded &&
      !training.open.contains("zero")) {
    differs(fmt::format(
        "zero: {} is not there with context parallelism; weights are divided among the devices that share a "
        "sequence: 3",
        training.zero));
    if (training.zero == 0 && plan.context_parallel.value > 1) plan.shard = Placed<std::int64_t>{1, {}};
    training.zero = 3;
    plan.reshard_after_forward.reset(), plan.reduce_gradients.reset();
  }
}

// Transformer Engine refuses to put weight gradients off that run beside what a group scatters (pytorch/module/linear.py);
// torchtitan's asynchronous tensor parallelism knows exchanges in parts alone.       [TransformerEngine26] [torchtitan26]
void settle_tensor_overlap(PlanRequest& plan, Framework framework, const Told& differs) {
  TensorOverlap& asked = plan.tensor_overlap.value;
  switch (framework) {
    case Framework::Megatron:
      if (asked != TensorOverlap::Beside || !plan.delay_wgrad.value) return;
      return replace(asked, TensorOverlap::Ring, differs,
                     "tensor_overlap: true does not go with delay_wgrad, as nothing is left to run beside; ring");
    case Framework::Torchtitan:
      if (asked == TensorOverlap::Backward)
        return replace(asked, TensorOverlap::None, differs,
                       "tensor_overlap: backward is Megatron-LM's; exchanges of tensor parallelism are waited for: "
                       "false");
      if (asked != TensorOverlap::Beside) return;
      return replace(asked, TensorOverlap::Ring, differs,
                     "tensor_overlap: true is Transformer Engine's; every exchange in parts: ring");
    default:
      if (asked == TensorOverlap::None) return;
      replace(asked, TensorOverlap::None, differs,
              "tensor_overlap: is not written here; exchanges of tensor parallelism are waited for: false");
  }
}

// Whether weights and gradients are on the host: DeepSpeed's offload_param, torchtitan's enable_cpu_offload, which leaves the
// optimizer's states there, too.                                          [DeepSpeed26] [torchtitan26]
void settle_host_weights(Training& training, Framework framework, const Told& differs) {
  if (!training.offload_weights.value) return;
  const bool there = framework == Framework::DeepSpeed || framework == Framework::Torchtitan;
  if (there && training.zero == kWeightsSharded) return;
  differs(fmt::format("offload_weights: true is {}; weights and gradients stay on the device: false",
                      there ? "there with zero: 3 alone" : "not there"));
  training.offload_weights.value = false;
}

// Which of the optimizer's states are on the host, and that ZeRO is there, which both frameworks want for it.
void settle_host_update(Training& training, Framework framework, const Told& differs) {
  double& asked = training.offload_optimizer.value;
  if (asked <= 0) return;
  if (framework == Framework::Torchtitan && training.offload_weights.value) return;  // they go together
  if (framework != Framework::Megatron && framework != Framework::DeepSpeed) {
    differs(fmt::format("offload_optimizer: {:.4g} is not there; states stay on the device: 0", asked));
    asked = 0;
    return;
  }
  if (framework == Framework::DeepSpeed && training.zero < kWeightsSharded && asked < 1)
    replace(asked, 1, differs,
            fmt::format("offload_optimizer: {:.4g} is there with zero: 3 alone; all states are on the host: 1", asked));
  if (framework == Framework::Megatron && training.optimizer != Optimizer::Adam) {
    differs(fmt::format("offload_optimizer: is there with adam alone, not with {}; states stay on the device: 0",
                        optimizer_name(training.optimizer)));
    asked = 0;
    return;
  }
  if (training.zero > 0 || training.open.contains("zero")) return;
  differs("zero: 0 is not there with offload_optimizer; optimizer states are divided: 1");
  training.zero = 1;
}

// What Transformer Engine's Adam keeps: Megatron-LM's precision-aware optimizer, with ZeRO.             [Megatron26]
void settle_states(Training& training, Framework framework, const Told& differs) {
  Moments& moments = training.moments.value;
  MasterWeights& masters = training.master_weights.value;
  if (weight_bytes(training.precision).value == 4) masters = MasterWeights::Fp32;  // of no effect
  const bool zero = training.zero > 0 || training.open.contains("zero");           // whole copies: `lacks`
  const bool aware = framework == Framework::Megatron && training.optimizer == Optimizer::Adam && zero;
  if (moments != Moments::Fp32 && (!aware || moments == Moments::Int8))
    replace(moments, Moments::Fp32, differs, "moments: in fewer bits are not there; fp32");
  if (masters == MasterWeights::None || (masters != MasterWeights::Fp32 && !aware))
    replace(masters, MasterWeights::Fp32, differs, "master_weights: are whole there; fp32");
  if (aware && moments != Moments::Fp32 && masters == MasterWeights::Fp32 && training.precision == Precision::Bf16)
    replace(masters, MasterWeights::Remainder, differs,
            "master_weights: with moments in fewer bits, the 16 bits that bf16 weights lack are kept; remainder");
}

// Only torchtitan has weights that are divided parameter by parameter.                          [torchtitan26] [PyTorchFSDP26]
void settle_sharding(Training& training, Framework framework, const Told& differs) {
  const bool open = training.open.contains("zero");
  if (!open && training.zero < kWeightsSharded) return;
  Sharding& sharding = training.sharding.value;
  if (framework == Framework::Torchtitan && sharding == Sharding::Flat)
    replace(sharding, Sharding::PerParameter, differs,
            "sharding: shards are in fp32, their own masters, and copied to be sent; per_parameter");
  if (framework != Framework::Torchtitan && sharding == Sharding::PerParameter)
    replace(sharding, Sharding::Flat, differs, "sharding: per_parameter is not there; flat");
}

// torchtitan's converters of linear layers: fp8 with a scale per row, and mxfp8, in compiled models.        [torchtitan26]
void settle_low_precision(Training& training, Framework framework, const Told& differs) {
  LowPrecision& asked = training.low_precision.value;
  AmaxReduction& amax = training.amax_reduction.value;
  if (framework == Framework::Megatron && amax == AmaxReduction::None)
    replace(amax, AmaxReduction::TensorParallel, differs, "amax_reduction: takes place there; tensor_parallel");
  if (framework == Framework::Megatron || asked == LowPrecision::None) return;
  amax = AmaxReduction::All;  // says nothing of the recipe that takes this one's place
  if (std::exchange(training.low_precision_weights, false))
    differs("low_precision_weights: are not there; 16 bits are kept and gathered: false");
  if (framework != Framework::Torchtitan || asked == LowPrecision::Nvfp4) {
    differs(framework == Framework::Torchtitan ? "low_precision: nvfp4 is not written here; none"
                                               : "low_precision: is not there; none");
    asked = LowPrecision::None;
    return;
  }
  if (asked != LowPrecision::Mxfp8)
    replace(asked, LowPrecision::Fp8Tensorwise, differs,
            "low_precision: fp8 has a scale per row there; priced as fp8_tensorwise");
  if (training.execution == Execution::Eager)
    replace(training.execution, Execution::Compiled, differs,
            "execution: low_precision wants compiled models there; compiled");
}

// Whole experts, or the tensor-parallel degree's parts of them: torchtitan's ParallelDims.        [torchtitan26]
bool torchtitan_divides(const TensorParallel& split, std::int64_t context) {
  const bool whole = split.expert_split() == 1 && split.experts % (context * split.degree) == 0;
  const bool parts = split.expert_split() == split.degree && split.experts % context == 0;
  return split.experts == 1 || whole || parts;
}

void torchtitan_experts(Scenario& scenario, bool stages, const Told& differs) {
  PlanRequest& plan = scenario.plan;
  const TensorParallel split = plan.split();
  if (plan.expert_exchange.value != ExpertExchange::AllToAll)
    replace(plan.expert_exchange.value, ExpertExchange::AllToAll, differs,
            "expert_exchange: tokens go to the devices of their experts; all_to_all");
  const std::int64_t c = plan.context_parallel.value;
  if (!torchtitan_divides(split, c)) {
    differs(
        fmt::format("expert_parallel: {} is not there with tensor_parallel: {} and context_parallel: {}, which it must "
                    "be a multiple "
                    "of; each device has a part of every expert: 1",
                    split.experts, split.degree, c));
    plan.expert_parallel.value = 1, plan.expert_tensor_parallel.value = 0;
    return;
  }
  if (scenario.training.zero >= kGradientsSharded || scenario.training.open.contains("zero")) return;
  differs(fmt::format(
      "zero: {} is not there with expert parallelism; experts lie on devices that divide weights among them: 3",
      scenario.training.zero));
  scenario.training.zero = 3;
  if (stages) plan.reshard_after_forward = Placed<bool>{false, {}};
}

// Megatron-LM drops tokens where they are sent one by one, and fills experts up in its own exchange alone.  [Megatron26]
void settle_capacity(Scenario& scenario, Framework framework, const Told& differs) {
  PlanRequest& plan = scenario.plan;
  if (!plan.expert_capacity) return;
  if (framework != Framework::Megatron) {
    if (has_experts(scenario.model) && (plan.expert_padding || plan.split().sends_tokens()))
      differs(fmt::format("expert_capacity: {} is not written here; experts take every token that comes",
                          plan.expert_capacity->value));
    plan.expert_capacity.reset(), plan.expert_padding = false;
    return;
  }
  const bool gathered = plan.expert_exchange.value == ExpertExchange::AllGather;
  if (!gathered && !(plan.expert_padding && plan.expert_exchange.value == ExpertExchange::PerNode)) return;
  differs(fmt::format("expert_exchange: {} is not there with {}; all_to_all", gathered ? "all_gather" : "per_node",
                      gathered ? "expert_capacity" : "expert_padding"));
  plan.expert_exchange.value = ExpertExchange::AllToAll;
}

void settle_shared_experts(Scenario& scenario, Framework framework, const Told& differs) {
  PlanRequest& plan = scenario.plan;
  if (!plan.shared_experts_beside.value) return;
  const bool all_to_all = plan.expert_exchange.value == ExpertExchange::AllToAll,
             again = plan.recompute_modules.has(Module::SharedExperts);
  if (framework == Framework::Megatron && all_to_all && !again) return;
  if (has_shared_experts(scenario.model) && plan.split().sends_tokens())
    differs(framework == Framework::Megatron
                ? (all_to_all
                       ? "shared_experts_beside is not there with recompute_modules: shared_experts; these wait: false"
                       : "shared_experts_beside needs expert_exchange: all_to_all there; shared experts wait: false")
                : "shared_experts_beside is not there; shared experts wait: false");
  plan.shared_experts_beside.value = false;
}

void settle_experts(Scenario& scenario, Framework framework, bool stages, const Told& differs) {
  PlanRequest& plan = scenario.plan;
  settle_capacity(scenario, framework, differs);
  settle_shared_experts(scenario, framework, differs);
  if (!plan.split().sends_tokens() && !plan.open.contains("expert_parallel")) return;
  if (framework == Framework::Torch || framework == Framework::DeepSpeed) {
    differs(fmt::format("expert_parallel: {} is not written here; each device has a part of every expert: 1",
                        plan.expert_parallel.value));
    plan.open.erase("expert_parallel");
    plan.expert_parallel.value = 1, plan.expert_tensor_parallel.value = 0;
  }
  if (framework == Framework::Torchtitan) torchtitan_experts(scenario, stages, differs);
  if (std::exchange(plan.expert_dispatch_fp8, false))
    differs("expert_dispatch_fp8: its flags are not written here; tokens are sent in 16 bits: false");
  if (plan.expert_nodes) {
    differs(
        "expert_nodes: on how many nodes the experts of a token lie is up to the router and its groups; check yours");
    plan.expert_nodes.reset();
  }
  if (!plan.split().sends_tokens()) plan.expert_exchange.value = ExpertExchange::AllToAll;
  settle(scenario.model, weight_bytes(scenario.training.precision), plan.split());
}

// Whether layers that are repeated stop where the backward has what it reads.          [PyTorchCheckpoint26]
void settle_early_stop(Scenario& scenario, const FrameworkWords& words, const Told& differs) {
  const PlanRequest& plan = scenario.plan;
  const bool operators = plan.recompute_modules.has(Module::Operators);
  const bool repeats =
      plan.open.contains("recompute") || std::ranges::any_of(plan.recompute.value, [&](Recompute mode) {
        return mode == Recompute::Blocks || mode == Recompute::Layers || mode == Recompute::Knapsack ||
               (mode == Recompute::Selective && operators);
      });
  Training& training = scenario.training;
  if (!repeats || !words.stops_early || training.checkpoint_early_stop == *words.stops_early) return;
  training.checkpoint_early_stop = *words.stops_early;
  differs(training.checkpoint_early_stop
              ? "checkpoint_early_stop: repeated layers stop where the backward has what it reads; true"
              : "checkpoint_early_stop: repeated layers run to their end; false");
}

// Megatron-LM offloads whole layers of one stage, all of which keep their activations.                  [Megatron26]
void settle_offloading(Scenario& scenario, Framework framework, bool stages, const Told& differs) {
  PlanRequest& plan = scenario.plan;
  if (!plan.offload_layers) return;
  const bool repeats =
      std::ranges::any_of(plan.recompute.value, [](Recompute mode) { return mode != Recompute::None; });
  if (framework == Framework::Megatron && !stages && !repeats && !plan.open.contains("recompute")) {
    const auto blocks = std::ranges::count_if(scenario.model.layers, [](const Layer& layer) { return layer.block; });
    if (plan.offload_layers->value < blocks) return;
    differs(fmt::format("offload_layers: {} is not there with {} blocks, of which one stays; {}",
                        plan.offload_layers->value, blocks, blocks - 1));
    plan.offload_layers->value = blocks - 1;
    if (blocks < 2) plan.offload_layers.reset();
    return;
  }
  differs(
      fmt::format("offload_layers: {} is not {}; activations stay on the device", plan.offload_layers->value,
                  framework == Framework::Megatron ? "there in a pipeline, nor with recomputation" : "written here"));
  plan.offload_layers.reset();
}

}  // namespace

std::span<const FrameworkWords> frameworks() {
  return kFrameworks;
}

const FrameworkWords& words(Framework framework) {
  return *std::ranges::find_if(kFrameworks, [&](const FrameworkWords& each) { return each.framework == framework; });
}

std::string_view name(Framework framework) {
  return words(framework).name;
}

std::vector<std::string> schedules_of(const FrameworkWords& words) {
  std::vector<std::string> names = searched_schedules(&ScheduleRule::searched);
  if (words.runs != nullptr)
    std::erase_if(names, [&](const std::string& name) { return !words.runs(*find_schedule(name)); });
  return names;
}

const FrameworkWords* find_framework(std::string_view word) {
  const auto found = std::ranges::find_if(kFrameworks, [&](const FrameworkWords& each) { return each.word == word; });
  return found == kFrameworks.end() ? nullptr : &*found;
}

std::string lacks(Framework framework, const Scenario& scenario, const Layout& layout) {
  const Training& training = scenario.training;
  const TensorParallel split{layout.tensor_parallel, layout.sequence_parallel, layout.expert_parallel,
                             scenario.plan.split().expert_tensor};
  const bool engine = framework == Framework::Megatron || framework == Framework::DeepSpeed;
  if (layout.zero == 0 && engine && training.offload_optimizer.value > 0) return "zero: 0 with offload_optimizer";
  if (layout.zero == 0 && framework == Framework::Megatron &&
      (training.moments.value != Moments::Fp32 || training.master_weights.value != MasterWeights::Fp32))
    return "zero: 0 with states in fewer bits";
  const auto gradients = gradients_in(framework, training.precision, layout.zero);
  if (gradients && *gradients != training.gradient_precision.value_or(training.precision))
    return fmt::format("zero: {} with gradients of that precision", layout.zero);
  if (framework == Framework::Torchtitan) {
    if (layout.zero < kGradientsSharded && (layout.context_parallel > 1 || split.sends_tokens()))
      return "context_parallel or expert_parallel without zero: 3";
    if (!torchtitan_divides(split, layout.context_parallel))
      return "expert_parallel that is not a multiple of what torchtitan divides experts by";
  }
  if (layout.copies() == 1) return "";
  const std::string where = zero_lacks(words(framework), layout.zero, layout.stages > 1, layout.tensor_parallel);
  return where.empty() ? "" : "zero: 2 or 3 " + where;
}

void check_model(const Scenario& scenario, Framework framework) {
  const Model& model = scenario.model;
  if (!model.order.empty() || scenario.plan.order.value.unsettled())
    throw InputError(scenario.plan.order.place, "plan.order",
                     fmt::format("{} runs the layers in the model's order; leave plan.order out", name(framework)));
  if (std::ranges::any_of(model.works, [](const Work& work) { return work.frozen; }))
    throw InputError(model.place, "model.lora_rank",
                     "has frozen weights and adapters, which no launch file says; leave it out, and add the adapters "
                     "with PEFT, or Megatron Bridge");
  if (framework != Framework::Megatron && framework != Framework::Torchtitan) return;
  const auto transformer = described(model);
  const auto refuse = [&](const std::string& why) {
    throw InputError(model.place, "model", fmt::format("{} {}; --for torch takes any model", model.name, why));
  };
  if (!transformer)
    return refuse(fmt::format("is not a decoder of one stack, the models that {} is launched with", name(framework)));
  if (framework == Framework::Torchtitan && !transformer->pattern.empty())
    return refuse("is a hybrid stack (model.pattern), of which torchtitan has none; --for megatron has");
  if (transformer->modules > 0) return refuse("has modules for multi-token prediction, which are not launched yet");
  const auto blocks = std::ranges::count_if(model.layers, [](const Layer& l) { return l.block; });
  if (blocks + 2 != std::ssize(model.layers) || model.layers.front().block || model.layers.back().block)
    return refuse("is not embedding, blocks and head");
}

void settle_training(Scenario& scenario, Framework framework, bool copies, bool stages, const Told& differs) {
  Training& training = scenario.training;
  const bool adam_alone = framework == Framework::Torchtitan && training.optimizer != Optimizer::Adam;
  const bool muon = training.optimizer == Optimizer::Muon && framework != Framework::Megatron;
  if (adam_alone || muon || (training.optimizer == Optimizer::RmsProp && framework != Framework::Torch))
    replace(training.optimizer, Optimizer::Adam, differs,
            fmt::format("optimizer: {} is not there; adam", optimizer_name(training.optimizer)));
  if (framework == Framework::Torchtitan && training.precision == Precision::Fp16) {
    differs("precision: fp16 is not there; bf16");
    training.precision = Precision::Bf16;
    if (training.gradient_precision == Precision::Fp16) training.gradient_precision = Precision::Bf16;
  }
  settle_states(training, framework, differs);
  settle_low_precision(training, framework, differs);
  settle_experts(scenario, framework, stages, differs);
  settle_gradient_precision(training, framework, differs);
  settle_context(scenario, words(framework), differs);
  settle_tensor_overlap(scenario.plan, framework, differs);
  settle_early_stop(scenario, words(framework), differs);
  if (framework == Framework::Torch && scenario.training.clip_grad_norm)
    replace(scenario.training.clip_grad_norm, std::nullopt, differs,
            "clip_grad_norm: gradients are not scaled down there; they stay as they are");
  settle_offloading(scenario, framework, stages, differs);
  if (copies) settle_zero(scenario, words(framework), stages, differs);
  if (training.zero >= kWeightsSharded && scenario.plan.pairs.value == Pairs::Fused)
    replace(scenario.plan.pairs.value, Pairs::Serial, differs,
            "pairs: fused does not go with weights that are gathered; serial");
  if (copies) settle_sharding(training, framework, differs);
  settle_host_weights(training, framework, differs);
  if (!copies) return settle_host_update(training, framework, differs);
  settle_host_update(training, framework, differs);
  // What is scattered bucket by bucket need not wait (overlap_comm).                                    [DeepSpeed26]
  const bool scattered = training.zero >= kGradientsSharded;
  if (training.open.contains("zero") && training.optimizer != Optimizer::Muon)
    scenario.plan.sync_of_scattered = GradientSync::Overlapped;
  if (training.optimizer == Optimizer::Muon && scenario.plan.gradient_sync == GradientSync::Overlapped) {
    differs("gradient_sync: gradients are all-reduced behind the last backward with muon; blocking");
    scenario.plan.gradient_sync = GradientSync::Blocking;
  } else {
    settle_gradient_sync(scenario.plan.gradient_sync,
                         scattered ? GradientSync::Overlapped : words(framework).gradient_sync, differs);
  }
  settle_param_gather(scenario.plan, framework, differs);
}

}  // namespace pipewright::planner
