// Megatron-LM: `pretrain_gpt.py`, of hybrids `pretrain_hybrid.py`, with the flags of the plan and of the model. [MegatronPP26]
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/answers/campaign.hpp"
#include "core/cost/buckets.hpp"
#include "core/model/families/described.hpp"
#include "core/model/graph.hpp"
#include "io/launch/launch.hpp"
#include "io/read/trained_as.hpp"
#include "io/text/quote.hpp"

namespace pipewright::io {
namespace {

constexpr const char* kMegatronVersion =
    "Megatron-LM main of August 2026 (megatron/training/arguments.py, commit d98e8a64dd)";

std::string letters(const LayoutChunk& chunk) {
  std::string out = chunk.embedding ? "E" : "";
  if (chunk.blocks == 1) out += "t";
  if (chunk.blocks > 1) out += fmt::format("t*{}", chunk.blocks);
  // After a count a letter would be read as one more thing all the same; the comma is for people.
  if (chunk.head) out += chunk.blocks > 1 ? ",L" : "L";
  return out;
}

std::vector<LayoutChunk> chunks_of(const Plan& plan, const Model& model) {
  std::vector<LayoutChunk> chunks;
  for (const LayerRange& range : plan.uncut()) {
    LayoutChunk& chunk = chunks.emplace_back();
    chunk.embedding = range.begin == 0;
    chunk.head = range.end == static_cast<LayerId>(model.layers.size());
    chunk.blocks = range.size() - chunk.embedding - chunk.head;
  }
  return chunks;
}

// "MEM|E*E": a hybrid's blocks with a bar between chunks, also those without a block.
std::string hybrid_pattern(const Plan& plan, const Model& model, const Transformer& t) {
  std::vector<std::string> parts;
  std::size_t block = 0;
  for (const LayoutChunk& chunk : chunks_of(plan, model)) {
    parts.push_back(t.pattern.substr(block, at(chunk.blocks)));
    block += at(chunk.blocks);
  }
  return fmt::format("{}", fmt::join(parts, "|"));
}

// Flags, a group per line of the script.
class Flags {
 public:
  void line(const std::string& flags) { lines_.push_back(flags); }
  template <class... Values>
  void add(fmt::format_string<Values...> text, Values&&... values) {
    lines_.push_back(fmt::format(text, std::forward<Values>(values)...));
  }
  void remark(std::string_view text) { lines_.push_back(comment_text(text)); }
  std::string text() const {
    std::string out;
    for (const std::string& line : lines_)
      out += "  " + line + "\n";
    return out;
  }

 private:
  std::vector<std::string> lines_;
};

// Of the optimizer's states, for Transformer Engine's Adam.
bool in_fewer_bits(const Training& training) {
  return training.moments.value != Moments::Fp32 || training.master_weights.value != MasterWeights::Fp32;
}

void context_flags(Flags& flags, const Answer& written) {
  const PlanRequest& plan = written.scenario->plan;
  const std::int64_t c = written.plan.context_parallel;
  if (c == 1) return;
  flags.add("--context-parallel-size {}", c);
  switch (plan.context_exchange.value) {
    case ContextExchange::Ring: return flags.line("--cp-comm-type p2p");
    case ContextExchange::AllGather: return flags.line("--cp-comm-type all_gather");
    case ContextExchange::AllToAll: return flags.line("--cp-comm-type a2a");
    case ContextExchange::TwoLevel:
      return flags.add("--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes {} {}", plan.context_inner->value,
                       c / plan.context_inner->value);
  }
}

void parallel_flags(Flags& flags, const Answer& written) {
  const Plan& plan = written.plan;
  const Training& training = written.scenario->training;
  flags.add("--tensor-model-parallel-size {}", plan.tensor_parallel);
  if (plan.sequence_parallel) flags.line("--sequence-parallel");
  switch (plan.tensor_overlap.value) {
    case TensorOverlap::None:
    case TensorOverlap::Backward: break;  // what its layers do without a flag
    case TensorOverlap::Beside: flags.line("--tp-comm-overlap"); break;
    case TensorOverlap::Ring: flags.line("--tp-comm-overlap"), flags.line("--tp-comm-overlap-rs-dgrad"); break;
  }
  context_flags(flags, written);
  flags.add("--pipeline-model-parallel-size {}", plan.stages);
  if (plan.stages > 1 && described(written.scenario->model)->pattern.empty())
    flags.add("--pipeline-model-parallel-layout {}",
              shell_word(megatron_layout(chunks_of(plan, written.scenario->model))));
  if (plan.facts.states_group && plan.micro_batch_group)
    flags.add("--microbatch-group-size-per-virtual-pipeline-stage {}", plan.micro_batch_group->value);
  if (plan.facts.pairs)
    flags.add("--overlap-moe-expert-parallel-comm{}", plan.delay_wgrad.value ? " --delay-wgrad-compute" : "");
  if (plan.tensor_parallel > 1 && plan.stages > 1 && !plan.scatter_gather)
    flags.line("--no-scatter-gather-tensors-in-pipeline");
  if (plan.data_parallel > 1 && plan.stages > 1 && !copies_first(plan)) flags.line("--use-tp-pp-dp-mapping");
  if (training.zero >= 1 && training.optimizer != Optimizer::Muon) flags.line("--use-distributed-optimizer");
  if (training.offload_optimizer.value > 0)  // as its guide has it
    flags.add("--optimizer-cpu-offload --optimizer-offload-fraction {:.4g}{}", training.offload_optimizer.value,
              in_fewer_bits(training) ? "" : " --use-precision-aware-optimizer");
  const int groups = plan.workers() / std::max(1, plan.stages * plan.sharded_over(0));
  if (training.zero >= 1 && groups > 1) flags.add("--num-distributed-optimizer-instances {}", groups);
  if (training.zero >= 2 && plan.copies() > 1) {
    flags.add("--use-megatron-fsdp --data-parallel-sharding-strategy {}",
              training.zero == 2 ? "optim_grads" : "optim_grads_params");
    flags.line("--no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor");
  }
  if (plan.copies() > 1 && plan.gradient_sync == GradientSync::Overlapped) {
    flags.line("--overlap-grad-reduce");
    const std::int64_t bytes = training.gradient_precision.value_or(training.precision) == Precision::Fp32 ||
                                       training.gradient_precision.value_or(training.precision) == Precision::Tf32
                                   ? 4
                                   : 2;
    if (training.zero == 1 && plan.overlap_param_gather.value) flags.line("--overlap-param-gather");
    if (plan.bucket_rule != BucketRule::Megatron)
      flags.add("--ddp-bucket-size {}", std::max<std::int64_t>(1, bucket_limit(plan, 0, training).value / bytes));
  }
  flags.add("--micro-batch-size {}", plan.micro_batch_size);
  flags.add("--global-batch-size {}", plan.global_batch_size);
}

void recompute_flags(Flags& flags, const Answer& written) {
  const Plan& plan = written.plan;
  const auto any = [&](Recompute mode) { return std::ranges::find(plan.recompute, mode) != plan.recompute.end(); };
  if (plan.offload_layers) flags.add("--cpu-offloading-num-layers {}", plan.offload_layers->value);
  const Model& model = written.scenario->model;
  Modules modules;  // of latent attention and shared experts, where the model has them
  for (const auto& [word, module] : kNames<Module>)
    if (written.scenario->plan.recompute_modules.has(module) &&
        ((module != Module::LatentUp && module != Module::SharedExperts) || has_any(model, {module})))
      modules.add(module);
  if (any(Recompute::Selective) && !has_any(written.scenario->model, modules))
    return flags.remark(
        "plan.recompute: selective repeats nothing, as attention is fused; core_attn would run its forward again");
  if (any(Recompute::Selective))
    return flags.add("--recompute-granularity selective --recompute-modules {}", words(modules, " "));
  if (any(Recompute::Blocks))
    return flags.line("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
  if (!any(Recompute::Layers)) return;
  std::int64_t most = 0;
  for (const LayerRange& chunk : plan.uncut())
    most = std::max<std::int64_t>(most, std::ranges::count_if(plan.rebuilt, [&](LayerId layer) {
                                    return layer >= chunk.begin && layer < chunk.end;
                                  }));
  flags.add("--recompute-granularity full --recompute-method block --recompute-num-layers {}", most);
}

// "([0]*3+[1]*58)": blocks that are dense, then blocks with experts.
std::string sparse_of(const Transformer& t) {
  std::vector<std::string> runs;
  for (std::int64_t block = 0; block < t.layers;) {
    std::int64_t end = block + 1;
    while (end < t.layers && t.is_sparse(end) == t.is_sparse(block))
      ++end;
    runs.push_back(fmt::format("[{}]*{}", t.is_sparse(block) ? 1 : 0, end - block));
    block = end;
  }
  return fmt::format("({})", fmt::join(runs, "+"));
}

// Scaling of rotary positions, where Megatron-LM has flags for it; else a comment that it has not.
void scaling_flags(Flags& flags, const Transformer& t, const TrainedAs& trained) {
  if (!trained.rope_scaling_not_kept.empty())
    return flags.remark(
        fmt::format("rope_scaling of type {} is not kept: set it yourself, from the model's own configuration",
                    trained.rope_scaling_not_kept));
  const std::optional<RopeScaling>& scaling = trained.rope_scaling;
  const bool latent = t.latent.rank > 0;
  if (!scaling) return latent ? flags.line("--rope-type rope") : void();
  if (latent && scaling->type == RopeScalingType::Yarn) {
    std::string line = fmt::format("--rope-type yarn --rotary-scaling-factor {}", scaling->factor);
    if (scaling->mscale) line += fmt::format(" --mscale {}", *scaling->mscale);
    if (scaling->mscale_all_dim) line += fmt::format(" --mscale-all-dim {}", *scaling->mscale_all_dim);
    // What MLATransformerConfig has without a flag.
    const bool theirs = scaling->original_length.value_or(4096) == 4096 && scaling->beta_fast.value_or(32) == 32 &&
                        scaling->beta_slow.value_or(1) == 1;
    return flags.line(line + (theirs ? "" : "  # for 4096 tokens, beta 32 and 1; the configuration has others"));
  }
  if (!latent && scaling->type == RopeScalingType::Llama3) {
    const bool theirs = scaling->original_length.value_or(8192) == 8192 && scaling->low_freq_factor.value_or(1) == 1 &&
                        scaling->high_freq_factor.value_or(4) == 4;
    return flags.line(fmt::format("--use-rope-scaling --rope-scaling-factor {}", scaling->factor) +
                      (theirs ? "" : "  # for 8192 tokens, factors 1 and 4; the configuration has others"));
  }
  if (!latent && scaling->type == RopeScalingType::Linear && scaling->factor == std::floor(scaling->factor))
    return flags.add("--rotary-seq-len-interpolation-factor {:.0f}", scaling->factor);
  flags.remark(fmt::format("rope_scaling of type {}, factor {}: no flag for it is known here; set it yourself",
                           name(scaling->type), scaling->factor));
}

void rotary_flags(Flags& flags, const Transformer& t, const TrainedAs& trained) {
  if (!trained.rope_theta)
    flags.line(
        "--position-embedding-type rope --rotary-base \"${ROTARY_BASE:?rope_theta of the model, e.g. 500000 for Llama "
        "3}\"  # export it, or state model.trained_as.rope_theta");
  else if (*trained.rope_theta == std::floor(*trained.rope_theta))  // which takes whole numbers
    flags.add("--position-embedding-type rope --rotary-base {:.0f}", *trained.rope_theta);
  else
    flags.add("--position-embedding-type rope --rotary-base {:.0f}  # rope_theta is {}; the flag takes whole numbers",
              *trained.rope_theta, *trained.rope_theta);
  if (t.rotary_size > 0 && t.rotary_size < t.head_size)
    flags.add("--rotary-percent {}", static_cast<double>(t.rotary_size) / static_cast<double>(t.head_size));
  if (trained.rope_theta || trained.rope_scaling || !trained.rope_scaling_not_kept.empty())
    scaling_flags(flags, t, trained);
}

// What the model has and no flag here says: it was priced, and the script would train another.
// `corrected`: the bias is one that is added to scores where experts are chosen, for which there is a flag.
std::vector<std::string> unsaid(const Transformer& t, bool corrected) {
  std::vector<std::string> parts;
  const auto add = [&](bool has, const char* what) {
    if (has) parts.emplace_back(what);
  };
  add(t.gated && t.activation == Activation::Gelu, "gate of GELU (--swiglu is SiLU)");
  add(t.activation == Activation::Relu && !t.squared, "activation ReLU");
  add(!t.gated && t.activation == Activation::Silu, "activation SiLU without a gate");
  add(!t.windows.empty(), "sliding windows");
  add(t.norms == Transformer::Norms::Post, "norms behind the parts of a block");
  add(t.norms == Transformer::Norms::Sandwich, "norms before and behind the parts of a block");
  add(t.norms == Transformer::Norms::Reordered, "norms of what the parts of a block add (none before them)");
  add(t.norm == Norm::Layer && !t.norm_bias, "layer norms without biases");
  add(t.positions == Transformer::Positions::None && t.pattern.empty(), "ALiBi (if its positions are by it)");
  add(t.parallel_parts, "attention and feed-forward side by side");
  add(t.qk_norm == Transformer::QkNorm::All, "norms of queries and keys over all heads");
  add(t.qk_norm == Transformer::QkNorm::Head && !t.pattern.empty(),
      "norms of queries and keys (hybrid_stack_spec has none: use a spec of yours with q_layernorm and k_layernorm)");
  add(t.attention_soft_cap || t.final_soft_cap, "soft caps");
  add(t.sinks, "attention sinks");
  add((t.attention_bias == Transformer::Bias::All) != t.feed_forward_bias,
      "biases of the attention or of the feed-forward alone");
  add(t.moe.router_bias && !corrected, "bias of the router");
  add(t.moe.expert_bias, "biases of the experts");
  return parts;
}

// Sigmoid scores with a bias are those of DeepSeek-V3, whose bias moves the choice alone.   [DeepSeekIII24] section 2.1.2
bool corrects_scores(const Transformer& t, const TrainedAs& trained) {
  return t.moe.router_bias && trained.routing && trained.routing->scores == RouterScores::Sigmoid;
}

void router_flags(Flags& flags, const Transformer& t, const TrainedAs& trained) {
  if (!trained.routing) return;  // softmax is theirs, too
  const Routing& routing = *trained.routing;
  flags.add("--moe-router-score-function {}{}{}", name(routing.scores),
            routing.scale ? fmt::format(" --moe-router-topk-scaling-factor {}", *routing.scale) : "",
            corrects_scores(t, trained) ? " --moe-router-enable-expert-bias" : "");
  if (routing.groups)
    flags.add("--moe-router-num-groups {} --moe-router-group-topk {}", *routing.groups,
              routing.groups_used.value_or(*routing.groups));
}

void expert_flags(Flags& flags, const Answer& written) {
  const TensorParallel split = written.plan.split();
  const PlanRequest& plan = written.scenario->plan;
  if (plan.expert_capacity && described(written.scenario->model)->moe.experts > 0) {
    flags.add("--moe-expert-capacity-factor {}{}", plan.expert_capacity->value,
              plan.expert_padding ? " --moe-pad-expert-input-to-capacity" : "");
    if (!split.sends_tokens()) flags.line("--moe-token-dispatcher-type alltoall");
  }
  if (!split.sends_tokens()) return;
  flags.add("--expert-model-parallel-size {} --expert-tensor-parallel-size {}", split.experts, split.expert_split());
  switch (written.scenario->plan.expert_exchange.value) {
    case ExpertExchange::AllToAll: flags.line("--moe-token-dispatcher-type alltoall"); break;
    case ExpertExchange::AllGather: flags.line("--moe-token-dispatcher-type allgather"); break;
    case ExpertExchange::PerNode:
      flags.line("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep");
      break;
    case ExpertExchange::Unpriced:
    case ExpertExchange::OnlySorted: break;  // of no plan
  }
  if (written.scenario->plan.shared_experts_beside.value) flags.line("--moe-shared-expert-overlap");
  if (written.scenario->training.expert_products == ExpertProducts::Fused) flags.line("--moe-grouped-gemm");
}

// The pattern says how many layers there are, and where the pipeline is cut.
void hybrid_flags(Flags& flags, const Answer& written, const Transformer& t) {
  flags.add("--hybrid-layer-pattern={}", shell_word(hybrid_pattern(written.plan, written.scenario->model, t)));
  flags.line("--spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec");
  if (t.pattern.find('G') != std::string::npos) {
    const DeltaNet& delta = t.delta;
    flags.add(
        "--linear-num-value-heads {} --linear-num-key-heads {} --linear-value-head-dim {} --linear-key-head-dim {} "
        "--linear-conv-kernel-dim {}",
        delta.heads, delta.key_heads, delta.value_size, delta.key_size, delta.kernel);
    if (delta.chunk != 64)
      flags.remark(fmt::format("delta_chunk {}: Megatron-LM has no flag for it, its delta rule takes 64", delta.chunk));
  }
  if (t.pattern.find('M') == std::string::npos) return;
  const StateSpace& mixer = t.mixer;
  flags.add("--mamba-num-heads {} --mamba-head-dim {} --mamba-num-groups {} --mamba-state-dim {}", mixer.heads,
            mixer.head_size, mixer.groups, mixer.state);
  if (mixer.kernel != 4 || mixer.chunk != 128)
    flags.remark(
        fmt::format("mamba_kernel {}, mamba_chunk {}: Megatron-LM has no flags for them, its mixer takes 4 and 128",
                    mixer.kernel, mixer.chunk));
}

void model_flags(Flags& flags, const Answer& written) {
  const Transformer t = *described(written.scenario->model);
  const bool hybrid = !t.pattern.empty();
  if (hybrid) hybrid_flags(flags, written, t);
  flags.add("{}--hidden-size {} --ffn-hidden-size {}", hybrid ? "" : fmt::format("--num-layers {} ", t.layers),
            t.hidden, t.feed_forward);
  flags.add("--num-attention-heads {} --kv-channels {}", t.heads, t.head_size);
  if (t.key_heads != t.heads) flags.add("--group-query-attention --num-query-groups {}", t.key_heads);
  flags.add("--seq-length {0} --max-position-embeddings {1}", t.sequence_length,
            std::max(t.sequence_length, t.positions == Transformer::Positions::Learned ? t.position_rows : 0));
  if (t.gated) flags.line("--swiglu");
  if (t.squared) flags.line("--squared-relu");
  if (t.norm == Norm::Rms) flags.line("--normalization RMSNorm");
  const TrainedAs trained = trained_as(written.scenario->model);
  if (trained.norm_epsilon)
    flags.add("--norm-epsilon {}", *trained.norm_epsilon);
  else
    flags.remark("norm epsilon: not stated by the model; Megatron-LM's default is 1e-5");
  if (t.positions == Transformer::Positions::Rotary) rotary_flags(flags, t, trained);
  if (t.positions == Transformer::Positions::None) flags.line("--position-embedding-type none");
  if (!t.feed_forward_bias && t.attention_bias != Transformer::Bias::All) flags.line("--disable-bias-linear");
  if (t.attention_bias == Transformer::Bias::Queries) flags.line("--add-qkv-bias");
  if (t.qk_norm == Transformer::QkNorm::Head && !hybrid) flags.line("--qk-layernorm");
  if (t.attention_gate) flags.line("--attention-output-gate");
  if (!t.flash) flags.line("--attention-backend unfused");
  if (!t.tied) flags.line("--untie-embeddings-and-output-weights");
  if (t.moe.experts > 0)
    flags.add("--num-experts {} --moe-router-topk {} --moe-ffn-hidden-size {}", t.moe.experts, t.moe.active,
              t.moe.feed_forward);
  if (t.moe.experts > 0) router_flags(flags, t, trained);
  expert_flags(flags, written);
  if (t.moe.experts > 0 && !t.sparse.empty()) flags.add("--moe-layer-freq '{}'", sparse_of(t));
  if (t.moe.shared_feed_forward > 0)
    flags.add("--moe-shared-expert-intermediate-size {}{}", t.moe.shared_feed_forward,
              t.moe.shared_gate ? " --moe-shared-expert-gate" : "");
  if (t.latent.rank > 0)
    flags.add("--multi-latent-attention --kv-lora-rank {} --qk-head-dim {} --qk-pos-emb-head-dim {} --v-head-dim {}{}",
              t.latent.rank, t.latent.nope_size, t.latent.rope_size, t.latent.value_size,
              t.latent.query_rank > 0 ? fmt::format(" --q-lora-rank {}", t.latent.query_rank) : "");
  if (const auto parts = unsaid(t, corrects_scores(t, trained)); !parts.empty())
    flags.remark(
        fmt::format("The model has what no flag above says; add Megatron-LM's own: {}", fmt::join(parts, ", ")));
  if (!t.dropout) flags.line("--attention-dropout 0.0 --hidden-dropout 0.0");
  flags.add("--tokenizer-type NullTokenizer --vocab-size {} --mock-data  # put your tokenizer and --data-path here",
            t.vocabulary - 1);
}

// Transformer Engine's defaults of the formats: blocks are in e4m3 both ways.                        [Megatron26]
void low_precision_flags(Flags& flags, const Training& training) {
  const char* const alone = training.low_precision_weights ? " --fp8-param-gather" : "";
  switch (training.low_precision.value) {
    case LowPrecision::None: return;
    case LowPrecision::Fp8Delayed:
      return flags.add("--fp8-format hybrid --fp8-recipe delayed{}{}", alone,
                       training.amax_reduction.value == AmaxReduction::TensorParallel ? " --tp-only-amax-red" : "");
    case LowPrecision::Fp8Tensorwise: return flags.add("--fp8-format hybrid --fp8-recipe tensorwise{}", alone);
    case LowPrecision::Fp8Blockwise: return flags.add("--fp8-format e4m3 --fp8-recipe blockwise{}", alone);
    case LowPrecision::Mxfp8: return flags.add("--fp8-format e4m3 --fp8-recipe mxfp8{}", alone);
    case LowPrecision::Nvfp4:
      return flags.add("--fp4-format e2m1 --fp4-recipe nvfp4{}",
                       training.low_precision_weights ? " --fp4-param-gather" : "");
  }
}

void training_flags(Flags& flags, const Answer& written) {
  const Training& training = written.scenario->training;
  if (training.precision == Precision::Bf16) flags.line("--bf16");
  if (training.precision == Precision::Fp16) flags.line("--fp16");
  low_precision_flags(flags, training);
  if (training.precision != Precision::Fp32 && training.gradient_precision == Precision::Fp32)
    flags.line("--accumulate-allreduce-grads-in-fp32");
  flags.add("--optimizer {}", training.optimizer == Optimizer::Adam   ? "adam"
                              : training.optimizer == Optimizer::Muon ? (training.zero > 0 ? "dist_muon" : "muon")
                                                                      : "sgd");
  const MasterWeights masters = training.master_weights.value;
  if (in_fewer_bits(training))
    flags.add("--use-precision-aware-optimizer --exp-avg-dtype {} --exp-avg-sq-dtype {} --main-params-dtype {}",
              name(training.moments.value), name(training.moments.value),
              masters == MasterWeights::Fp16 ? "fp16" : "fp32");
  if (training.clip_grad_norm) flags.add("--clip-grad {}", *training.clip_grad_norm);
  if (training.optimizer == Optimizer::Sgd) flags.line("--sgd-momentum 0.0");
  if (training.optimizer == Optimizer::Momentum) flags.line("--sgd-momentum 0.9  # yours");
  if (const auto& whole = written.report.campaign; whole != nullptr && whole->steps >= 1)
    flags.add("--train-iters {:.0f}\n  --lr 1e-4  # yours", whole->steps);
  else
    flags.line("--lr 1e-4 --train-iters 50  # yours");
  flags.line("--log-interval 1 --log-throughput");
}

// One queue keeps the kernels of exchanges behind those that they follow. Sharded weights and exchanges of experts beside
// another micro-batch need several; with one, Megatron-LM refuses the former.                              [Megatron26]
std::string hardware_queues(const Answer& written) {
  if (written.scenario->training.zero >= 2 && written.plan.copies() > 1)
    return "unset CUDA_DEVICE_MAX_CONNECTIONS  # --use-megatron-fsdp refuses 1\n";
  return fmt::format("export CUDA_DEVICE_MAX_CONNECTIONS={}\n", written.plan.facts.pairs ? 32 : 1);
}

std::string how_to_run_megatron(const LaunchRequest& request, bool several, const std::string& script) {
  const std::string where = "in the folder of Megatron-LM, where " + script + " is";
  if (request.sbatch) return comment(fmt::format("Submit with: sbatch FILE, {}.", where));
  if (!several) return comment(fmt::format("Run with: bash FILE, {}.", where));
  return comment(fmt::format("Run with: MASTER_ADDR=HEAD_NODE bash FILE, on every node, {};", where)) +
         comment(
             "  HEAD_NODE: the name or address of one of them, the same everywhere. The last node's train.log has "
             "the steps.");
}

}  // namespace

std::string megatron_launch(const LaunchRequest& request) {
  const Answer& written = request.written;
  Flags parallel, recompute, model, training;
  parallel_flags(parallel, written), recompute_flags(recompute, written), model_flags(model, written);
  training_flags(training, written);
  std::string text = "#!/bin/bash\n";
  if (request.sbatch) text += sbatch_lines(request, 1);
  text += launch_header(request, "Megatron-LM", kMegatronVersion,
                        fmt::format("pipewright validate {} --log train.log", plan_named(request)));
  const bool several = nodes_of(written).nodes > 1;
  const std::string script =
      described(written.scenario->model)->pattern.empty() ? "pretrain_gpt.py" : "pretrain_hybrid.py";
  text += how_to_run_megatron(request, several, script);
  text += "set -euo pipefail\n" + hardware_queues(written);
  if (written.scenario->training.precision == Precision::Tf32) text += "export TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1\n";
  text += "parallel=(\n" + parallel.text() + recompute.text() + ")\n";
  text += "model=(\n" + model.text() + ")\ntraining=(\n" + training.text() + ")\n";
  if (request.sbatch) text += "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n";
  text +=
      fmt::format("{}{} \\\n  {} \"${{parallel[@]}}\" \"${{model[@]}}\" \"${{training[@]}}\" 2>&1 | tee train.log\n",
                  request.sbatch ? "srun " : "",
                  torchrun(written, "\"${SLURM_JOB_ID:-0}\"",
                           request.sbatch ? "\"$head\""
                           : several      ? "\"${MASTER_ADDR:?the name of one node, the same on all}\""
                                          : "\"${MASTER_ADDR:-localhost}\""),
                  script);
  return text;
}

std::string megatron_layout(const std::vector<LayoutChunk>& chunks) {
  std::string layout;
  for (std::size_t i = 0; i < chunks.size();) {
    const std::string here = letters(chunks[i]);
    std::size_t end = i + 1;  // of a run of equal chunks, the last chunk of all left out: no | follows it
    while (end + 1 < chunks.size() && chunks[end] == chunks[i])
      ++end;
    if (end - i > 1) {
      layout += fmt::format("({}|)*{}", here, end - i);
      if (end < chunks.size()) layout += ",";
      i = end;
    } else {
      layout += here;
      if (++i < chunks.size()) layout += "|";
    }
  }
  return layout;
}

}  // namespace pipewright::io
