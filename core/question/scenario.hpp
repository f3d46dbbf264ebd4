// The question: a model, a cluster, how it is trained, and the plan to be priced. What io/ reads from a YAML file.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/check.hpp"
#include "core/cluster/cluster.hpp"
#include "core/model/graph.hpp"
#include "core/question/framework_memory.hpp"
#include "core/question/optimizer.hpp"
#include "core/question/run_request.hpp"

namespace pipewright::core {

struct CampaignRequest;  // core/question/campaign_request.hpp
struct MachineProfile;   // core/question/profile.hpp
struct GivenSchedule;    // core/plan/given_schedule.hpp

enum class Recompute {
  None,
  Selective,  // modules of blocks are rebuilt during the backward, attention cores unless
              // RuntimePolicy::recompute_modules says otherwise                           [Korthikanti22] section 5
  Full,       // a stage keeps its input only and repeats its forward                      [GPipe19] section 2.3
  Blocks,     // a Transformer's block keeps its input and repeats its forward right before its backward; what is no
              // block keeps everything: Megatron-LM's --checkpoint-activations              [Megatron21] section 3.5
  Layers,     // as blocks, for a set of layers: Plan::rebuilt
  Knapsack,   // asked of a plan, never in one: the set that adds least time and fits        [AdaPipe24]
};
enum class Skips { Hop, Direct };  // how a tensor travels that skips stages
enum class GradientSync {  // docs/decisions/0006-gradient-sync-of-replicas.md; with a flush AtOnce is Overlapped
  Overlapped,              // beside the backward and whatever follows it; asynchronous: the update is a backward late
  AtOnce,                  // beside the backward of its round; the update follows that backward, and waits
  Blocking                 // behind the backward; the update as at once
};
// When gradients that are sharded are reduced: after each micro-batch, so that a share is added up; or once a step, of
// whole gradients.                                                                                   [ZeRO20] section 5.2
enum class ReduceGradients : std::uint8_t { MicroBatch, Step };
// How the devices that divide a sequence exchange keys and values for attention.    core/cost/context_exchange.hpp
enum class ContextExchange : std::uint8_t {
  Ring,  // keys and values go round while attention runs                                          [RingAttention23]
  AllGather,  // all keys and values first, then attention                                              [LlamaTeam24]
  AllToAll,   // each device gets the whole sequence of a part of the heads                             [Ulysses23]
  TwoLevel,   // all-to-all among plan.context_inner devices, rings between them                        [USP24]
};
// What runs beside the products of a tensor-parallel group.                              core/cost/tensor_overlap.hpp
enum class TensorOverlap : std::uint8_t {
  None,  // "false"
  Beside,  // "true": in parts where the product needs what is exchanged or makes it, whole kernels at once where it does not
  Ring,     // always in parts
  Backward  // what is made of the input's gradient beside the weights', and nothing else
};
// Whether what tensor-parallel groups exchange may be slowed by other traffic.           core/cost/tensor_flows.hpp
enum class TensorLinks : std::uint8_t {
  Alone,   // each exchange as if alone on its links, a part of its layer's time
  Shared,  // of each op a flow that shares links with messages and collectives
  Free,    // not written in files: bytes in no time, for what is left without them
  Counted  // likewise: each byte that a device passes on in kPerByte
};
// Where buckets of gradients end.                                               core/cost/buckets.hpp
enum class BucketRule : std::uint8_t { Size, PyTorch, Megatron, DeepSpeed };
// How tokens reach the devices of their experts.                                       core/cost/expert_exchange.hpp
enum class ExpertExchange : std::uint8_t {
  AllToAll,    // each token to the devices of its experts, once per expert
  AllGather,   // all tokens to all devices of the group
  PerNode,     // once per node of its experts, handed on inside the node                               [DeepEP25]
  Unpriced,    // not written in files: in no time, for bounds that hold wherever the devices lie
  OnlySorted,  // likewise: as AllToAll and PerNode in no time, for what is computed beside it
};
// What the slices of a sequence (plan.slices) have alike.                                  core/cost/slices.hpp
enum class SliceLengths : std::uint8_t {
  Balanced,  // the FLOPs: later ones are shorter                                              [Seq1F1B24] section 3.3
  Even,      // the tokens: later ones take longer, as they attend to more
};
// How a cell of a schedule that holds a forward and a backward is run.
enum class Pairs : std::uint8_t {
  Serial,  // one after the other
  Fused,   // at once
};
// What stands between the steps of a schedule with a flush.
enum class Barrier : std::uint8_t {
  Flush,           // a step begins when all stages have ended the one before it
  None,            // a stage begins it when it has ended its own; nothing is checked over all stages
  PostValidation,  // likewise; what is checked over all stages is checked afterwards         [ZeroBubble23] section 4
};
// Which tokens of a sequence a device has: of 2c chunks two, i and 2c - 1 - i, which see as many keys on every device under
// a causal mask; or one stretch, of which the last sees most.                                        [StripedAttention23]
enum class ContextSplit : std::uint8_t { Zigzag, Contiguous };
enum class PlacementOrder {
  Pipeline,  // each copy of the pipeline takes consecutive devices
  Data,      // the copies of one stage take consecutive devices (Megatron-LM's order)
};
// How the framework runs a layer. What differs is the time of the host per kernel; which kernels run is the same.
enum class Execution : std::uint8_t {
  Eager,     // operator by operator, from Python and autograd: `operator` and `backward` of the host
  Compiled,  // torch.compile: no Python between kernels, each still launched: `compiled`
  Graphs,    // a CUDA graph per pass, launched at once, collectives inside: `graph_node` per kernel
};
// What linear layers compute in, where that is less than the training's precision, and how their operands are scaled.
// docs/decisions/0024-low-precision.md; core/cost/low_precision.hpp
enum class LowPrecision : std::uint8_t {
  None,
  Fp8Delayed,     // a scale per tensor, from the steps before                                         [FP8Formats22]
  Fp8Tensorwise,  // a scale per tensor, from the tensor itself
  Fp8Blockwise,   // per 128 values of activations, per 128 x 128 of weights                           [DeepSeekIII24]
  Mxfp8,          // per 32 values                                                                     [MX23]
  Nvfp4,          // fp4, per 16 values, and one per tensor                                            [NVFP4_25]
};
// Who agrees on the largest values that fp8_delayed scales by.               core/cost/amax_reductions.hpp
enum class AmaxReduction : std::uint8_t { All, TensorParallel, None };
enum class CostSourceKind { Explicit, Roofline, Uniform, Profile };

// Fields that a scenario leaves to the planner, by key ("stages"): `auto`, or {auto: [2, 4]}.
struct OpenField {
  Place place;
  std::vector<std::string> among;  // the values it may take, as written; empty: all that make sense
};
using OpenFields = std::map<std::string, OpenField>;

// What `plan: auto` opens. Replicas belong to asynchronous pipelines, whose training is another one: they are opened by
// name.
constexpr std::array<std::string_view, 11> kOpenedByPlanAuto = {
    "stages",   "virtual_stages", "data_parallel", "tensor_parallel", "sequence_parallel", "context_parallel",
    "schedule", "partition",      "placement",     "expert_parallel", "recompute"};

struct Training {
  // Two of the three must be given (with plan.data_parallel): global = micro_batch_size * micro_batches * copies.
  std::optional<Placed<std::int64_t>> global_batch_size;  // samples per optimizer step
  std::optional<Placed<std::int64_t>> micro_batch_size;   // samples
  std::optional<Placed<std::int64_t>> micro_batches;      // per copy of the pipeline
  bool ragged = false;                                    // allow a smaller last micro-batch
  Precision precision = Precision::Fp32;
  Optimizer optimizer = Optimizer::Sgd;
  Placed<Moments> moments{Moments::Fp32, {}};
  Placed<MasterWeights> master_weights{MasterWeights::Fp32, {}};
  Placed<Sharding> sharding{Sharding::Flat, {}};  // of weights, with zero: 3
  // Of the gradients that are accumulated; absent: as the weights. Megatron-LM accumulates bf16 training in fp32.
  std::optional<Precision> gradient_precision;
  // What is divided among the data-parallel workers of a stage: from 1 on the optimizer's states, and its work; from 2 on
  // the gradients, too; 3: the weights, too, which are gathered where they are read (FSDP). The all-reduce becomes a
  // reduce-scatter of the gradients and an all-gather of the weights.                               [ZeRO20] [FSDP23]
  std::int64_t zero = 0;
  Place zero_place;
  // Of the optimizer's states and of its work, what is left to the host.                          core/cost/host_update.hpp
  Placed<double> offload_optimizer{0, {}};
  // Shards of weights and gradients lie in the host's memory, too.                         core/cost/host_copies.hpp
  Placed<bool> offload_weights{false, {}};
  // Bytes of device memory that the optimizer step moves per parameter; absent: weight, gradient and states read once,
  // weight and states written once.
  std::optional<Bytes> update_bytes;
  std::optional<AttentionKernelName> attention_kernel;  // of fused attention; absent: the device's first
  Execution execution = Execution::Eager;
  // A layer that is repeated in the backward stops where it has all that the backward reads: PyTorch's checkpoints without
  // re-entry, not Megatron-LM's.                                                            [PyTorchCheckpoint26]
  bool checkpoint_early_stop = false;
  ExpertProducts expert_products = ExpertProducts::Fused;
  Placed<LowPrecision> low_precision{LowPrecision::None, {}};
  Placed<AmaxReduction> amax_reduction{AmaxReduction::All, {}};
  std::optional<double>
      clip_grad_norm;  // the most that the norm over all gradients may be; absent: they stay as they are
  bool low_precision_weights = false;  // weights of those layers are kept, and gathered, in the fewer bits alone
  std::optional<std::int64_t> sequence_length;  // tokens per sample; tokens/s needs it
  FrameworkMemory framework;
  OpenFields open;  // micro_batch_size, micro_batches, zero
  Place place;
};

// Where the cuts lie: `balanced` (least bottleneck), `fitting` (least bottleneck of those that fit the devices), the
// number of layers per stage, or the first layer of every stage but the first.
struct Balanced {};
struct Fitting {};
struct LeastStep {};       // exact: the least simulated step of all cuts
struct EqualLayers {};     // baseline: as many layers each
struct EqualBlocks {};     // Megatron-LM: as many blocks each
struct BlockPartition {};  // baseline: torchgpipe's
struct LayerCounts {
  std::vector<std::int64_t> counts;
};
struct CutLayers {
  std::vector<std::int64_t> first;
};
struct SuffixDp {};  // a whole plan: stages, replicas and devices, too, which the scenario leaves open
using Partition = std::variant<Balanced, Fitting, LeastStep, EqualLayers, EqualBlocks, BlockPartition, LayerCounts,
                               CutLayers, SuffixDp>;

// In which order stages take the layers: as the model lists them, in the one of which the best cut has the least
// bottleneck (planner/layer_order.hpp), or as listed. `layers` counts in the model as it was given; it is filled where
// the order is listed, and where Graph is settled. Then `Scenario::model` stands in this order, and partitions count in
// it.
struct LayerOrder {
  enum class Kind { Model, Graph, Listed } kind = Kind::Model;
  std::vector<LayerId> layers;

  bool unsettled() const { return kind == Kind::Graph && layers.empty(); }
};

// What a whole plan settles besides the layers, by key.
constexpr std::array<std::string_view, 3> kSetByWholePlan = {"stages", "replicas", "placement"};

// How a runtime does what a plan says: the same in a request and in its plan.
struct RuntimePolicy {
  Modules recompute_modules{Module::AttentionCore};  // that stages with Recompute::Selective run again
  bool recompute_except_last = false;  // torchgpipe's `except_last`: the last micro-batch keeps everything
  Skips skips = Skips::Hop;
  GradientSync gradient_sync = GradientSync::Overlapped;
  Placed<bool> overlap_param_gather{false, {}};  // with training.zero: 1: UpdatedParts::BesideForwards
  // In place of gradient_sync where a search chooses ZeRO 2 or 3; no key: what a framework does (settle_training).
  std::optional<GradientSync> sync_of_scattered;
  Bytes bucket{25'000'000};                   // all-reduce bucket (gradient bytes)
  BucketRule bucket_rule = BucketRule::Size;  // others: a framework's own sizes in place of `bucket`
  bool vertical_sync = false;                 // PipeDream: every stage uses the version that stage 0 used
  std::optional<Placed<double>>
      kept_for_weights;  // share of a micro-batch's activations that stays from B to W; none: 1
  Placed<Barrier> barrier{Barrier::Flush, {}};
  std::optional<Placed<std::int64_t>> offload_layers;  // of each stage, the first blocks; none: 0
  // Of some schedules alone: kScheduleKeys, core/plan/plan.hpp.
  std::optional<Placed<std::int64_t>> most_in_flight;     // micro-batches on a stage; none: K
  std::optional<Placed<std::int64_t>> micro_batch_group;  // ScheduleShape::group; none: K
  std::optional<Placed<std::int64_t>> slices;             // ScheduleShape::slices; none: 1
  std::optional<Placed<std::int64_t>> pipelines;          // ScheduleShape::pipelines; none: 2
  std::optional<Placed<std::int64_t>> forwards_at_once;   // ScheduleShape::forwards; none: 1
  std::optional<Placed<std::int64_t>> update_every;       // ScheduleShape::update_every; none: K
  Placed<SliceLengths> slice_lengths{SliceLengths::Balanced, {}};
  // Of plan.tensor_parallel.
  Placed<TensorOverlap> tensor_overlap{TensorOverlap::None, {}};
  Placed<TensorLinks> tensor_links{TensorLinks::Alone, {}};  // likewise
  // Of plan.context_parallel.
  Placed<ContextExchange> context_exchange{ContextExchange::Ring, {}};
  std::optional<Placed<std::int64_t>> context_inner;  // of TwoLevel, a divisor of c
  Placed<ContextSplit> context_split{ContextSplit::Zigzag, {}};
  Placed<double> context_imbalance{1, {}};  // attention of the fullest device over the mean: packed documents
  // Of plan.expert_parallel.
  Placed<ExpertExchange> expert_exchange{ExpertExchange::AllToAll, {}};
  Placed<double> expert_imbalance{1, {}};                 // tokens of the fullest device over the mean: time
  std::optional<Placed<double>> expert_imbalance_memory;  // likewise: memory; none: as the time
  std::optional<Placed<double>> expert_capacity;          // rows of an expert at most, over the mean; none: no limit
  bool expert_padding = false;                            // it computes so many, however few come
  // Shared experts compute while tokens travel to the others and back.                  core/cost/sources/work_passes.hpp
  Placed<bool> shared_experts_beside{false, {}};
  std::optional<Placed<std::int64_t>> expert_nodes;  // that a token's experts lie on at most; none: any
  bool expert_dispatch_fp8 = false;                  // tokens are sent in fp8, with a scale per 128 values
  // Of schedules whose cells hold a forward and a backward of different micro-batches.          core/cost/cells.hpp
  Placed<Pairs> pairs{Pairs::Serial, {}};
  std::optional<Placed<Time>> pair_time;  // how long such a cell takes; none: as computing and exchanges say
  Placed<double> exchange_share{0, {}};   // of a device's processors that the exchange of tokens takes from computing
  Placed<bool> delay_wgrad{false, {}};    // weights' gradients are computed beside the exchange that follows
  Bytes reserve_pipeline;                 // taken on every device when K > 1, in addition to the device's reserve

  // Tokens of the fullest device over the mean: 1 where every device of a stage has all of its experts.
  double imbalance(const TensorParallel& split) const { return split.experts > 1 ? expert_imbalance.value : 1; }
  double imbalance_in_memory(const TensorParallel& split) const {
    return split.experts > 1 ? expert_imbalance_memory.value_or(expert_imbalance).value : 1;
  }
  double most_imbalance(const TensorParallel& split) const {
    return std::max(imbalance(split), imbalance_in_memory(split));
  }
  // Rows of its experts over the mean: tokens beyond the capacity are dropped.    [GShard20] section 2.2; [Megatron26]
  double expert_load(const TensorParallel& split) const { return limited(imbalance(split)); }
  double expert_load_in_memory(const TensorParallel& split) const { return limited(imbalance_in_memory(split)); }

  // Whether slices of a micro-batch take unequal times.
  bool uneven_slices() const { return slice_lengths.value == SliceLengths::Even && slices && slices->value > 1; }

 private:
  double limited(double load) const {
    if (!expert_capacity) return load;
    return expert_padding ? expert_capacity->value : std::min(load, expert_capacity->value);
  }
};

struct PlanRequest : RuntimePolicy {
  Placed<std::int64_t> stages{1, {}};
  Placed<std::int64_t> virtual_stages{1, {}};
  Placed<std::int64_t> data_parallel{1, {}};
  // Copies that divide states among them; there are data_parallel / shard such groups, which hold the same (hybrid
  // sharding). None: all copies.                                                          [FSDP23] section 3.2.2
  std::optional<Placed<std::int64_t>> shard;
  std::optional<Placed<bool>> reshard_after_forward;        // none: where the pipeline has one stage
  std::int64_t reshard_over = 0;                            // where true: Resharding::over; 0: all
  bool reshard_always = false;                              // where true: Resharding::always
  std::optional<Placed<ReduceGradients>> reduce_gradients;  // none: where it has one, after every micro-batch
  // t: a worker is a group of t consecutive devices that compute every layer together.                  [Shoeybi19]
  Placed<std::int64_t> tensor_parallel{1, {}};
  Placed<bool> sequence_parallel{false, {}};  // needs t > 1                                             [Korthikanti22]
  // c: devices that divide every sequence among them. They hold the same weights, so that they are copies of one another
  // where gradients are reduced and states divided.                                                  [RingAttention23]
  Placed<std::int64_t> context_parallel{1, {}};
  // e and x (0: t): e x devices of a stage that follow one another hold the experts between them.      [GShard20]
  Placed<std::int64_t> expert_parallel{1, {}};
  Placed<std::int64_t> expert_tensor_parallel{0, {}};
  Placed<std::vector<std::int64_t>> replicas;  // per stage; empty: one each
  Placed<LayerOrder> order;
  Placed<Partition> partition;
  Placed<std::string> schedule{"1f1b", {}};  // "file": the order of `given`
  std::shared_ptr<const GivenSchedule> given;
  std::string schedule_file;  // as written; "" unless schedule is "file"
  std::variant<PlacementOrder, std::vector<std::int64_t>> placement =
      PlacementOrder::Pipeline;  // or lead device per worker
  Place placement_place;
  Placed<std::vector<Recompute>> recompute;  // per stage; one entry: all stages; empty: none
  // By entry of `recompute`: the layers of one that is Layers, as written. One entry: of all stages.
  std::vector<Placed<std::vector<std::int64_t>>> recompute_layers;
  // With t > 1, between stages: every member of a group sends 1/t of the tensor, which the receiving group gathers over
  // its own links.                                                                        [Megatron21] section 4.1
  Placed<bool> scatter_gather{false, {}};
  std::string reserve_pipeline_source;  // where that figure comes from: "fitted on ..."
  double fit = 0;  // least probability of fitting, over the memory model's band; 0: not stated, the need must fit
  bool fit_by_default = false;  // nobody stated it: what `plan` and `capacity` ask for
  OpenFields open;              // stages, data_parallel, schedule, ...: see io/read/read_open.cpp
  Place place;

  TensorParallel split() const {
    // What no cluster has is refused where the plan is made.
    const auto small = [](std::int64_t count, std::int64_t most) { return static_cast<int>(std::min(count, most)); };
    return {small(tensor_parallel.value, 1 << 30), sequence_parallel.value, small(expert_parallel.value, 1 << 15),
            small(expert_tensor_parallel.value, 1 << 15)};
  }
};

struct Scenario {
  std::string name;
  std::string file;  // "" when built in code
  std::string description;
  Model model;
  Cluster cluster;
  Training training;
  PlanRequest plan;
  RunRequest run;
  std::shared_ptr<const CampaignRequest> campaign;  // the whole training, of many steps; nullptr: not asked for
  CostSourceKind cost = CostSourceKind::Explicit;
  Time uniform_forward{0}, uniform_backward{0};   // CostSourceKind::Uniform: per layer and micro-batch
  std::shared_ptr<const MachineProfile> profile;  // CostSourceKind::Profile: measured times; nullptr: none read
  std::string profile_file;
  std::map<std::string, Place> origins;  // where each value was read, by key ("plan.stages"); absent: default

  // Defined in the .cpp: compiled once, not in each file that includes this.
  Scenario();
  Scenario(const Scenario&);
  Scenario(Scenario&&) noexcept;
  Scenario& operator=(const Scenario&);
  Scenario& operator=(Scenario&&) noexcept;
  ~Scenario();
};

// Models with experts: what their price leaves out, ready for a
// report's warnings; "": the model has no experts, or its times are stated.   tests/cli/told_test.cpp "with experts"
std::string expert_caution(const Scenario& scenario);

// The scenario without what `plan: auto` opens and is not there: experts to divide, sequences that devices can share,
// prices for either. What has a list stays open.                                       tests/io/plan_auto_test.cpp
Scenario without_what_is_not_there(Scenario scenario);

}  // namespace pipewright::core
