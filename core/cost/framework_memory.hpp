// Memory of frameworks, tensor by tensor: what `training.framework` adds to the tensors that operators keep.
//
// u = 2 s b h, one hidden state (its part with sequence parallelism); T = s b tokens; t devices share a layer; V the
// vocabulary. Per layer and micro-batch in flight:
//
//     norm statistics       8 T of a layer norm, 4 T of an RMS norm: mean and reciprocal deviation in fp32
//     attention_copy        2 T q / t: FlashAttention-2 behind Transformer Engine keeps its output in the order batch,
//                           sequence beside the one that the projection reads, with micro-batches of more than a sample
//     fp32_softmax          2 a s^2 b / t more than the 2 of fp16: PyTorch's softmax instead of Megatron's fused one
//     gathered_inputs       (1 - 1/t) u of each product that divides its columns
//     copied_inputs         2 u with t > 1: queries, keys and values are three products, and each keeps a copy of its
//                           input, PaddlePaddle's c_identity (fleet/layers/mpu: ColumnParallelLinear), where others have one
//     gate_kept             2 T f / t: activation(gate) beside gate, value and product
//     experts without gate  2 R f / x of R rows on a device: the activation beside its product with the router's shares, which
//                           with a gate one kernel makes (transformer/mlp.py, moe/experts.py)
//
// While the loss and its backward run (once: the last stage has one micro-batch between them):
//
//     max(c T V / t, 2 T V / t + 2 V h / t) + 38 T, with sequence parallelism + the gathered input of the head
//     c = 6: bf16 logits and a copy in fp32, in which maximum, exponents, softmax and gradient replace one another
//        10: fused by torch.compile with a second buffer in fp32; 2: Transformer Engine's kernel, in place of the logits
//     2 V h / t: the gradient of the head's weight
//     V: padded to a multiple of 128 t
//     first_logit_bytes f: while torch.compile tunes its kernels (f - c) T V / t more, where that is more than the 8 B
//     per parameter of Adam's states, which the first step's loss does not see
//
// While a layer's backward runs: 2 T f' / t, the gradient of what the first product of the feed-forward made (f' its
// features), and 2 h f' / t where weight gradients are `separate`. At the end of the backward of the first stage 2 V h / t.
//
// All the time: `workspace`; with `fused_kept` 2 B per weight of each shape that blocks have; local layers: 2 a s^2 b /
// t, the buffer of scores. While ops run: mask s^2 b, tokens, labels and positions 24 T, loss mask 4 T; with several
// stages the messages 2 u (3 u with virtual stages), and without virtual stages the next mask. After the step: 3584 B,
// with several stages 2 v u and (v = 1) a mask; fp16: the gradients' copy in fp32.
//
// [Korthikanti22] section 4 for what a block keeps; Megatron-LM core (tensor_parallel/cross_entropy.py,
// transformer/dot_product_attention.py, pipeline_parallel/schedules.py), Transformer Engine (pytorch/module/base.py).
// Worked numbers: docs/how-it-works/memory.md, tests/planner/framework_memory_test.cpp
#pragma once

#include <optional>
#include <string_view>

#include "core/cost/memory_model.hpp"
#include "core/question/framework_memory.hpp"

namespace pipewright::core {

// Of one layer and one micro-batch, on a device.
struct BesideOperators {
  Bytes stash;                  // more of it, but for logits
  Bytes core;                   // of that: rebuilt by selective recomputation
  std::optional<Bytes> logits;  // that the loss keeps, instead of the operators'
  Bytes workspace;              // scratch memory, of Megatron instead of the operators', else beside it
  bool instead = false;
};
BesideOperators beside_operators(const Work& work, const FrameworkMemory& framework, TensorParallel split,
                                 Bytes per_value, double samples);

// 2 V h / t of a layer with a table: its gradient, at the end of the backward.
Bytes table_gradient(const Work& work, const FrameworkMemory& framework, TensorParallel split, Bytes per_value);

// Values of the rows that pad the layer's tables, on a device; `tied`: also of one that it shares with another layer.
std::int64_t padding(const Work& work, const FrameworkMemory& framework, int tensor_parallel, bool tied);

// In how many groups a device of stage k communicates: as stated, or one each of tensor-parallel devices, of copies, and
// of stages that follow one another; on the first and the last of several stages FrameworkMemory::end_communicators more.
std::int64_t communicating_groups(const Plan& plan, const Scenario& scenario, StageId k);

// What these take of the device, but for the group that its reserve has:
//     (groups - 1) * Device::communicator, never below 0
// With a measured reserve (MemoryCorrection) there is none in it: groups * communicator. 3 groups, 688 MB: 1376 MB.
//                                                              tests/planner/anchor_test.cpp "communicators"
Bytes communicators(const Plan& plan, const Scenario& scenario, StageId k);

// What a measured run says; none: nothing is corrected.
const MemoryCorrection& correction_of(const Scenario& scenario);

// "fits": the upper bound of the range is below the capacity; "at risk": the need is; "out of memory".
std::string_view memory_verdict(const MemoryNeed& need);

// The place of kActivationBand where tensors are counted as Megatron holds them. By every tenth line of its own tests
// (memory-golden, lines 10, 20, ...) 90 % of the peaks need 1.6 % of the activations; of runs of others with local layers,
// whose settings are not all printed (zero-bubble, lines 10, 20, ...), 4.5 %. Judged on the other lines: 94 and 90 % inside.
constexpr double kFrameworkBand = 0.02, kLocalBand = 0.05;
double activation_band(const Scenario& scenario);  // 0: the model states what it keeps

// Fills MemoryModel::fixed from its chunks; the loss's scratch memory becomes the first step's where that is more.
void add_fixed(MemoryModel& memory, const Plan& plan, const Scenario& scenario);

}  // namespace pipewright::core
