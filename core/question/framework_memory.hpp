// What a framework holds beside the tensors that a model's operators keep: `training.framework` of a scenario. Without
// it nothing is held beside them, as in a run of our own. Formulas and sources: core/cost/framework_memory.hpp
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/units.hpp"

namespace pipewright::core {

struct MemoryAnchor;      // core/question/memory_anchor.hpp
struct MemoryCorrection;  // likewise

enum class FrameworkTensors {
  None,           // those of the operators alone
  Megatron,       // Megatron-core with the layers of Transformer Engine
  MegatronLocal,  // with its own layers
};
// Where gradients lie while they are reduced.
enum class GradientBuffer {
  Copied,   // in a bucket of their own: a second copy of what travels
  InPlace,  // where they were summed up
};
// How the gradient of a weight is added to the sum of the micro-batches.
enum class WeightGradients {
  Separate,   // a tensor of its own, then added
  Fused,      // by the product itself
  FusedKept,  // likewise; a dummy gradient stays for each shape of a weight
};

struct FrameworkMemory {
  FrameworkTensors tensors = FrameworkTensors::None;
  std::optional<GradientBuffer> gradient_buffer;  // absent: in_place for Megatron, else copied
  WeightGradients weight_gradients = WeightGradients::Fused;
  // Per logit, when the loss holds most; absent: 6 for Megatron, else 4. In the first step; absent: the same.
  std::optional<std::int64_t> logit_bytes, first_logit_bytes;
  // A vocabulary is padded to a multiple of this on each device; absent: 128 for Megatron, else 1.
  std::optional<std::int64_t> vocabulary_multiple;
  Bytes workspace;               // of kernels, all the time
  Bytes bytes_per_parameter;     // beside weight, gradient and states
  bool attention_mask = true;    // Megatron: a mask of s x s per sample is loaded
  bool attention_copy = false;   // a fused kernel keeps its output twice
  bool fp32_softmax = false;     // materialised scores are kept in fp32
  bool gathered_inputs = false;  // sequence parallelism: gathered inputs of products are kept
  bool copied_inputs = false;    // tensor parallelism: queries, keys and values each keep a copy of their input
  bool gate_kept = false;        // the gate's activation is kept, too: gate and product are two operators
  // Groups in which a device communicates; absent: those of the plan (core/cost/framework_memory.hpp).
  std::optional<std::int64_t> communicators;
  std::int64_t end_communicators = 0;                  // more, of devices of the first and the last of several stages
  std::shared_ptr<const MemoryAnchor> anchor;          // a measured run; null: none
  std::shared_ptr<const MemoryCorrection> correction;  // what it says of all others: planner/anchor.hpp

  bool megatron() const { return tensors != FrameworkTensors::None; }
  bool reduces_in_place() const {
    return gradient_buffer.value_or(megatron() ? GradientBuffer::InPlace : GradientBuffer::Copied) ==
           GradientBuffer::InPlace;
  }
  std::int64_t bytes_of_logit() const { return logit_bytes.value_or(megatron() ? 6 : 4); }
  // Rows of a table that one of t devices holds: 128 256 words are 16 128 with t = 8, not 16 032.
  std::int64_t rows_of_table(std::int64_t vocabulary, int t) const {
    const std::int64_t multiple = vocabulary_multiple.value_or(megatron() ? 128 : 1);
    const std::int64_t rows = vocabulary / t + (vocabulary % t != 0 ? 1 : 0);
    return (rows + multiple - 1) / multiple * multiple;
  }
  bool operator==(const FrameworkMemory&) const = default;
};

}  // namespace pipewright::core
